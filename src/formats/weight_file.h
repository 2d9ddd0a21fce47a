// A model's weights as its files hold them: facts (metadata) and named tensors that are views over
// mapped memory. The same type whatever the format; the readers fill it, everybody else only looks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "formats/metadata.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace llorch::formats {

enum class FileFormat : std::uint8_t { Gguf, SafeTensors, PyTorch };
std::string_view name(FileFormat format);

struct WeightTensor {
  std::string name;
  tensor::DType dtype = tensor::DType::F32;
  tensor::Shape shape;  // slowest dimension first, row-major: GGUF's order reversed
  std::span<const std::byte>
      bytes;  // mapped; exactly the tensor when contiguous, else what strides reach
  // Elements between neighbours along each axis; empty when contiguous (always, except for PyTorch
  // views).
  std::vector<std::int64_t> strides;
};

class WeightFile {
 public:
  WeightFile(FileFormat format, std::filesystem::path path)
      : format_(format), path_(std::move(path)) {}

  // Filling, by readers only. add_tensor refuses a name that is already there.
  void keep(std::shared_ptr<const base::MappedFile> file);
  // The same for an image that its owner keeps longer than this object lives.
  void count_borrowed(std::span<const std::byte> image);
  Status add_tensor(WeightTensor tensor);
  Metadata& mutable_metadata() { return metadata_; }

  FileFormat format() const { return format_; }
  const std::filesystem::path& path() const { return path_; }  // what the user named
  const Metadata& metadata() const { return metadata_; }
  std::span<const WeightTensor> tensors() const { return tensors_; }  // in file order
  const WeightTensor* find(std::string_view name) const;              // null when absent
  std::int64_t file_bytes() const { return file_bytes_; }  // all files (or images) together
  std::span<const std::shared_ptr<const base::MappedFile>> files() const { return files_; }
  // The file that these bytes are mapped from; null where they are none's.
  const base::MappedFile* file_of(std::span<const std::byte> bytes) const;
  // Gives pages of a mapped file back once a tensor's bytes were copied; see MappedFile::forget.
  // Borrowed images stay as they are, unless they lie in the program's own file.
  void forget(std::span<const std::byte> bytes) const;
  void lies_in_program(std::span<const std::byte> image) { program_image_ = image; }

 private:
  struct NameHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>{}(text);
    }
  };

  FileFormat format_;
  std::filesystem::path path_;
  std::vector<std::shared_ptr<const base::MappedFile>> files_;
  std::span<const std::byte> program_image_;
  std::int64_t file_bytes_ = 0;
  Metadata metadata_;
  std::vector<WeightTensor> tensors_;
  std::unordered_map<std::string, std::size_t, NameHash, std::equal_to<>> index_;
};

// The elements of a tensor in row-major order: its bytes when contiguous, a gathered copy
// otherwise.
std::vector<std::byte> gather_contiguous(const WeightTensor& tensor);

}  // namespace llorch::formats
