// The device memory behind cache blocks: keys and values of every layer. Owned by whoever runs the
// model and handed to the forward pass; which block belongs to whom is bookkeeping elsewhere.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "compute/backend.h"
#include "model/config.h"

namespace llorch::model {

class KvStorage {
 public:
  // Bytes of one block in all layers, keys and values. Q8_0 keeps 32 values together and refuses
  // heads that are not whole blocks of them (Unsupported).
  static Result<std::int64_t> block_bytes(const ModelConfig& config, std::int32_t block_tokens,
                                          tensor::DType dtype);
  // dtype: F32, F16 or Q8_0.
  static Result<KvStorage> allocate(const ModelConfig& config, std::int32_t num_blocks,
                                    std::int32_t block_tokens, tensor::DType dtype,
                                    compute::Backend& backend);

  const compute::KvLayer& layer(std::int32_t index) const {
    return layers_[static_cast<std::size_t>(index)];
  }
  std::int32_t num_blocks() const { return num_blocks_; }
  std::int32_t block_tokens() const { return block_tokens_; }
  std::int64_t bytes() const { return buffer_.bytes(); }
  const compute::Buffer& buffer() const { return buffer_; }

 private:
  KvStorage(compute::Buffer buffer, std::int32_t num_blocks, std::int32_t block_tokens)
      : buffer_(std::move(buffer)), num_blocks_(num_blocks), block_tokens_(block_tokens) {}

  compute::Buffer buffer_;
  std::int32_t num_blocks_;
  std::int32_t block_tokens_;
  std::vector<compute::KvLayer> layers_;
};

}  // namespace llorch::model
