#include "tools/bench.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "compute/create.h"
#include "model/load.h"
#include "support/run_program.h"
#include "support/test_paths.h"
#include "tokenizer/load.h"
#include "tools/random_model.h"
#include "tools/test_model.h"

namespace llorch::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr compute::HostLimits kMachine = {.read_bytes_per_second = 10e9,
                                          .int8_ops_per_second = 1000e9,
                                          .float_ops_per_second = 100e9,
                                          .bf16_ops_per_second = 200e9,
                                          .meeting_seconds = 1e-7};

TEST(Bench, LimitIsWhicheverTakesLonger) {
  const StepCost cost = {.weight_bytes = 1e9,
                         .cache_bytes = 1e4,
                         .ops = 1e9,
                         .output_ops = 1e9,
                         .numbers = StepCost::Numbers::Whole};
  // One row: a tenth of a second of reading, 2 ms of computing.
  EXPECT_DOUBLE_EQ(limit_of(cost, kMachine, 1, 1, 0), 10);
  // 100,000 tokens before it are as much as the weights.
  EXPECT_DOUBLE_EQ(limit_of(cost, kMachine, 1, 1, 1e5), 5);
  // 500 rows: half a second of computing.
  EXPECT_DOUBLE_EQ(limit_of(cost, kMachine, 500, 0, 0), 1000);
  StepCost floats = cost;
  floats.numbers = StepCost::Numbers::Float;
  EXPECT_DOUBLE_EQ(limit_of(floats, kMachine, 500, 0, 0), 100);
  StepCost bf16 = cost;
  bf16.numbers = StepCost::Numbers::Bf16;
  EXPECT_DOUBLE_EQ(limit_of(bf16, kMachine, 500, 0, 0), 200);
}

TEST(Bench, RowsAreSummedUpOverTheRepeats) {
  const BenchRow row = {.test = "tg8",
                        .tokens_per_second = {8, 10, 12},
                        .limits = {16, 10, 24},
                        .core_ms = {3, 2, 4},
                        .joules = {1, 2}};
  EXPECT_DOUBLE_EQ(row.mean(), 10);
  EXPECT_DOUBLE_EQ(row.best(), 12);
  EXPECT_DOUBLE_EQ(row.deviation(), 2);
  EXPECT_DOUBLE_EQ(row.share(), (0.5 + 1 + 0.5) / 3);
  EXPECT_DOUBLE_EQ(row.least_core_ms(), 2);
  EXPECT_DOUBLE_EQ(row.mean_joules(), 1.5);
}

TEST(RandomModel, IsAModelOfItsShapeInEveryType) {
  const ModelShape tiny = {"tiny", "llama", 256, 2, 4, 2, 512, 128, 64, false};
  const ModelShape tied = {"tied", "qwen2", 64, 1, 2, 1, 96, 200, 64, true};
  const ModelShape fused = {"fused", "phi3", 64, 1, 2, 2, 96, 200, 64, false, 1e-5F, 1e4, 17};
  const ModelShape learned = {"learned", "gpt2", 64, 1, 2, 2, 256, 200, 64, true};
  const std::array shapes = {tiny, tied, fused, learned};
  const test::TempDir folder;
  for (const ModelShape& shape : shapes) {
    for (const WeightType& type : weight_types()) {
      const auto path = folder / fmt::format("{}-{}.gguf", shape.name, type.name);
      const Status written = write_random_model({.shape = shape, .type = &type}, path);
      ASSERT_TRUE(written.ok()) << written.error().message;
      const auto backend = compute::make_backend("cpu", {.threads = 1}).take();
      const auto loaded = model::load_model(path, *backend);
      ASSERT_TRUE(loaded.ok()) << loaded.error().message;
      EXPECT_EQ((*loaded)->config.architecture, shape.architecture);
      EXPECT_EQ((*loaded)->config.layer_attention(0).window, shape.window);
      // Measuring takes its time.
      if (&shape > &shapes[1] || (type.name != "f16" && type.name != "q4_k_m")) continue;
      Result<BenchReport> report = run_bench({.model = path,
                                              .prompt = 20,
                                              .generate = 3,
                                              .depth = 5,
                                              .batch = 2,
                                              .repeats = 1,
                                              .threads = 1},
                                             [](const std::string&) {});
      ASSERT_TRUE(report.ok()) << report.error().message;
      ASSERT_EQ(report->rows.size(), 2U);
      EXPECT_EQ(report->rows[0].test, "pp20 @ 5");
      EXPECT_EQ(report->rows[1].test, "tg3 x 2 @ 5");
      for (const BenchRow& row : report->rows) {
        EXPECT_GT(row.mean(), 0);
        EXPECT_GT(row.share(), 0);
        EXPECT_EQ(row.core_ms.size(), 1U);
      }
    }
  }
  EXPECT_EQ(find_model_shape("qwen2.5-0.5b")->hidden, 896);
  EXPECT_EQ(find_model_shape("nobody"), nullptr);
}

