// What the backends that live in host memory share: buffers, and taking a weight matrix in.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "compute/weight.h"

namespace llorch::compute {

// Zeroed, aligned to a cache line, in large pages where it is large: a cache is read all over.
Result<Buffer> allocate_host(std::int64_t bytes);

// Large pages where the system has them, for what is read again and again; not zeroed, and taken
// when it is first written.
Result<Buffer> allocate_host_pages(std::int64_t bytes);

// How load_host_weight would keep a matrix. Fails as it does.
struct HostPlacement {
  bool in_place = false;   // the source's own bytes serve
  std::int64_t bytes = 0;  // of the matrix, rows contiguous
};
Result<HostPlacement> place_host_weight(const WeightSource& source);

// The matrix with its own dtype, rows contiguous as a GGUF file stores them: the source's bytes
// themselves when they already are that, aligned for their element type, else a gathered copy.
// Fails naming the tensor when we have no decoder for its type or when its bytes do not hold what
// shape and strides say.
Result<Weight> load_host_weight(const WeightSource& source);

// Bytes from one row of such a weight to the next.
std::int64_t row_bytes(const Weight& weight);

}  // namespace llorch::compute
