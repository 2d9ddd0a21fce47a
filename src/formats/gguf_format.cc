#include "formats/gguf_format.h"

#include <fmt/format.h>

#include <optional>

namespace llorch::formats::gguf {
namespace {

// Length of the UTF-8 sequence at the start of `text`, 0 when it is none (overlong, surrogate, cut
// short).
std::size_t sequence_bytes(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  if (lead == 0xE0 && byte(1) < 0xA0) return 0;  // overlong
  if (lead == 0xED && byte(1) > 0x9F) return 0;  // surrogate
  if (lead == 0xF0 && byte(1) < 0x90) return 0;  // overlong
  if (lead == 0xF4 && byte(1) > 0x8F) return 0;  // beyond U+10FFFF
  return length;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = sequence_bytes(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

Status check_name(std::string_view what, std::string_view name, std::size_t bytes_max) {
  if (name.empty()) return Error{ErrorCode::Corrupt, fmt::format("an empty {}", what)};
  if (name.size() > bytes_max) {
    return Error{ErrorCode::Corrupt, fmt::format("{} {:?}… has {} bytes; the format allows {}",
                                                 what, name.substr(0, 32), name.size(), bytes_max)};
  }
  if (!is_utf8(name)) {
    return Error{ErrorCode::Corrupt, fmt::format("{} {:?} is not valid UTF-8", what, name)};
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
