// Everything that hubs, registries and a part's state say, by the input's first byte.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "contract/model_entry.h"
#include "fetch/choose_files.h"
#include "fetch/http_fetch.h"
#include "fetch/part_state.h"
#include "fetch/source_answers.h"

namespace {

using namespace llorch;

void check_tree(std::string_view text) {
  const Result<std::vector<fetch::ListedFile>> files = fetch::parse_hub_tree(text);
  if (!files.ok()) return;
  for (const fetch::ListedFile& file : *files)
    CHECK(contract::is_relative_file_path(file.path) && file.size >= 0, "a path that climbs");
  for (const std::string_view wanted : {"", "Q4_K_M", "config.json", "-of-"}) {
    const auto chosen = fetch::choose_files(*files, wanted, "repo");
    if (!chosen.ok()) continue;
    CHECK(!chosen->files.empty(), "a choice of nothing");
    for (const fetch::ListedFile& file : chosen->files)
      CHECK(file.path.starts_with(chosen->folder) && file.path.size() > chosen->folder.size(),
            "a file outside its folder");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (static_cast<char>(data[0])) {
    case 'i': {
      const auto info = fetch::parse_hub_info(text);
      CHECK(!info.ok() || info->commit.size() == 40, "a commit of another length");
      break;
    }
    case 't':
      check_tree(text);
      break;
    case 'n': {
      const auto version = fetch::parse_npm_package(text, "");
      CHECK(!version.ok() || version->integrity.starts_with("sha512-"), "a version without a hash");
      break;
    }
    case 'l':
      (void)fetch::next_link(text);
      break;
    case 'r': {
      const auto range = fetch::parse_content_range(text);
      CHECK(
          !range || (range->first <= range->last && (!range->total || range->last < *range->total)),
          "a range that is none");
      break;
    }
    case 's': {
      const auto state = fetch::parse_part_state(text);
      if (!state.ok()) break;
      for (const auto& [index, bytes] : state->partial)
        CHECK(index < state->chunks.size() && bytes < state->chunk_bytes, "a part of no chunk");
      break;
    }
    default:
      break;
  }
  return 0;
}
