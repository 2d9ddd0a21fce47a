#include "fetch/part_state.h"

#include <fmt/format.h>

#include <fstream>
#include <limits>

#include "base/file.h"
#include "base/json.h"
#include "base/json_fields.h"
#include "base/positioned_file.h"
#include "fetch/chunks.h"

namespace llorch::fetch {
namespace {

constexpr int kVersion = 1;
constexpr std::size_t kStateBytesMax = std::size_t{128} << 20;
constexpr std::size_t kChunksMax = std::size_t{1} << 20;
std::filesystem::path next_state_file(const std::filesystem::path& file) {
  return file.native() + ".new";
}

constexpr std::int64_t kIntMax = std::numeric_limits<std::int64_t>::max();

}  // namespace

Result<PartState> parse_part_state(std::string_view text) {
  const Error corrupt{ErrorCode::Corrupt, "the state of a part is damaged"};
  const Result<json::Value> value = json::parse(text, {kStateBytesMax, 4});
  if (!value.ok()) return corrupt;
  if (!value->is_object()) return corrupt;
  json::FieldReader reader(value->get_object());
  PartState state;
  reader.required_integer("version", kVersion, kVersion);
  state.identity = reader.required_string("identity");
  state.size = reader.required_integer("size", 0, kIntMax);
  state.chunk_bytes = reader.required_integer("chunk_bytes", 1, kIntMax);
  state.chunks = reader.optional_strings("chunks", kChunksMax).value_or(std::vector<std::string>());
  const json::Array* partial = reader.optional_array("partial");
  for (std::size_t i = 0; partial != nullptr && i < partial->size(); ++i) {
    const json::Array* pair = (*partial)[i].if_array();
    if (pair == nullptr || pair->size() != 2 || !(*pair)[0].is_int64() || !(*pair)[1].is_int64())
      return corrupt;
    const std::int64_t index = (*pair)[0].get_int64();
    const std::int64_t bytes = (*pair)[1].get_int64();
    if (index < 0 || index >= static_cast<std::int64_t>(state.chunks.size()) || bytes <= 0 ||
        bytes >= state.chunk_bytes)
      return corrupt;
    state.partial[static_cast<std::size_t>(index)] = bytes;
  }
  if (!reader.finish().empty() ||
      count_chunks(state.size, state.chunk_bytes) != static_cast<std::int64_t>(state.chunks.size()))
    return corrupt;
  for (const std::string& chunk : state.chunks) {
    if (!chunk.empty() && !is_sha256_hex(chunk)) return corrupt;
  }
  return state;
}

Result<PartState> load_part_state(const std::filesystem::path& file) {
  const Result<std::string> text = base::read_text_file(file, kStateBytesMax);
  if (!text.ok()) return text.error();
  Result<PartState> state = parse_part_state(*text);
  if (!state.ok()) return state.error().in(file.string());
  return state;
}

Status save_part_state(const std::filesystem::path& file, const PartState& state) {
  json::Array chunks;
  chunks.reserve(state.chunks.size());
  for (const std::string& chunk : state.chunks) chunks.emplace_back(chunk);
  json::Array partial;
  for (const auto& [index, bytes] : state.partial) partial.push_back(json::Array{index, bytes});
  json::Object object{{"version", kVersion},         {"identity", state.identity},
                      {"size", state.size},          {"chunk_bytes", state.chunk_bytes},
                      {"chunks", std::move(chunks)}, {"partial", std::move(partial)}};
  // Always the same name, unlike base::AtomicFile's: one process at a time writes here, and a
  // killed one leaves nothing that the next does not write over.
  const std::filesystem::path next = next_state_file(file);
  {
    std::ofstream out(next, std::ios::binary | std::ios::trunc);
    out << json::serialize(std::move(object));
    out.flush();
    if (!out) return Error{ErrorCode::Unavailable, fmt::format("cannot write {}", next.string())};
  }
  const auto written = base::PositionedFile::open(next, base::PositionedFile::Mode::ReadWrite);
  if (!written.ok()) return written.error();
  if (const Status synced = (*written)->sync(); !synced.ok()) return synced;
  std::error_code error;
  std::filesystem::rename(next, file, error);
  if (error)
    return Error{ErrorCode::Unavailable,
                 fmt::format("cannot rename {}: {}", next.string(), error.message())};
  return ok_status();
}

void remove_part_state(const std::filesystem::path& file) {
  std::error_code ignored;
  std::filesystem::remove(file, ignored);
  std::filesystem::remove(next_state_file(file), ignored);
}

}  // namespace llorch::fetch
