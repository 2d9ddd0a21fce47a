// Logit bias, masks and penalties where the logits are: the numbers that engine/sampler.cc computes
// on the host, bit for bit.
#include <algorithm>

#include "compute/cuda/found_ids.h"
#include "compute/cuda/launch.cuh"

namespace llorch::compute::cuda {
namespace {

constexpr int kWordsOfBlock = kBlockThreads / kWarpThreads;

struct Edited {
  float* x;  // (rows, dim)
  std::int64_t x_stride;
  int dim;
  const std::int32_t* rules;    // (rows, kEditWords)
  const std::int32_t* changes;  // (num_changes, kChangeWords)
  int num_changes;
  const std::uint32_t* masks;  // (num_masks, words)
  int num_masks;
  int words;
};

struct Rule {
  int first_change, num_changes, mask;
  float repetition, frequency, presence;

  __device__ static Rule at(const Edited& args, int row) {
    const std::int32_t* words = args.rules + row * kEditWords;
    const Rule rule{words[0],
                    words[1],
                    words[2],
                    __int_as_float(words[3]),
                    __int_as_float(words[4]),
                    __int_as_float(words[5])};
    require(rule.first_change >= 0 && rule.num_changes >= 0 &&
            rule.first_change + rule.num_changes <= args.num_changes && rule.mask < args.num_masks);
    return rule;
  }
};

__device__ bool may_follow(const Edited& args, const Rule& rule, int id) {
  if (rule.mask < 0) return true;
  const std::uint32_t word =
      args.masks[static_cast<std::int64_t>(rule.mask) * args.words + id / 32];
  return (word >> (id % 32) & 1U) != 0;
}

// A thread for each change of a row.
__global__ void change_kernel(Edited args) {
  after_previous();
  const int row = static_cast<int>(blockIdx.y);
  const Rule rule = Rule::at(args, row);
  const int i = static_cast<int>(blockIdx.x * kBlockThreads + threadIdx.x);
  if (i >= rule.num_changes) return;
  const std::int32_t* change =
      args.changes + static_cast<std::int64_t>(rule.first_change + i) * kChangeWords;
  const int id = change[0];
  const int count = change[2];
  require(id >= 0 && id < args.dim);
  float& value = args.x[row * args.x_stride + id];
  float x = __fadd_rn(value, __int_as_float(change[1]));
  if (!may_follow(args, rule, id) && x < INFINITY) x = -INFINITY;
  if (count >= 0) x = x > 0 ? __fdiv_rn(x, rule.repetition) : __fmul_rn(x, rule.repetition);
  if (count > 0) {
    const float taken = __fmul_rn(static_cast<float>(count), rule.frequency);
    x = __fsub_rn(x, __fadd_rn(taken, rule.presence));
  }
  value = x;
}

// A warp for each word of a row's mask. What was changed and may not follow is -infinity already,
// or stays.
__global__ void mask_kernel(Edited args) {
  after_previous();
  const int row = static_cast<int>(blockIdx.y);
  const Rule rule = Rule::at(args, row);
  const int id = static_cast<int>(blockIdx.x) * kWordsOfBlock * 32 + static_cast<int>(threadIdx.x);
  if (id >= args.dim || may_follow(args, rule, id)) return;
  float& value = args.x[row * args.x_stride + id];
  if (value < INFINITY) value = -INFINITY;
}

}  // namespace

void launch_edit_logits(const EditLogitsArgs& args, const Queue& queue) {
  const auto rows_of = [](const tensor::TensorView& view) {
    return view ? static_cast<int>(view.rows()) : 0;
  };
  const Edited edited{.x = static_cast<float*>(args.x.data),
                      .x_stride = args.x.row_stride,
                      .dim = static_cast<int>(args.x.dims[1]),
                      .rules = static_cast<const std::int32_t*>(args.rules.data),
                      .changes = static_cast<const std::int32_t*>(args.changes.data),
                      .num_changes = rows_of(args.changes),
                      .masks = static_cast<const std::uint32_t*>(args.masks.data),
                      .num_masks = rows_of(args.masks),
                      .words = static_cast<int>(mask_words(args.x.dims[1]))};
  const std::int64_t rows = args.x.rows();
  // No row has more changes than there are, nor than there are ids.
  const std::int64_t most = std::min<std::int64_t>(edited.num_changes, edited.dim);
  launch("edit logits", change_kernel, queue, (most + kBlockThreads - 1) / kBlockThreads, rows,
         kBlockThreads, edited);
  if (edited.num_masks == 0) return;
  launch("edit logits", mask_kernel, queue, (edited.words + kWordsOfBlock - 1) / kWordsOfBlock,
         rows, kBlockThreads, edited);
}

}  // namespace llorch::compute::cuda
