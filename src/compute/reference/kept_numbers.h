// What a cache of keys or values holds, number by number. Private to the reference.
#pragma once

#include <cstdint>
#include <span>

#include "compute/input_form.h"
#include "tensor/tensor_view.h"

namespace llorch::compute {

// Element of a (blocks, kv_heads, block_tokens, head_dim) cache.
std::int64_t cache_index(const tensor::TensorView& cache, std::int64_t block, std::int64_t head,
                         std::int64_t offset, std::int64_t i);
// As attention multiplies with it.
double read_cache(const tensor::TensorView& cache, std::int64_t index, InputForm form);
// One head's values, from `index` on.
void write_cache(const tensor::TensorView& cache, std::int64_t index,
                 std::span<const float> values);

}  // namespace llorch::compute
