#include "model/kv_storage.h"

#include <fmt/format.h>

#include <cstddef>

namespace llorch::model {

Result<std::int64_t> KvStorage::block_bytes(const ModelConfig& config, std::int32_t block_tokens,
                                            tensor::DType dtype) {
  using tensor::DType;
  CHECK(dtype == DType::F32 || dtype == DType::F16 || dtype == DType::Q8_0);
  CHECK(block_tokens > 0);
  const tensor::DTypeInfo& type = tensor::info(dtype);
  if (config.head_dim % type.block_elems != 0) {
    return Error{ErrorCode::Unsupported,
                 fmt::format("a key/value cache of {} needs heads of a multiple of {} values, this "
                             "model's have {}; take f16",
                             type.name, type.block_elems, config.head_dim)};
  }
  const std::int64_t elems = std::int64_t{block_tokens} * config.kv_width();
  return 2 * config.num_layers * (elems / type.block_elems * type.block_bytes);
}

Result<KvStorage> KvStorage::allocate(const ModelConfig& config, std::int32_t num_blocks,
                                      std::int32_t block_tokens, tensor::DType dtype,
                                      compute::Backend& backend) {
  CHECK(num_blocks > 0);
  const Result<std::int64_t> of_block = block_bytes(config, block_tokens, dtype);
  if (!of_block.ok()) return of_block.error();
  const std::int64_t bytes = *of_block * num_blocks;
  const std::int64_t side_bytes = bytes / config.num_layers / 2;
  Result<compute::Buffer> buffer = backend.allocate(bytes);
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
