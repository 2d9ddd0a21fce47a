// Buffer: device memory that owns itself. Weight: a matrix in the form a backend wants it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "tensor/dtype.h"

namespace llorch::base {
class MappedFile;
}

namespace llorch::compute {

// Move-only owner of device memory.
class Buffer {
 public:
  using Free = void (*)(void*);

  Buffer() = default;
  Buffer(void* data, std::int64_t bytes, Free free) : data_(data), bytes_(bytes), free_(free) {}
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        free_(other.free_) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(free_, other.free_);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (data_ != nullptr) free_(data_);
  }

  void* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
  Free free_ = nullptr;
};

// What ops will do with a matrix: a backend repacks what is multiplied, and may keep a tied table
// twice or look it up in the packed form, as it likes.
enum class WeightUse : std::uint8_t {
  Multiply,  // linear
  LookUp,    // embed
  Both,      // a token embedding that is the output matrix too
};

// A matrix in host memory on its way to a backend. Strides in elements; a block type has col_stride
// 1 and whole blocks per row. Conv1D weights, stored (in, out), come with row_stride 1 and
// col_stride out.
struct WeightSource {
  std::string_view name;  // for messages
  tensor::DType dtype = tensor::DType::F32;
  std::int64_t rows = 0;  // n: outputs
  std::int64_t cols = 0;  // k: inputs
  std::int64_t row_stride = 0;
  std::int64_t col_stride = 1;
  WeightUse use = WeightUse::Multiply;
  std::span<const std::byte> bytes;  // outlives the Weight: a backend may keep pointing into it
  const base::MappedFile* file = nullptr;  // that the bytes are mapped from, or null
};

// Made by Backend::load_weight, given back to the same backend's ops; opaque to everybody else.
struct Weight {
  tensor::DType dtype = tensor::DType::F32;
  WeightUse use = WeightUse::Multiply;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const void* data = nullptr;  // in `storage`, or in the mapped file
  Buffer storage;              // empty when the file's own bytes serve
};

}  // namespace llorch::compute
