#include "catalog/part_state.h"

#include <fmt/format.h>

#include <limits>

#include "base/file.h"
#include "base/json.h"
#include "base/json_fields.h"
#include "catalog/chunks.h"

namespace llorch::catalog {
namespace {

constexpr int kVersion = 1;
constexpr std::size_t kStateBytesMax = std::size_t{128} << 20;
constexpr std::size_t kChunksMax = std::size_t{1} << 20;
constexpr std::int64_t kIntMax = std::numeric_limits<std::int64_t>::max();

}  // namespace

Result<PartState> load_part_state(const std::filesystem::path& file) {
  const Result<std::string> text = base::read_text_file(file, kStateBytesMax);
  if (!text.ok()) return text.error();
  const Result<json::Value> value = json::parse(*text, {kStateBytesMax, 4});
  if (!value.ok()) return value.error().in(file.string());
  const Error corrupt{ErrorCode::Corrupt, fmt::format("{} is damaged", file.string())};
  if (!value->is_object()) return corrupt;
  json::FieldReader reader(value->get_object());
  PartState state;
  reader.required_integer("version", kVersion, kVersion);
  state.identity = reader.required_string("identity");
  state.size = reader.required_integer("size", 0, kIntMax);
  state.chunk_bytes = reader.required_integer("chunk_bytes", 1, kIntMax);
  state.chunks = reader.optional_strings("chunks", kChunksMax).value_or(std::vector<std::string>());
  if (!reader.finish().empty() ||
      count_chunks(state.size, state.chunk_bytes) != static_cast<std::int64_t>(state.chunks.size()))
    return corrupt;
  for (const std::string& chunk : state.chunks) {
    if (!chunk.empty() && !is_sha256_hex(chunk)) return corrupt;
  }
  return state;
}

Status save_part_state(const std::filesystem::path& file, const PartState& state) {
  json::Array chunks;
  chunks.reserve(state.chunks.size());
  for (const std::string& chunk : state.chunks) chunks.emplace_back(chunk);
  json::Object object{{"version", kVersion},
                      {"identity", state.identity},
                      {"size", state.size},
                      {"chunk_bytes", state.chunk_bytes},
                      {"chunks", std::move(chunks)}};
  return base::write_file_atomically(file, json::serialize(std::move(object)));
}

}  // namespace llorch::catalog
