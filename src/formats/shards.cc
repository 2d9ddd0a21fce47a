#include "formats/shards.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <string>

#include "base/json.h"
#include "base/utf8.h"

namespace llorch::formats {
namespace {

constexpr std::size_t kIndexBytesMax = 64U << 20;

// Shard file name → names of its tensors.
using ShardMap = std::map<std::string, std::set<std::string, std::less<>>, std::less<>>;

// Shards lie beside the index; a name that leads elsewhere is refused.
bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of("/\\") == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

Result<ShardMap> parse_index(std::string_view text) {
  Result<json::Value> parsed = json::parse(text, {.max_bytes = kIndexBytesMax});
  if (!parsed.ok()) return Error{ErrorCode::Corrupt, parsed.error().message};
  const json::Object* root = parsed->if_object();
  const json::Value* weight_map = root != nullptr ? root->if_contains("weight_map") : nullptr;
  if (weight_map == nullptr || !weight_map->is_object()) {
    return Error{ErrorCode::Corrupt, "expected an object with an object \"weight_map\""};
  }
  ShardMap shards;
  for (const auto& entry : weight_map->get_object()) {
    const std::string_view tensor = json::view(entry.key());
    if (!entry.value().is_string()) {
      return Error{ErrorCode::Corrupt,
                   fmt::format("weight_map: {}: expected a file name, found {}",
                               base::quoted(tensor), json::kind_name(entry.value()))};
    }
    const std::string_view file = json::view(entry.value().get_string());
    if (!is_plain_file_name(file)) {
      return Error{ErrorCode::Corrupt, fmt::format("weight_map: {}: {} is not a plain file name",
                                                   base::quoted(tensor), base::quoted(file))};
    }
    shards[std::string(file)].emplace(tensor);
  }
  if (shards.empty()) return Error{ErrorCode::Corrupt, "weight_map is empty"};
  return shards;
}

Status add_file(const std::filesystem::path& path, AddImage add, WeightFile& into) {
  Result<std::shared_ptr<const base::MappedFile>> file = base::MappedFile::open(path);
  if (!file.ok()) return file.error();
  if (Status added = add((*file)->bytes(), into); !added.ok())
    return added.error().in(path.string());
  into.keep(file.take());
  return ok_status();
}

// `found` are the tensors that came out of the shard.
Status compare(const std::string& shard, const std::set<std::string, std::less<>>& expected,
               std::span<const WeightTensor> found) {
  std::set<std::string_view> names;
  for (const WeightTensor& tensor : found) {
    names.insert(tensor.name);
    if (!expected.contains(tensor.name)) {
      return Error{ErrorCode::Corrupt,
                   fmt::format("shard {} holds tensor {}, which the index does not place there",
                               base::quoted(shard), base::quoted(tensor.name))};
    }
  }
  for (const std::string& name : expected) {
    if (!names.contains(name)) {
      return Error{ErrorCode::Corrupt,
                   fmt::format("tensor {} is not in shard {}, where the index places it",
                               base::quoted(name), base::quoted(shard))};
    }
  }
  return ok_status();
}

}  // namespace

Result<WeightFile> read_single(FileFormat format, const std::filesystem::path& path, AddImage add) {
  WeightFile weights(format, path);
  if (Status added = add_file(path, add, weights); !added.ok()) return added.error();
  return weights;
}

Result<WeightFile> read_sharded(FileFormat format, const std::filesystem::path& index_path,
                                AddImage add) {
  Result<std::string> text = base::read_text_file(index_path, kIndexBytesMax);
  if (!text.ok()) return text.error();
  const Result<ShardMap> shards = parse_index(*text);
  if (!shards.ok()) return shards.error().in(index_path.string());
  WeightFile weights(format, index_path);
  for (const auto& [file, names] : *shards) {
    const std::size_t before = weights.tensors().size();
    if (Status added = add_file(index_path.parent_path() / file, add, weights); !added.ok())
      return added.error();
    const Status same = compare(file, names, weights.tensors().subspan(before));
    if (!same.ok()) return same.error().in(index_path.string());
  }
  return weights;
}

}  // namespace llorch::formats
