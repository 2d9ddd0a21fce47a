// What attention's declared forms round, worked out by hand, and the runs of a step.
#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "compute/test_backends.h"
#include "compute/test_tensors.h"

namespace llorch::compute::test {
namespace {

// Two keys, scores 0 and -1, one value of one each: what is left of rounding exp(-1), and of
// dividing by the sum of what was rounded.
TEST(AttentionForms, RoundQueriesAndWeights) {
  const auto attend = [](const AttentionForm& form, float q) {
    const auto backend = make_reference_backend({.attention = [form](auto) { return form; }});
    Device device(*backend);
    const KvLayer cache = {device.zeros(DType::F32, {1, 1, 2, 1}),
                           device.zeros(DType::F32, {1, 1, 2, 1})};
    backend->write_kv({.keys = device.floats(std::vector<float>{0, -1}, {2, 1, 1}),
                       .values = device.floats(std::vector<float>{0, 1}, {2, 1, 1}),
                       .slots = device.ints(std::vector<std::int32_t>{0, 1}),
                       .cache = cache});
    const TensorView out = device.output(1, 1, Layout::Tight);
    backend->attention({.q = device.floats({&q, 1}, {1, 1, 1}),
                        .cache = cache,
                        .positions = device.ints(std::vector<std::int32_t>{1}),
                        .sequences = device.ints(std::vector<std::int32_t>{0}),
                        .block_tables = device.ints(std::vector<std::int32_t>{0}, {1, 1}),
                        .runs = std::vector<SequenceRun>{{.rows = 1, .first_position = 1}},
                        .scale = 1.0F,
                        .out = out.split_heads(1),
                        .scores = {}});
    return device.read(out).front();
  };
  const auto share = [](double weight) { return static_cast<float>(weight / (1 + weight)); };
  using enum InputForm;
  EXPECT_EQ(attend({F32, F32}, 1), share(std::exp(-1.0)));
  EXPECT_EQ(attend({F32, BF16}, 1), share(0.3671875));      // 94 / 256
  EXPECT_EQ(attend({F32, F16}, 1), share(0.367919921875));  // 1507 / 4096
  EXPECT_EQ(attend({BF16, F32}, 1.001F), share(std::exp(-1.0)));
  EXPECT_NE(attend({F16, F32}, 1.001F), share(std::exp(-1.0)));
  EXPECT_EQ(attend({F32, F32, F16}, 1), share(std::exp(-1.0)));  // 0 and 1 are halves
}

TEST(SequenceRuns, FollowSequencesAndPositions) {
  std::vector<SequenceRun> runs;
  for (const auto& [sequence, position] :
       {std::pair{2, 5}, {2, 6}, {2, 7}, {0, 8}, {1, 0}, {1, 1}, {1, 3}})
    add_row(runs, sequence, position);
  ASSERT_EQ(runs.size(), 4U);
  EXPECT_EQ(runs[0].rows, 3);
  EXPECT_EQ(runs[1].first_row, 3);
  EXPECT_EQ(runs[2].rows, 2);
  EXPECT_EQ(runs[3].first_row, 6);
  EXPECT_EQ(runs[3].first_position, 3);
}

}  // namespace
}  // namespace llorch::compute::test
