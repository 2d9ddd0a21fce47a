// How the attention of a step is cut into tasks for threads. A query's bits follow from its own
// position alone, so every cut gives the same.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compute/runs.h"

namespace llorch::compute {

struct AttentionShape {
  std::int64_t kv_heads = 0;
  std::int64_t group = 0;  // query heads to each
  std::int64_t head_dim = 0;
  std::int64_t window = 0;
  bool tells_scores = false;
};

// Rows of one sequence, and key heads with their query heads, or a part of those of one.
struct AttentionTask {
  std::int64_t sequence, first_row, rows, first_position;
  std::int64_t first_head, kv_heads, heads;
  // Of one row, for a task that is for some chunks of keys alone: where it puts what it has of
  // them (kernels.h, AttendTile).
  float* parts = nullptr;
  std::int64_t part_stride = 0, first_chunk = 0, num_chunks = 0;
};

// A row whose chunks are tasks of their own: to be joined when all of them are done.
struct AttentionJoin {
  std::int64_t row;
  float* parts;
  std::int64_t part_stride, chunks;
};

struct AttentionPlan {
  std::vector<AttentionTask> tasks;
  std::vector<AttentionJoin> joins;
};

// Rows of a prompt share the keys that they see, and so do the heads of a group. A single row takes
// all key heads at once, since the cache is then read as it lies, and long ones are cut into chunks
// where that gives every thread something to do; as far as `room` goes. Where there is too little
// for all threads, key heads and then groups are taken apart.
void plan_attention(const AttentionShape& shape, std::span<const SequenceRun> runs, int threads,
                    std::span<float> room, AttentionPlan& plan);

// The room that it may want: for one row of the longest context, or for more within two MiB.
// `inputs` is the widest row that a product takes.
std::int64_t attention_room(std::int64_t context, std::int64_t inputs, int threads);

}  // namespace llorch::compute
