// The ops of compute/ops.h as kernel launches: each enqueues on the queue and returns. Arguments
// were checked and all memory is the queue's device's.
#pragma once

#include <cuda_runtime_api.h>

#include "compute/cuda/products.h"
#include "compute/cuda/queue.h"
#include "compute/input_form.h"
#include "compute/ops.h"

namespace llorch::compute::cuda {

// The limits of the kernels, for messages before they could matter.
inline constexpr std::int64_t kHeadDimMax = 1024;

void launch_embed(const EmbedArgs& args, PackedForm form, const void* plain, const Queue& queue);
// Backend::begin_rows in one kernel; false where there are more angles than it takes.
bool launch_begin_rows(const BeginRowsArgs& args, PackedForm form, const void* plain,
                       const Queue& queue);
// `picks`: row i of the result is of row picks[i] of x; or null.
void launch_layer_norm(const LayerNormArgs& args, const RoundedTarget& rounded, const Queue& queue,
                       const std::int32_t* picks = nullptr);
void launch_rms_norm(const RmsNormArgs& args, const RoundedTarget& rounded, const Queue& queue,
                     const std::int32_t* picks = nullptr);
// What Backend::logits begins with: the rows that want them, normed.
void launch_norm_of_picked(const LogitsArgs& args, const RoundedTarget& rounded,
                           const Queue& queue);
void launch_linear(const LinearTarget& target, const TensorView& x, const Queue& queue);
void launch_activation(const ActivationArgs& args, const RoundedTarget& rounded,
                       const Queue& queue);
void launch_rope_angles(const RopeAnglesArgs& args, const Queue& queue);
void launch_rope(const RopeArgs& args, const Queue& queue);
void launch_place_heads(const PlaceHeadsArgs& args, const Queue& queue);
void launch_write_kv(const WriteKvArgs& args, const Queue& queue);
// Any cache and head size, a block for each row and head.
void launch_attention(const AttentionArgs& args, const AttentionForm& form, const Queue& queue);
// Rounds rows for a product; columns beyond theirs become zero.
void launch_round_rows(const TensorView& x, const RoundedTarget& rounded, const Queue& queue);
void launch_gather_rows(const GatherRowsArgs& args, const Queue& queue);
void launch_softcap(const SoftcapArgs& args, const Queue& queue);
void launch_softmax(const SoftmaxArgs& args, const Queue& queue);
// `best`: a word for each row, zero before and after; `tickets` likewise.
void launch_argmax(const ArgmaxArgs& args, unsigned long long* best, int* tickets,
                   const Queue& queue);

// In whole words, few of them.
void launch_copy_words(const void* from, void* to, std::int64_t bytes, const Queue& queue);

// `workspace`: draw_bytes(rows) of draw_layout.h.
void launch_draw(const DrawArgs& args, void* workspace, const Queue& queue);

// Success when the current device can run what was compiled.
cudaError_t probe_kernels();

}  // namespace llorch::compute::cuda