TEST(Bench, JoulesAreCountedWhereTheyMayBeRead) {
  const test::TempDir folder;
  const RandomModel request = {.shape = {"tiny", "llama", 64, 1, 2, 1, 96, 200, 64, true},
                               .type = find_weight_type("q8_0")};
  ASSERT_TRUE(write_random_model(request, folder / "random.gguf").ok());
  const auto counter = folder / "sys/class/powercap/intel-rapl:0";
  std::int64_t joules = 990;
  const auto measure = [&] {
    return run_bench({.model = folder / "random.gguf",
                      .prompt = 8,
                      .generate = 4,
                      .repeats = 2,
                      .threads = 1,
                      .read_energy =
                          [&] {
                            joules = (joules + 8) % 1000;
                            if (exists(counter))
                              std::ofstream(counter / "energy_uj") << joules * 1'000'000;
                            return base::read_processor_energy(folder.path());
                          }},
                     [](const std::string&) {});
  };
  EXPECT_TRUE(measure()->rows.front().joules.empty());
  std::filesystem::create_directories(counter);
  std::ofstream(counter / "max_energy_range_uj") << 1'000'000'000;
  const Result<BenchReport> report = measure();
  ASSERT_EQ(report->rows.size(), 2U);
  EXPECT_THAT(report->rows[0].joules, testing::ElementsAre(1, 1));
  EXPECT_THAT(report->rows[1].joules, testing::ElementsAre(2, 2));
}

// What their publishers count.
TEST(RandomModel, ShapesHaveAsManyParametersAsTheRealOnes) {
  for (const auto& [name, parameters] : {std::pair{"gpt2", 124'439'808LL},
                                         {"gpt2-medium", 354'823'168LL},
                                         {"smollm2-135m", 134'515'008LL},
                                         {"qwen2.5-0.5b", 494'032'768LL},
                                         {"tinyllama-1.1b", 1'100'048'384LL},
                                         {"phi-3-mini", 3'821'079'552LL},
                                         {"mistral-7b", 7'241'732'096LL}}) {
    const ModelShape* shape = find_model_shape(name);
    ASSERT_NE(shape, nullptr) << name;
    EXPECT_EQ(count_parameters(*shape), parameters) << name;
  }
  EXPECT_EQ(model_shapes().size(), 7U);
}

TEST(RandomModel, HasTheTokenizerItIsGiven) {
  const test::TempDir folder;
  write_test_model(folder / "in");
  const RandomModel request = {.shape = {"tiny", "llama", 64, 1, 2, 1, 96, 740, 64, true},
                               .type = find_weight_type("q8_0"),
                               .tokenizer = folder / "in"};
  const Status written = write_random_model(request, folder / "out.gguf");
  ASSERT_TRUE(written.ok()) << written.error().message;
  const auto before = tokenizer::load_tokenizer(folder / "in").take();
  const auto after = tokenizer::load_tokenizer(folder / "out.gguf").take();
  EXPECT_EQ(before.encode("Hello, world", {true, true}).take(),
            after.encode("Hello, world", {true, true}).take());
  const auto backend = compute::make_backend("cpu", {.threads = 1}).take();
  EXPECT_TRUE(model::load_model(folder / "out.gguf", *backend).ok());

  // A GGUF file's own keys do as well, also for another family; not those of another vocabulary.
  RandomModel again = {.shape = {"fused", "phi3", 64, 1, 2, 2, 96, 740, 64, false},
                       .type = find_weight_type("q8_0"),
                       .tokenizer = folder / "out.gguf"};
  const Status copied = write_random_model(again, folder / "again.gguf");
  ASSERT_TRUE(copied.ok()) << copied.error().message;
  EXPECT_EQ(before.encode("Hello, world", {true, true}).take(),
            tokenizer::load_tokenizer(folder / "again.gguf")
                .take()
                .encode("Hello, world", {true, true})
                .take());
  EXPECT_TRUE(model::load_model(folder / "again.gguf", *backend).ok());
  again.shape.vocab = 741;
  const Status other = write_random_model(again, folder / "other.gguf");
  ASSERT_FALSE(other.ok());
  EXPECT_THAT(other.error().message, HasSubstr("has 740 tokens, expected the 741 of fused"));
}

TEST(BenchProgram, PrintsEachFormAndSaysWhatIsWrong) {
  const test::TempDir folder;
  const std::string path = folder / "random.gguf";
  ASSERT_TRUE(write_random_model({.shape = {"tiny", "llama", 64, 1, 2, 1, 96, 200, 64, true},
                                  .type = find_weight_type("q8_0")},
                                 path)
                  .ok());
  const test::ProgramOutcome odd =
      test::run_program(LLORCH_BENCH, {"one", "two", "three", "--model", path});
  EXPECT_EQ(odd.exit_code, 2);
  EXPECT_EQ(odd.err,
            "llorch-bench: there is no place for \"one\" \"two\" \"three\" here; `llorch-bench "
            "--help` says more\n");
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"-m", path, "-p", "8", "-n", "4", "-r", "2", "-t", "1"});
    return test::run_program(LLORCH_BENCH, std::move(arguments));
  };
  EXPECT_THAT(run({}).out, AllOf(HasSubstr("pp8"), HasSubstr("tg4"), HasSubstr("GB/s")));
  EXPECT_THAT(run({"-o", "md"}).out, HasSubstr("| random.gguf | Q8_0 |"));
  EXPECT_THAT(run({"-o", "csv"}).out, HasSubstr("model,type,size"));
  const json::Value value = json::parse(run({"--json"}).out).take();
  const json::Value& model = value.at("models").at(0);
  EXPECT_EQ(model.at("tests").as_array().size(), 2U);
  EXPECT_EQ(model.at("limits").as_array().size(), 4U);
  EXPECT_EQ(model.at("tests").at(0).at("core_ms_per_token").as_array().size(), 2U);
  EXPECT_GT(model.at("peak_bytes").as_int64(), 0);

  const auto deep = run({"-d", "60"});
  EXPECT_EQ(deep.exit_code, 1);
  EXPECT_THAT(deep.err, HasSubstr("context of 64"));
  EXPECT_EQ(run({"--isa", "mmx"}).exit_code, 1);
}

}  // namespace
}  // namespace llorch::tools
