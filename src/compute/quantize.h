// Float32 to the stored types: the inverse of dequantize.h. Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0 round
// exactly as the format's reference does; Q4_K, Q5_K and Q6_K leave the choice of scales to the
// writer, and ours searches for the least squared error.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"
#include "tensor/dtype.h"

namespace llorch::compute {

// Fills `blocks` with the blocks that hold `values`. The same values give the same bytes on every
// machine. NaN, infinity and values beyond the reach of the type are InvalidArgument and say which
// value; sizes that do not fit together are InvalidArgument. For F32, F16, BF16, Q8_0, Q4_0, Q4_1,
// Q5_0, Q5_1, Q4_K, Q5_K and Q6_K; other types are Unsupported.
Status quantize(tensor::DType dtype, std::span<const float> values, std::span<std::byte> blocks);

}  // namespace llorch::compute
