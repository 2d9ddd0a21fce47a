#include "formats/gguf_format.h"

#include <fmt/format.h>

#include <optional>

#include "base/utf8.h"

namespace llorch::formats::gguf {
namespace {

Status check_name(std::string_view what, std::string_view name, std::size_t bytes_max) {
  if (name.empty()) return Error{ErrorCode::Corrupt, fmt::format("an empty {}", what)};
  if (name.size() > bytes_max) {
    return Error{ErrorCode::Corrupt,
                 fmt::format("{} {}… has {} bytes; the format allows {}", what,
                             base::quoted(name.substr(0, 32)), name.size(), bytes_max)};
  }
  if (!base::is_valid_utf8(name)) {
    return Error{ErrorCode::Corrupt,
                 fmt::format("{} {} is not valid UTF-8", what, base::quoted(name))};
  }
  return ok_status();
}

}  // namespace

Status check_key(std::string_view key) {
  return check_name("key", key, kKeyBytesMax);
}

Status check_tensor_name(std::string_view name) {
  return check_name("tensor name", name, kTensorNameBytesMax);
}

Result<std::int64_t> tensor_bytes(tensor::DType dtype, const tensor::Shape& shape) {
  if (shape.rank() < 1 || shape.rank() > static_cast<int>(kRankMax)) {
    return Error{ErrorCode::Corrupt,
                 fmt::format("shape {} has {} dimensions; the format allows 1 to {}",
                             shape.to_string(), shape.rank(), kRankMax)};
  }
  const std::int64_t row = shape[shape.rank() - 1];
  const std::int32_t block = tensor::info(dtype).block_elems;
  if (row % block != 0) {
    return Error{
        ErrorCode::Corrupt,
        fmt::format("rows of {} elements are not whole blocks of {}, which has {} per block", row,
                    tensor::name(dtype), block)};
  }
  const std::optional<std::int64_t> bytes = tensor::storage_bytes(dtype, shape.elements());
  if (!bytes) {
    return Error{ErrorCode::Corrupt, fmt::format("shape {} of {} has more than 2^63 bytes",
                                                 shape.to_string(), tensor::name(dtype))};
  }
  return *bytes;
}

}  // namespace llorch::formats::gguf
