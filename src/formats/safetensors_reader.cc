#include "formats/safetensors_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/utf8.h"
#include "formats/byte_cursor.h"
#include "formats/shards.h"

namespace llorch::formats {
namespace {

constexpr std::uint64_t kHeaderBytesMax = 100'000'000;  // the format's own limit
constexpr std::size_t kHeaderDepthMax = 8;

Error corrupt(std::string message) {
  return {ErrorCode::Corrupt, "safetensors: " + std::move(message)};
}

// The format's names are ours, for the types that are not ggml blocks.
std::optional<tensor::DType> find_dtype(std::string_view text) {
  for (const tensor::DTypeInfo& row : tensor::all_dtypes()) {
    if (row.block_elems == 1 && row.name == text) return row.dtype;
  }
  return std::nullopt;
}

// A JSON array of integers, none negative.
std::optional<std::vector<std::int64_t>> read_counts(const json::Value& value) {
  const json::Array* array = value.if_array();
  if (array == nullptr) return std::nullopt;
  std::vector<std::int64_t> counts;
  for (const json::Value& element : *array) {
    const std::int64_t* count = element.if_int64();
    if (count == nullptr || *count < 0) return std::nullopt;
    counts.push_back(*count);
  }
  return counts;
}

struct Entry {
  std::string_view name;
  tensor::DType dtype;
  tensor::Shape shape;
  std::int64_t begin;
  std::int64_t end;
};

// One {"dtype", "shape", "data_offsets"} object; the error does not yet name the tensor.
Result<Entry> read_entry(const json::Value& value) {
  const json::Object* object = value.if_object();
  if (object == nullptr)
    return corrupt(fmt::format("expected an object, found {}", json::kind_name(value)));
  const json::Value* dtype_field = object->if_contains("dtype");
  const json::Value* shape_field = object->if_contains("shape");
  const json::Value* offsets_field = object->if_contains("data_offsets");
  if (dtype_field == nullptr || shape_field == nullptr || offsets_field == nullptr ||
      object->size() != 3) {
    return corrupt("expected exactly dtype, shape and data_offsets");
  }
  if (!dtype_field->is_string()) return corrupt("dtype is not a string");
  const std::string_view dtype_name = json::view(dtype_field->get_string());
  const std::optional<tensor::DType> dtype = find_dtype(dtype_name);
  if (!dtype)
    return Error{ErrorCode::Unsupported,
                 fmt::format("safetensors: unknown dtype {}", base::quoted(dtype_name))};
  const auto dims = read_counts(*shape_field);
  if (!dims) return corrupt("shape is not an array of non-negative integers");
  Result<tensor::Shape> shape = tensor::Shape::make(*dims);
  if (!shape.ok()) return shape.error().in("safetensors");
  const auto offsets = read_counts(*offsets_field);
  if (!offsets || offsets->size() != 2 || (*offsets)[0] > (*offsets)[1]) {
    return corrupt("data_offsets is not [begin, end] with begin <= end");
  }
  const std::int64_t bytes = (*offsets)[1] - (*offsets)[0];
  const std::optional<std::int64_t> needed = tensor::storage_bytes(*dtype, shape->elements());
  if (!needed || *needed != bytes) {
    return corrupt(fmt::format("{} of {} needs {} bytes, data_offsets give {}", shape->to_string(),
                               dtype_name, needed ? fmt::to_string(*needed) : "more than 2^63",
                               bytes));
  }
  return Entry{{}, *dtype, *shape, (*offsets)[0], (*offsets)[1]};
}

Status add_metadata(const json::Value& value, Metadata& metadata) {
  const json::Object* object = value.if_object();
  if (object == nullptr) return corrupt("__metadata__ is not an object");
  for (const auto& field : *object) {
    const std::string_view key = json::view(field.key());
    if (!field.value().is_string()) {
      return corrupt(fmt::format("__metadata__: {}: expected a string, found {}", base::quoted(key),
                                 json::kind_name(field.value())));
    }
    std::string full = fmt::format("safetensors.{}", key);
    if (metadata.contains(full)) continue;  // an earlier shard had it
    const Status added =
        metadata.add(std::move(full), std::string(json::view(field.value().get_string())));
    if (!added.ok()) return added;
  }
  return ok_status();
}

// Together the tensors must cover the data exactly, each byte once.
Status check_cover(const std::vector<Entry>& in_order, std::uint64_t data_bytes) {
  std::int64_t expected = 0;
  for (const Entry& entry : in_order) {
    if (entry.begin != expected) {
      return corrupt(fmt::format(
          "tensor {} begins at {}, expected {}: tensors may neither overlap nor leave holes",
          base::quoted(entry.name), entry.begin, expected));
    }
    expected = entry.end;
  }
  if (std::cmp_not_equal(expected, data_bytes)) {
    return corrupt(fmt::format("tensors end at byte {} of the data, the file has {} bytes of it",
                               expected, data_bytes));
  }
  return ok_status();
}

Result<std::vector<Entry>> read_header(const json::Object& header, Metadata& metadata) {
  std::vector<Entry> entries;
  for (const auto& field : header) {
    const std::string_view name = json::view(field.key());
    if (name == "__metadata__") {
      if (Status added = add_metadata(field.value(), metadata); !added.ok()) return added.error();
      continue;
    }
    Result<Entry> entry = read_entry(field.value());
    if (!entry.ok()) return entry.error().in(fmt::format("tensor {}", base::quoted(name)));
    entry->name = name;
    entries.push_back(*entry);
  }
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  return entries;
}

Status add_safetensors(std::span<const std::byte> image, WeightFile& into) {
  ByteCursor cursor(image);
  const auto length = cursor.read<std::uint64_t>();
  if (!length)
    return corrupt(fmt::format("{} bytes, too short for the header's length", image.size()));
  if (*length > kHeaderBytesMax) {
    return corrupt(fmt::format("header of {} bytes, more than the {} the format allows", *length,
                               kHeaderBytesMax));
  }
  const auto header_bytes = cursor.take(*length);
  if (!header_bytes) {
    return corrupt(
        fmt::format("header of {} bytes, but only {} follow", *length, cursor.remaining()));
  }
  const std::string_view text(reinterpret_cast<const char*>(header_bytes->data()),
                              header_bytes->size());
  if (!text.starts_with('{')) return corrupt("the header does not begin with '{'");
  const Result<json::Value> header =
      json::parse(text, {.max_bytes = kHeaderBytesMax, .max_depth = kHeaderDepthMax});
  if (!header.ok()) return corrupt(header.error().message);
  const Result<std::vector<Entry>> entries =
      read_header(header->get_object(), into.mutable_metadata());
  if (!entries.ok()) return entries.error();
  const std::span<const std::byte> data = image.subspan(cursor.position());
  if (Status covered = check_cover(*entries, data.size()); !covered.ok()) return covered;
  for (const Entry& entry : *entries) {
    const auto begin = static_cast<std::size_t>(entry.begin);
    const auto size = static_cast<std::size_t>(entry.end - entry.begin);
    const Status added = into.add_tensor(
        {std::string(entry.name), entry.dtype, entry.shape, data.subspan(begin, size), {}});
    if (!added.ok()) return added;
  }
  return ok_status();
}

}  // namespace

Result<WeightFile> read_safetensors(const std::filesystem::path& path) {
  return read_single(FileFormat::SafeTensors, path, add_safetensors);
}

Result<WeightFile> read_safetensors_index(const std::filesystem::path& index_path) {
  return read_sharded(FileFormat::SafeTensors, index_path, add_safetensors);
}

Result<WeightFile> parse_safetensors(std::span<const std::byte> image) {
  WeightFile weights(FileFormat::SafeTensors, {});
  if (Status added = add_safetensors(image, weights); !added.ok()) return added.error();
  return weights;
}

}  // namespace llorch::formats
