#include "formats/weight_file.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <utility>

#include "base/enum_names.h"
#include "base/utf8.h"

namespace llorch::formats {

std::string_view name(FileFormat format) {
  static constexpr base::EnumNames<FileFormat::PyTorch> kNames("GGUF", "SafeTensors", "PyTorch");
  return kNames[format];
}

void WeightFile::keep(std::shared_ptr<const base::MappedFile> file) {
  file_bytes_ += static_cast<std::int64_t>(file->bytes().size());
  files_.push_back(std::move(file));
}

void WeightFile::count_borrowed(std::span<const std::byte> image) {
  file_bytes_ += static_cast<std::int64_t>(image.size());
}

const base::MappedFile* WeightFile::file_of(std::span<const std::byte> bytes) const {
  for (const std::shared_ptr<const base::MappedFile>& file : files_) {
    if (file->holds(bytes)) return file.get();
  }
  return nullptr;
}

void WeightFile::forget(std::span<const std::byte> bytes) const {
  for (const std::shared_ptr<const base::MappedFile>& file : files_) file->forget(bytes);
  const bool is_inside =
      !bytes.empty() && bytes.data() >= program_image_.data() &&
      bytes.data() + bytes.size() <= program_image_.data() + program_image_.size();
  if (is_inside) base::forget_pages(bytes);
}

Status WeightFile::add_tensor(WeightTensor tensor) {
  if (!index_.try_emplace(tensor.name, tensors_.size()).second) {
    return Error{ErrorCode::Corrupt,
                 fmt::format("tensor {} appears twice", base::quoted(tensor.name))};
  }
  tensors_.push_back(std::move(tensor));
  return ok_status();
}

const WeightTensor* WeightFile::find(std::string_view name) const {
  const auto at = index_.find(name);
  return at == index_.end() ? nullptr : &tensors_[at->second];
}

std::vector<std::byte> gather_contiguous(const WeightTensor& tensor) {
  if (tensor.strides.empty()) return {tensor.bytes.begin(), tensor.bytes.end()};
  const tensor::Shape& shape = tensor.shape;
  CHECK(tensor.strides.size() == static_cast<std::size_t>(shape.rank()) &&
            !tensor::is_block_type(tensor.dtype),
        "strides need one step per axis and a plain element type");
  const std::size_t element_bytes =
      static_cast<std::size_t>(tensor::info(tensor.dtype).block_bytes);
  std::vector<std::byte> out(static_cast<std::size_t>(shape.elements()) * element_bytes);
  std::array<std::int64_t, tensor::Shape::kRankMax> index{};
  std::int64_t source = 0;  // in elements
  for (std::size_t at = 0; at < out.size(); at += element_bytes) {
    const std::size_t from = static_cast<std::size_t>(source) * element_bytes;
    CHECK(source >= 0 && from + element_bytes <= tensor.bytes.size(),
          "strides reach outside the bytes");
    std::memcpy(out.data() + at, tensor.bytes.data() + from, element_bytes);
    // Step like an odometer: the last axis first, each full turn moves the axis before it.
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      const auto slot = static_cast<std::size_t>(axis);
      source += tensor.strides[slot];
      if (++index[slot] < shape[axis]) break;
      source -= tensor.strides[slot] * shape[axis];
      index[slot] = 0;
    }
  }
  return out;
}

}  // namespace llorch::formats
