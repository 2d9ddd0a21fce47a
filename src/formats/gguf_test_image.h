// GGUF images made field by field, so that tests can lie in any of them. For well-formed files use
// GgufWriter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace llorch::formats {

class TestImage {
 public:
  TestImage(std::uint64_t num_tensors, std::uint64_t num_keys, std::uint32_t version = 3) {
    raw("GGUF").u32(version).u64(num_tensors).u64(num_keys);
  }

  TestImage& raw(std::string_view bytes) { return append(std::as_bytes(std::span(bytes))); }
  TestImage& u8(std::uint8_t value) { return number(value); }
  TestImage& u32(std::uint32_t value) { return number(value); }
  TestImage& u64(std::uint64_t value) { return number(value); }
  TestImage& text(std::string_view value) { return u64(value.size()).raw(value); }
  // A tensor record; dims fastest first, as stored.
  TestImage& tensor(std::string_view name, const std::vector<std::uint64_t>& dims,
                    std::uint32_t type, std::uint64_t offset) {
    text(name).u32(static_cast<std::uint32_t>(dims.size()));
    for (const std::uint64_t dim : dims) u64(dim);
    return u32(type).u64(offset);
  }
  // Zeros up to the next multiple, then `count` bytes of data.
  TestImage& data(std::size_t count, std::size_t alignment = 32) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment);
    bytes_.resize(bytes_.size() + count, std::byte{0xAB});
    return *this;
  }

  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  template <class T>
  TestImage& number(T value) {
    return append(std::as_bytes(std::span(&value, 1)));
  }
  TestImage& append(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }

  std::vector<std::byte> bytes_;
};

}  // namespace llorch::formats
