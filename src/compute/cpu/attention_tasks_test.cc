#include "compute/cpu/attention_tasks.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

#include "compute/cpu/kernels.h"

namespace llorch::compute {
namespace {

constexpr std::int64_t kDim = 64;

struct Planned {
  std::vector<float> room;
  AttentionPlan plan;
};

Planned plan(const AttentionShape& shape, const std::vector<SequenceRun>& runs, int threads,
             std::int64_t context = 16384) {
  Planned planned;
  const std::int64_t inputs = 2 * shape.kv_heads * shape.group * shape.head_dim;
  planned.room.resize(static_cast<std::size_t>(attention_room(context, inputs, threads)));
  plan_attention(shape, runs, threads, planned.room, planned.plan);
  return planned;
}

// Every row, head and chunk is in one task, or in a task that has them all; parts do not meet.
void expect_whole(const AttentionShape& shape, const std::vector<SequenceRun>& runs,
                  const Planned& planned) {
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> chunks;  // of (row, head)
  std::map<const float*, int> places;
  for (const AttentionTask& task : planned.plan.tasks) {
    EXPECT_TRUE(task.rows == 1 || task.kv_heads == 1);
    EXPECT_LE(task.rows * task.kv_heads * task.heads, kQueryTile);
    EXPECT_TRUE(task.kv_heads == 1 || task.heads == shape.group);
    for (std::int64_t row = 0; row < task.rows; ++row) {
      for (std::int64_t head = 0; head < task.kv_heads * task.heads; ++head) {
        auto& seen = chunks[{task.first_row + row, task.first_head + head}];
        if (task.parts == nullptr) {
          EXPECT_EQ(seen, 0);
          seen = -1;
          continue;
        }
        seen += task.num_chunks;
        for (std::int64_t chunk = 0; chunk < task.num_chunks; ++chunk) {
          const float* place =
              task.parts + chunk * task.part_stride + head * part_floats(shape.head_dim);
          EXPECT_EQ(places[place]++, 0);
          EXPECT_GE(place, planned.room.data());
          EXPECT_LE(place + part_floats(shape.head_dim), planned.room.data() + planned.room.size());
        }
      }
    }
  }
  std::map<std::int64_t, std::int64_t> joined;
  for (const AttentionJoin& join : planned.plan.joins) joined[join.row] = join.chunks;
  for (const SequenceRun& run : runs) {
    for (std::int64_t row = run.first_row; row < run.first_row + run.rows; ++row) {
      for (std::int64_t head = 0; head < shape.kv_heads * shape.group; ++head) {
        const std::int64_t expected = joined.contains(row) ? joined[row] : -1;
        EXPECT_EQ((chunks[{row, head}]), expected) << "row " << row << ", head " << head;
      }
    }
  }
}

TEST(AttentionTasks, CoverEveryRowHeadAndChunkOnce) {
  for (const auto& [kv_heads, group] :
       {std::pair{2, 7}, {1, 8}, {1, 1}, {12, 1}, {3, 3}, {8, 8}, {1, 70}, {32, 4}}) {
    for (const std::int64_t window : {0, 700}) {
      for (const int threads : {1, 2, 3, 5, 8, 64}) {
        const AttentionShape shape = {kv_heads, group, kDim, window, false};
        const std::vector<std::vector<SequenceRun>> steps = {
            {{0, 0, 1, 4095}},
            {{0, 0, 1, 16000}, {1, 1, 1, 5}, {2, 2, 1, 255}},
            {{0, 0, 100, 300}, {1, 100, 1, 9000}},
            {{0, 0, 1, 2000}, {1, 1, 1, 2000}, {2, 2, 1, 2000}, {3, 3, 1, 2000}}};
        for (const auto& runs : steps) expect_whole(shape, runs, plan(shape, runs, threads));
      }
    }
  }
}

TEST(AttentionTasks, OneLongSequenceIsSharedByAllThreads) {
  const AttentionShape one_head = {1, 8, kDim, 0, false};
  for (const int threads : {2, 3, 8}) {
    const Planned planned = plan(one_head, {{0, 0, 1, 16383}}, threads);
    EXPECT_GE(std::ssize(planned.plan.tasks), 4 * threads);
    EXPECT_EQ(planned.plan.joins.size(), 1U);
    // Beside short ones, too: only the long one is cut.
    const Planned beside =
        plan(one_head, {{0, 0, 1, 100}, {1, 1, 1, 16383}, {2, 2, 1, 200}}, threads);
    EXPECT_GE(std::ssize(beside.plan.tasks), 4 * threads);
    ASSERT_EQ(beside.plan.joins.size(), 1U);
    EXPECT_EQ(beside.plan.joins.front().row, 1);
  }
}

TEST(AttentionTasks, WhatIsEnoughForAllThreadsIsNotCut) {
  const AttentionShape shape = {2, 7, kDim, 0, false};
  std::vector<SequenceRun> runs;
  for (std::int32_t row = 0; row < 16; ++row) runs.push_back({row, row, 1, 4095});
  const Planned planned = plan(shape, runs, 2);
  EXPECT_EQ(planned.plan.tasks.size(), 16U);
  EXPECT_TRUE(planned.plan.joins.empty());
  EXPECT_EQ(plan(shape, {{0, 0, 1, 16383}}, 1).plan.tasks.size(), 1U);
  // A short context has no chunks to share: its heads are.
  EXPECT_EQ(plan(shape, {{0, 0, 1, 100}}, 2).plan.tasks.size(), 2U);
  EXPECT_EQ(plan(shape, {{0, 0, 1, 100}}, 4).plan.tasks.size(), 4U);
}

TEST(AttentionTasks, WithoutRoomThreadsShareKeyHeads) {
  const AttentionShape shape = {4, 8, kDim, 0, false};
  const Planned planned = plan(shape, {{0, 0, 1, 16383}}, 8, 256);
  EXPECT_EQ(planned.plan.tasks.size(), 4U);
  EXPECT_TRUE(planned.plan.joins.empty());
}

}  // namespace
}  // namespace llorch::compute
