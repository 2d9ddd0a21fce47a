// Writing a key/value cache of Q8_0 in host memory. Private to compute/.
#pragma once

#include <cstddef>
#include <span>

namespace llorch::compute {

// The values as Q8_0 blocks, rounded as compute/quantize does it. Ops do not fail: a block that the
// type cannot hold (infinity, NaN, beyond its reach) is stored as NaN throughout, so that whoever
// attends to it sees NaN, as with the other types.
void store_q8_0(std::span<const float> values, std::byte* blocks);

}  // namespace llorch::compute
