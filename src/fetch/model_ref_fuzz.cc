// Any text as a model reference: never a crash; what is accepted is written so that it reads back
// the same, and holds nothing that could climb, command a terminal or break a line.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/utf8.h"
#include "contract/model_entry.h"
#include "fetch/model_ref.h"

namespace llorch::fetch {
namespace {

void check(std::string_view text) {
  const Result<ModelRef> ref = parse_model_ref(text);
  if (!ref.ok()) {
    CHECK(base::is_valid_utf8(ref.error().message));
    return;
  }
  const std::string written = ref->text();
  const Result<ModelRef> again = parse_model_ref(written);
  CHECK(again.ok() && *again == *ref, written);
  CHECK(again->text() == written);
  CHECK(base::is_valid_utf8(written));
  CHECK(std::none_of(written.begin(), written.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }));
  if (!ref->file.empty()) CHECK(contract::is_relative_file_path(ref->file));
  if (ref->provider == Provider::File)
    CHECK(contract::is_relative_file_path(std::string_view(ref->location).substr(1)));
}

}  // namespace
}  // namespace llorch::fetch

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  llorch::fetch::check({reinterpret_cast<const char*>(data), size});
  return 0;
}
