#include "compute/cache_blocks.h"

#include <cstdint>
#include <cstring>

#include "compute/quantize.h"

namespace llorch::compute {
namespace {

const tensor::DTypeInfo& type() {
  return tensor::info(tensor::DType::Q8_0);
}

void store_nan(std::byte* block) {
  constexpr std::uint16_t kNan = 0x7E00U;
  std::memset(block, 0, static_cast<std::size_t>(type().block_bytes));
  std::memcpy(block, &kNan, sizeof(kNan));
}

}  // namespace

void store_q8_0(std::span<const float> values, std::byte* blocks) {
  const auto elems = static_cast<std::size_t>(type().block_elems);
  const auto bytes = static_cast<std::size_t>(type().block_bytes);
  const std::size_t count = values.size() / elems;
  if (quantize(tensor::DType::Q8_0, values, {blocks, count * bytes}).ok()) return;
  for (std::size_t i = 0; i < count; ++i) {
    std::byte* block = blocks + i * bytes;
    const std::span<const float> part = values.subspan(i * elems, elems);
    if (!quantize(tensor::DType::Q8_0, part, {block, bytes}).ok()) store_nan(block);
  }
}

}  // namespace llorch::compute
