// Weights to float32, exactly as each format defines it: the same operations in the same order, so
// that every bit agrees with the format's reference. The oracle for every faster kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "tensor/dtype.h"

namespace llorch::compute {

bool can_dequantize(tensor::DType dtype);

// Writes out.size() values from the blocks that hold exactly that many. A type we cannot decode is
// Unsupported
// ("not supported: Q8_K"); sizes that do not fit together are InvalidArgument. Little-endian
// input; any alignment.
Status dequantize(tensor::DType dtype, std::span<const std::byte> blocks, std::span<float> out);

// The same without checks, for the inside of a loop: decodes num_blocks blocks. Null where
// !can_dequantize.
using BlockDecoder = void (*)(const std::uint8_t* blocks, std::int64_t num_blocks, float* out);
BlockDecoder block_decoder(tensor::DType dtype);

}  // namespace llorch::compute
