// Tests only: tensors → one SafeTensors file.
#pragma once

#include <algorithm>
#include <deque>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "formats/weight_file.h"

namespace llorch::formats {

// Wider element types come first, so that every tensor is aligned to its type; strided ones are
// gathered.
inline void write_safetensors(const std::filesystem::path& path, std::vector<WeightTensor> tensors,
                              const std::map<std::string, std::string>& metadata = {}) {
  std::ranges::stable_sort(tensors, std::ranges::greater(), [](const WeightTensor& tensor) {
    return tensor::info(tensor.dtype).block_bytes;
  });
  json::Object header;
  if (!metadata.empty()) {
    json::Object texts;
    for (const auto& [key, text] : metadata) texts[key] = text;
    header["__metadata__"] = std::move(texts);
  }
  std::int64_t offset = 0;
  for (const WeightTensor& tensor : tensors) {
    json::Array dims;
    for (const std::int64_t dim : tensor.shape.dims()) dims.emplace_back(dim);
    const std::int64_t end =
        offset + tensor::storage_bytes(tensor.dtype, tensor.shape.elements()).value_or(0);
    header[tensor.name] = json::Object{{"dtype", json::Value(tensor::name(tensor.dtype))},
                                       {"shape", std::move(dims)},
                                       {"data_offsets", json::Array{offset, end}}};
    offset = end;
  }
  std::string text = json::serialize(std::move(header));
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  const auto file = base::AtomicFile::create(path, base::FileAccess::Everybody);
  CHECK(file.ok(), file.error().message);
  const auto write = [&file](std::span<const std::byte> bytes) {
    const Status written = (*file)->write(bytes);
    CHECK(written.ok(), written.error().message);
  };
  write(std::as_bytes(std::span(&length, 1)));
  write(std::as_bytes(std::span(text)));
  for (const WeightTensor& tensor : tensors) write(gather_contiguous(tensor));
  const Status done = (*file)->commit();
  CHECK(done.ok(), done.error().message);
}

// Tensors of floats that live as long as this.
class TestTensors {
 public:
  // Zeros, to be filled in.
  std::vector<float>& add(std::string name, const tensor::Shape& shape) {
    std::vector<float>& values = values_.emplace_back(static_cast<std::size_t>(shape.elements()));
    WeightTensor& tensor = tensors_.emplace_back();
    tensor.name = std::move(name);
    tensor.shape = shape;
    tensor.bytes = std::as_bytes(std::span(values));
    return values;
  }
  std::vector<float>& last() { return values_.back(); }
  const std::vector<WeightTensor>& all() const { return tensors_; }

 private:
  std::deque<std::vector<float>> values_;
  std::vector<WeightTensor> tensors_;
};

}  // namespace llorch::formats
