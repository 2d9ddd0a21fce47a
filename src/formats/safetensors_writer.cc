#include "formats/safetensors_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"

namespace llorch::formats {
namespace {

constexpr std::size_t kHeaderAlignment = 8;

Status check(std::span<const WeightTensor> tensors) {
  for (const WeightTensor& tensor : tensors) {
    if (tensor::is_block_type(tensor.dtype)) {
      return Error{
          ErrorCode::Unsupported,
          fmt::format("tensor {} is {}, a type that SafeTensors lacks; dequantise it first",
                      base::quoted(tensor.name), tensor::name(tensor.dtype))};
    }
    if (tensor.name == "__metadata__") {
      return Error{ErrorCode::InvalidArgument,
                   "a tensor may not be named __metadata__ in SafeTensors"};
    }
  }
  return ok_status();
}

std::vector<const WeightTensor*> widest_first(std::span<const WeightTensor> tensors) {
  std::vector<const WeightTensor*> order;
  for (const WeightTensor& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(), [](const WeightTensor* a, const WeightTensor* b) {
    return tensor::info(a->dtype).block_bytes > tensor::info(b->dtype).block_bytes;
  });
  return order;
}

Result<json::Object> make_header(std::span<const WeightTensor* const> order,
                                 const std::map<std::string, std::string>& metadata) {
  json::Object header;
  if (!metadata.empty()) {
    json::Object texts;
    for (const auto& [key, text] : metadata) texts[key] = text;
    header["__metadata__"] = std::move(texts);
  }
  std::int64_t offset = 0;
  for (const WeightTensor* tensor : order) {
    const std::int64_t bytes =
        tensor::storage_bytes(tensor->dtype, tensor->shape.elements()).value_or(0);
    json::Array dims;
    for (const std::int64_t dim : tensor->shape.dims()) dims.emplace_back(dim);
    const std::string_view dtype = tensor::name(tensor->dtype);
    json::Object entry{{"dtype", json::Value(dtype)},
                       {"shape", std::move(dims)},
                       {"data_offsets", json::Array{offset, offset + bytes}}};
    if (!header.emplace(tensor->name, std::move(entry)).second) {
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("tensor {} occurs twice", base::quoted(tensor->name))};
    }
    offset += bytes;
  }
  return header;
}

}  // namespace

Status write_safetensors(const std::filesystem::path& path, std::span<const WeightTensor> tensors,
                         const std::map<std::string, std::string>& metadata) {
  if (Status sound = check(tensors); !sound.ok()) return sound;
  const std::vector<const WeightTensor*> order = widest_first(tensors);
  Result<json::Object> header = make_header(order, metadata);
  if (!header.ok()) return header.error();
  std::string text = json::serialize(header.take());
  text.resize((text.size() + kHeaderAlignment - 1) / kHeaderAlignment * kHeaderAlignment, ' ');

  const std::uint64_t length = text.size();
  Result<std::unique_ptr<base::AtomicFile>> file =
      base::AtomicFile::create(path, base::FileAccess::Everybody);
  if (!file.ok()) return file.error();
  if (Status written = (*file)->write(std::as_bytes(std::span(&length, 1))); !written.ok())
    return written;
  if (Status written = (*file)->write(std::as_bytes(std::span(text))); !written.ok())
    return written;
  for (const WeightTensor* tensor : order) {
    const Status written = tensor->strides.empty() ? (*file)->write(tensor->bytes)
                                                   : (*file)->write(gather_contiguous(*tensor));
    if (!written.ok()) return written;
  }
  return (*file)->commit();
}

}  // namespace llorch::formats
