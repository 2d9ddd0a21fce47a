// The ops of compute/ops.h as kernel launches: each enqueues on the stream and returns. Arguments
// were checked and all memory is the stream's device's.
#pragma once

#include <cuda_runtime_api.h>

#include "compute/ops.h"

namespace llorch::compute::cuda {

// The limits of the kernels, for messages before they could matter.
inline constexpr std::int64_t kHeadDimMax = 1024;

void launch_embed(const EmbedArgs& args, cudaStream_t stream);
void launch_layer_norm(const LayerNormArgs& args, cudaStream_t stream);
void launch_rms_norm(const RmsNormArgs& args, cudaStream_t stream);
void launch_linear(const LinearTarget& target, const TensorView& x, cudaStream_t stream);
void launch_activation(const ActivationArgs& args, cudaStream_t stream);
void launch_rope_angles(const RopeAnglesArgs& args, cudaStream_t stream);
void launch_rope(const RopeArgs& args, cudaStream_t stream);
void launch_write_kv(const WriteKvArgs& args, cudaStream_t stream);
void launch_attention(const AttentionArgs& args, cudaStream_t stream);
void launch_gather_rows(const GatherRowsArgs& args, cudaStream_t stream);
void launch_softcap(const SoftcapArgs& args, cudaStream_t stream);
void launch_softmax(const SoftmaxArgs& args, cudaStream_t stream);
void launch_argmax(const ArgmaxArgs& args, cudaStream_t stream);

// Success when the current device can run what was compiled.
cudaError_t probe_kernels();

}  // namespace llorch::compute::cuda
