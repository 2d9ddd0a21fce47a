// The twelve checkpoints against Hugging Face transformers: each passes on every backend, and each
// fails when the thing it guards is broken.
#include "model/checkpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "model/breakable_model.h"
#include "model/broken_backend.h"

namespace llorch::model {
namespace {

struct Subject {
  std::string_view golden;  // reference
  std::string_view path;    // weights
  std::string_view backend;
};

std::string subject_name(const testing::TestParamInfo<Subject>& info) {
  constexpr std::string_view kRoot = "tests/golden/";
  std::string name = fmt::format("{}_{}", info.param.path.substr(kRoot.size()), info.param.backend);
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

class CheckpointTest : public testing::TestWithParam<Subject> {
 protected:
  // Checks one rung, with what was measured in the log.
  void expect_passes(int number) {
    const CheckpointResult& result = ladder()[static_cast<std::size_t>(number - 1)];
    ASSERT_EQ(result.checkpoint.number, number);
    EXPECT_TRUE(result.passed) << result.difference;
    RecordProperty("max_error", fmt::format("{}", result.max_error));
    fmt::print("checkpoint {:2} {:17} max error {:.3g} (tolerance {:g})\n", number,
               result.checkpoint.name, result.max_error, result.checkpoint.tolerance);
  }

 private:
  // All rungs of this subject, climbed once for its twelve tests.
  const std::vector<CheckpointResult>& ladder() const {
    static std::map<std::string, std::vector<CheckpointResult>> climbed;
    std::vector<CheckpointResult>& results =
        climbed[fmt::format("{} {}", GetParam().path, GetParam().backend)];
    if (!results.empty()) return results;
    const Trace reference = Golden(GetParam().golden).trace();
    // As transformers computes: float input, whatever the weights.
    const auto backend = test_backend(GetParam().backend, compute::InputForm::F32);
    const auto model = load_golden_model(GetParam().path, *backend);
    const auto greedy =
        static_cast<std::int32_t>(reference.greedy_ids.size() - reference.ids.size());
    results = compare(record_trace(model, *backend, reference.ids, greedy).take(), reference);
    return results;
  }
};

TEST_P(CheckpointTest, C01FirstNorm) {
  expect_passes(1);
}
TEST_P(CheckpointTest, C02Qkv) {
  expect_passes(2);
}
TEST_P(CheckpointTest, C03KvCache) {
  expect_passes(3);
}
TEST_P(CheckpointTest, C04AttentionScoresWithCausalMask) {
  expect_passes(4);
}
TEST_P(CheckpointTest, C05AttentionOutput) {
  expect_passes(5);
}
TEST_P(CheckpointTest, C06Ffn) {
  expect_passes(6);
}
TEST_P(CheckpointTest, C07FirstBlock) {
  expect_passes(7);
}
TEST_P(CheckpointTest, C08FullLogits) {
  expect_passes(8);
}
TEST_P(CheckpointTest, C09SelectedLogits) {
  expect_passes(9);
}
TEST_P(CheckpointTest, C10Argmax) {
  expect_passes(10);
}
TEST_P(CheckpointTest, C11Softmax) {
  expect_passes(11);
}
TEST_P(CheckpointTest, C12EndToEnd) {
  expect_passes(12);
}

INSTANTIATE_TEST_SUITE_P(
    Gpt2, CheckpointTest,
    testing::Values(Subject{"gpt2_tiny", "tests/golden/gpt2_tiny", "reference"},
                    Subject{"gpt2_tiny", "tests/golden/gpt2_tiny", "cpu"},
                    Subject{"gpt2_tiny", "tests/golden/gpt2_tiny/pytorch", "cpu"},
                    Subject{"gpt2_tiny", "tests/golden/gpt2_tiny/sharded_safetensors", "cpu"},
                    Subject{"gpt2_tiny", "tests/golden/gpt2_tiny/sharded_pytorch", "cpu"},
                    Subject{"gpt2_bf16", "tests/golden/gpt2_bf16", "reference"},
                    Subject{"gpt2_bf16", "tests/golden/gpt2_bf16", "cpu"},
                    Subject{"gpt2_bf16", "tests/golden/gpt2_bf16/pytorch", "cpu"}),
    subject_name);

std::vector<Subject> families() {
  std::vector<Subject> subjects;
  for (const FamilyFixture& family : kFamilies) {
    subjects.push_back({family.golden, family.path, "reference"});
    subjects.push_back({family.golden, family.path, "cpu"});
  }
  subjects.push_back({"families/llama", "tests/golden/families/llama/pytorch", "cpu"});
  subjects.push_back({"families/qwen2", "tests/golden/families/qwen2/pytorch", "cpu"});
  return subjects;
}
INSTANTIATE_TEST_SUITE_P(Families, CheckpointTest, testing::ValuesIn(families()), subject_name);

constexpr std::size_t kHidden = 48;
constexpr std::size_t kHeadDim = 12;

// Swaps two column ranges of every row of a matrix stored (in, 3 * hidden).
void swap_columns(std::vector<float>& values, std::size_t a, std::size_t b, std::size_t count) {
  for (std::size_t row = 0; row < values.size() / (3 * kHidden); ++row) {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(row * 3 * kHidden);
    std::swap_ranges(begin + static_cast<std::ptrdiff_t>(a),
                     begin + static_cast<std::ptrdiff_t>(a + count),
                     begin + static_cast<std::ptrdiff_t>(b));
  }
}

TEST(CheckpointNegative, UnbrokenModelPassesAll) {
  BreakableModel model;
  for (const CheckpointResult& result : compare(model.record(), model.reference())) {
    EXPECT_TRUE(result.passed) << result.checkpoint.name << ": " << result.difference;
  }
}

TEST(CheckpointNegative, C01WrongEpsilon) {
  BreakableModel model;
  model.plan().config.norm_epsilon = 1e-3F;
  model.expect_fails(1);
}

TEST(CheckpointNegative, C01RmsNormInsteadOfLayerNorm) {
  BreakableModel model;
  model.plan().config.norm = NormKind::RmsNorm;
  model.expect_fails(1);
}

float* floats(const compute::TensorView& view) {
  CHECK(view.dtype == tensor::DType::F32);
  return static_cast<float*>(view.data);
}

std::int32_t* ints(const compute::TensorView& view) {
  CHECK(view.dtype == tensor::DType::I32);
  return static_cast<std::int32_t*>(view.data);
}

// A broken op, its model and the rungs that must and must not notice.
void expect_first_failure(int rung, const std::function<void(BrokenBackend&)>& breaks) {
  BrokenBackend backend(test_backend("cpu"));
  breaks(backend);
  const BreakableModel model;
  const Trace ours = model.record_on(backend);
  const std::vector<CheckpointResult> ladder = compare(ours, model.reference());
  for (int below = 1; below < rung; ++below) {
    if (below == 3)
      continue;  // also sees the caches of later layers, which follow from the mistake
    EXPECT_TRUE(ladder[static_cast<std::size_t>(below - 1)].passed) << "checkpoint " << below;
  }
  model.expect_fails(rung, ours);
}

// Where products with BF16 weights round their input: the same ids, and logits that stay close.
TEST(Bf16Weights, ContinueAlikeInTheFormThatIsDeclared) {
  constexpr std::string_view kPath = "tests/golden/gpt2_bf16";
  const Trace reference = Golden("gpt2_bf16").trace();
  const auto backend = test_backend("cpu");
  const auto model = load_golden_model(kPath, *backend);
  const auto greedy = static_cast<std::int32_t>(reference.greedy_ids.size() - reference.ids.size());
  const Trace ours = record_trace(model, *backend, reference.ids, greedy).take();
  EXPECT_EQ(ours.greedy_ids, reference.greedy_ids);
  const std::vector<float>& found = ours.tensors.at("logits").values;
  const std::vector<float>& expected = reference.tensors.at("logits").values;
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 0.15) << i;
}

// The decorator itself changes nothing.
TEST(CheckpointNegative, UnbrokenBackendPassesAll) {
  BrokenBackend backend(test_backend("cpu"));
  const BreakableModel model;
  for (const CheckpointResult& result : compare(model.record_on(backend), model.reference()))
    EXPECT_TRUE(result.passed) << result.checkpoint.name << ": " << result.difference;
}

// var · n/(n-1): an estimate's variance, not the layer's.
TEST(CheckpointNegative, C01UnbiasedVariance) {
  expect_first_failure(1, [](BrokenBackend& backend) {
    backend.after_layer_norm = [](const compute::LayerNormArgs& args) {
      const std::int64_t width = args.out.dims[1];
      const double n = static_cast<double>(width);
      for (std::int64_t i = 0; i < args.out.elements(); ++i) {
        const float bias = floats(args.bias)[i % width];
        float& value = floats(args.out)[i];
        value = static_cast<float>((value - bias) * std::sqrt((n - 1) / n) + bias);
      }
    };
  });
}

TEST(CheckpointNegative, C02QueryAndKeySwapped) {
  BreakableModel model;
  model.edit(Role::Qkv, 0,
             [](std::vector<float>& values) { swap_columns(values, 0, kHidden, kHidden); });
  model.expect_fails(2);
}

TEST(CheckpointNegative, C02BiasDropped) {
  BreakableModel model;
  model.edit(Role::QkvBias, 0, [](std::vector<float>& values) { std::ranges::fill(values, 0.0F); });
  model.expect_fails(2);
}

// (in, out) read as if it were (out, in) of the same bytes.
TEST(CheckpointNegative, C02Conv1dNotTransposed) {
  BreakableModel model;
  model.edit(Role::Qkv, 0, [](std::vector<float>& values) {
    const std::vector<float> stored = values;
    for (std::size_t in = 0; in < kHidden; ++in) {
      for (std::size_t out = 0; out < 3 * kHidden; ++out)
        values[in * 3 * kHidden + out] = stored[out * kHidden + in];
    }
  });
  model.expect_fails(2);
}

TEST(CheckpointNegative, C03OneBitInTheCache) {
  for (const bool in_keys : {true, false}) {
    expect_first_failure(3, [in_keys](BrokenBackend& backend) {
      backend.after_write_kv = [in_keys](const compute::WriteKvArgs& args) {
        float& value = floats(in_keys ? args.cache.keys : args.cache.values)[17];
        value = std::nextafter(value, 1e9F);
      };
    });
  }
}

TEST(CheckpointNegative, C03TokensStoredInTheWrongSlots) {
  expect_first_failure(3, [](BrokenBackend& backend) {
    auto swapped = std::make_shared<std::vector<std::int32_t>>();
    backend.on_write_kv = [swapped](compute::WriteKvArgs& args) {
      swapped->assign(ints(args.slots), ints(args.slots) + args.slots.rows());
      if (swapped->size() > 1) std::swap((*swapped)[0], (*swapped)[1]);
      args.slots.data = swapped->data();
    };
  });
}

// What an older prompt left in the cache, because new keys are not written.
TEST(CheckpointNegative, C03StaleCache) {
  expect_first_failure(3, [](BrokenBackend& backend) {
    auto old = std::make_shared<std::vector<float>>();
    backend.on_write_kv = [old](compute::WriteKvArgs& args) {
      old->assign(static_cast<std::size_t>(args.keys.elements()), 0.5F);
      args.keys = compute::TensorView(old->data(), tensor::DType::F32,
                                      {args.keys.dims[0], args.keys.dims[1], args.keys.dims[2]});
    };
  });
}

// Every row placed at the last position sees the whole prompt: attention without its mask.
TEST(CheckpointNegative, C04NoMask) {
  expect_first_failure(4, [](BrokenBackend& backend) {
    auto last = std::make_shared<std::vector<std::int32_t>>();
    auto runs = std::make_shared<std::vector<compute::SequenceRun>>();
    backend.on_attention = [last, runs](compute::AttentionArgs& args) {
      const std::int32_t* positions = ints(args.positions);
      const std::int64_t rows = args.positions.rows();
      last->assign(static_cast<std::size_t>(rows), positions[rows - 1]);
      args.positions.data = last->data();
      // A row at a time, or they would go on from there.
      runs->clear();
      for (std::int32_t row = 0; row < rows; ++row)
        runs->push_back({ints(args.sequences)[row], row, 1, last->back()});
      args.runs = *runs;
    };
  });
}

TEST(CheckpointNegative, C04NotScaledByHeadDim) {
  expect_first_failure(4, [](BrokenBackend& backend) {
    backend.on_attention = [](compute::AttentionArgs& args) { args.scale = 1; };
  });
}

TEST(CheckpointNegative, C04HeadsSwapped) {
  BreakableModel model;
  model.edit(Role::Qkv, 0,
             [](std::vector<float>& values) { swap_columns(values, 0, kHeadDim, kHeadDim); });
  model.expect_fails(4);
}

TEST(CheckpointNegative, C04WrongHeadCount) {
  BreakableModel model;
  model.plan().config.num_heads = model.plan().config.num_kv_heads = 2;
  model.plan().config.head_dim = 24;
  model.expect_fails(4);
  model.expect_fails(5);
}

TEST(CheckpointNegative, C05ValueHeadsSwapped) {
  BreakableModel model;
  model.edit(Role::Qkv, 0, [](std::vector<float>& values) {
    swap_columns(values, 2 * kHidden, 2 * kHidden + kHeadDim, kHeadDim);
  });
  model.expect_fails(5);
}

TEST(CheckpointNegative, C05ProjectionNotTransposed) {
  BreakableModel model;
  model.mapped(Role::AttnOut, 0).spec.transposed = false;  // square, so only the numbers tell
  model.expect_fails(5);
}

TEST(CheckpointNegative, C06ExactGelu) {
  BreakableModel model;
  model.plan().config.activation = compute::Activation::GeluErf;
  model.expect_fails(6);
}

TEST(CheckpointNegative, C06FirstNormInsteadOfSecond) {
  BreakableModel model;
  model.mapped(Role::FfnNormWeight, 0).tensor = model.mapped(Role::AttnNormWeight, 0).tensor;
  model.mapped(Role::FfnNormBias, 0).tensor = model.mapped(Role::AttnNormBias, 0).tensor;
  model.expect_fails(6);
}

// The MLP replaces the stream instead of adding to it.
TEST(CheckpointNegative, C07ResidualMissing) {
  expect_first_failure(7, [](BrokenBackend& backend) {
    auto count = std::make_shared<int>(0);
    backend.on_linear = [count](compute::LinearTarget& target) {
      if (target.accumulate && (*count)++ % 2 == 1) target.accumulate = false;
    };
  });
}

TEST(CheckpointNegative, C07FfnBiasDropped) {
  BreakableModel model;
  model.edit(Role::FfnOutBias, 0,
             [](std::vector<float>& values) { std::ranges::fill(values, 0.0F); });
  model.expect_fails(7);
}

TEST(CheckpointNegative, C08PositionsOffByOne) {
  BreakableModel model;
  model.edit(Role::PositionEmbedding, -1, [](std::vector<float>& values) {
    std::rotate(values.begin(), values.begin() + kHidden, values.end());
  });
  model.expect_fails(8);
}

TEST(CheckpointNegative, C08FinalNormWeightsOfAnotherNorm) {
  BreakableModel model;
  model.mapped(Role::OutputNormWeight, -1).tensor = model.mapped(Role::AttnNormWeight, 1).tensor;
  model.expect_fails(8);
}

// Rows are asked for by index: the wrong one is computed to its logits.
void take_the_first_row(BrokenBackend& backend) {
  auto zeros = std::make_shared<std::vector<std::int32_t>>();
  backend.on_gather_rows = [zeros](compute::GatherRowsArgs& args) {
    if (args.indices.rows() != 1) return;  // all rows are wanted
    zeros->assign(1, 0);
    args.indices.data = zeros->data();
  };
}

TEST(CheckpointNegative, C09FirstRowInsteadOfLast) {
  expect_first_failure(9, take_the_first_row);
}

TEST(CheckpointNegative, C10AnotherId) {
  BrokenBackend backend(test_backend("cpu"));
  take_the_first_row(backend);
  const BreakableModel model;
  model.expect_fails(10, model.record_on(backend));
}

TEST(CheckpointNegative, C11WrongTemperature) {
  expect_first_failure(11, [](BrokenBackend& backend) {
    backend.on_softmax = [](compute::SoftmaxArgs& args) {
      for (std::int64_t i = 0; i < args.x.elements(); ++i) floats(args.x)[i] *= 0.999F;
    };
  });
}

// Pitfall 19: decode positions counted from 0 instead of from the end of the prompt.
TEST(CheckpointNegative, C12DecodePositionsRestart) {
  BreakableModel model;
  const auto loaded = load_golden_model("tests/golden/gpt2_tiny", model.backend());
  const auto runner = TransformerRunner::make(loaded, model.backend(), {}).take();
  const std::vector<std::int32_t> blocks = {0, 1, 2, 3};
  Trace ours = model.record();
  std::vector<std::int32_t> ids = model.reference().ids;
  BatchPlan plan;
  plan.block_tables.emplace_back(blocks);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    plan.rows.push_back({ids[i], static_cast<std::int32_t>(i), 0, i + 1 == ids.size()});
  }
  std::int32_t wrong_position = 0;
  while (ids.size() < ours.greedy_ids.size()) {
    ids.push_back(argmax(runner->forward(plan).logits));
    plan.rows = {{ids.back(), wrong_position++, 0, true}};
  }
  ours.greedy_ids = ids;
  model.expect_fails(12, ours);
}

TEST(Checkpoint, RunsAreBitIdentical) {
  BreakableModel model;
  const Trace first = model.record();
  const Trace second = model.record();
  ASSERT_EQ(first.tensors.size(), second.tensors.size());
  for (const auto& [name, tensor] : first.tensors) {
    EXPECT_EQ(tensor.values, second.tensors.at(name).values) << name;
  }
  EXPECT_EQ(first.greedy_ids, second.greedy_ids);
}

TEST(Checkpoint, MissingReferenceIsAFailure) {
  BreakableModel model;
  const Trace ours = model.record();
  for (const CheckpointResult& result : compare(ours, Trace{})) {
    const int number = result.checkpoint.number;
    EXPECT_EQ(result.passed, number == 9 || number == 11)
        << result.checkpoint.name;  // they compare with itself, and with its own logits
  }
  for (const CheckpointResult& result : compare(Trace{}, model.reference())) {
    EXPECT_FALSE(result.passed) << result.checkpoint.name;
  }
}

TEST(Checkpoint, NotANumberIsAFailure) {
  BreakableModel model;
  Trace ours = model.record();
  ours.tensors["logits"].values[5] = std::nanf("");
  model.expect_fails(8, ours);
}

}  // namespace
}  // namespace llorch::model
