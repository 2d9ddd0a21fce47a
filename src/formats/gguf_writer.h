// Metadata and tensors → a GGUF version 3 file. Hides the byte layout; tensors are streamed, one at
// a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/metadata.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace llorch::formats {

struct GgufTensor {
  using Sink = std::function<Status(std::span<const std::byte>)>;

  std::string name;
  tensor::DType dtype = tensor::DType::F32;
  tensor::Shape shape;  // slowest dimension first, as everywhere
  // The content: `bytes`, which must live until write() returns, or, where that is too much to hold
  // at once, `produce`, which passes it to the sink in pieces and stops at the sink's first error.
  std::span<const std::byte> bytes;
  std::function<Status(const Sink& sink)> produce;
};

// Collects what goes into a file, in order, then writes it. What the format does not allow (names,
// shapes, types, a key twice) is reported by write().
class GgufWriter {
 public:
  // Alignment of tensor data, a power of two; one other than 32 is also stored as
  // "general.alignment".
  explicit GgufWriter(std::uint32_t alignment = 32) : alignment_(alignment) {}

  // T is a fixed-width integer, float, double or bool, and decides the stored type.
  template <class T>
  void add_number(std::string_view key, T value);
  template <class T>
  void add_numbers(std::string_view key, std::span<const T> values);
  void add_text(std::string_view key, std::string_view value);
  void add_array(std::string_view key,
                 const ArrayView& array);  // copied as it is, from another file
  // A value of another file's metadata, or one made for this file. Numbers are stored as `stored`
  // says; without it as U32, I32 and F32, or U64 and I64 where those are too narrow.
  void add_value(std::string_view key, const Value& value,
                 std::optional<ElementType> stored = std::nullopt);
  void add_tensor(GgufTensor tensor);

  // The file appears whole under `path` or not at all.
  Status write(const std::filesystem::path& path) const;

 private:
  struct Entry {
    std::string key;
    std::vector<std::byte> value;  // type and content as stored
  };
  struct Header {
    std::vector<std::byte> bytes;  // everything before the data, without its padding
    std::vector<std::uint64_t> tensor_bytes;
  };
  Result<Header> make_header() const;

  std::uint32_t alignment_;
  std::vector<Entry> entries_;
  std::vector<GgufTensor> tensors_;
};

}  // namespace llorch::formats
