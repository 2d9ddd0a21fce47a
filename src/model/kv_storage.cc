#include "model/kv_storage.h"

#include <cstddef>

namespace llorch::model {

Result<KvStorage> KvStorage::allocate(const ModelConfig& config, std::int32_t num_blocks,
                                      std::int32_t block_tokens, tensor::DType dtype,
                                      compute::Backend& backend) {
  CHECK(dtype == tensor::DType::F32 || dtype == tensor::DType::F16);
  CHECK(num_blocks > 0 && block_tokens > 0);
  const std::int64_t side_elems = std::int64_t{num_blocks} * block_tokens * config.kv_width();
  const std::int64_t side_bytes = side_elems * tensor::info(dtype).block_bytes;
  Result<compute::Buffer> buffer = backend.allocate(2 * side_bytes * config.num_layers);
  if (!buffer.ok()) return buffer.error().in("key/value cache");

  KvStorage storage(buffer.take(), num_blocks, block_tokens);
  auto* next = static_cast<std::byte*>(storage.buffer_.data());
  const auto take_side = [&] {
    const compute::TensorView view(
        next, dtype, {num_blocks, config.num_kv_heads, block_tokens, config.head_dim});
    next += side_bytes;
    return view;
  };
  for (std::int32_t layer = 0; layer < config.num_layers; ++layer) {
    const compute::TensorView keys = take_side();
    storage.layers_.push_back({keys, take_side()});
  }
  return storage;
}

}  // namespace llorch::model
