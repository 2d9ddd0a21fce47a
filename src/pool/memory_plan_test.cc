#include "pool/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <charconv>
#include <fstream>
#include <random>
#include <thread>

#include "base/file.h"
#include "pool/measurements.h"
#include "support/test_paths.h"

namespace llorch::pool {
namespace {

using contract::MemoryNeed;
using ::testing::HasSubstr;

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kGiB = 1 << 30;

// As a worker says it: the cache follows the formula, q8_0 has 34 bytes where f16 has 64.
MemoryNeed make_need(std::int32_t context, std::int32_t slots,
                     std::int64_t bytes_per_token = 64'000, std::int64_t rest = 4 * kGiB) {
  MemoryNeed need;
  need.weights_bytes = rest - 200 * kMiB;
  need.scratch_bytes = 150 * kMiB;
  need.runtime_bytes = 50 * kMiB;
  need.context = context;
  need.slots = slots;
  need.kv_type = "f16";
  need.kv_bytes_per_token = bytes_per_token;
  need.kv_bytes = bytes_per_token * contract::cache_tokens(context, slots);
  need.kv_q8_0_bytes = bytes_per_token / 64 * 34 * contract::cache_tokens(context, slots);
  return need;
}

// The number behind a flag in an advice; 0 when it is not there.
std::int32_t number_behind(std::string_view advice, std::string_view flag) {
  const std::size_t at = advice.find(flag);
  if (at == std::string_view::npos) return 0;
  std::int32_t value = 0;
  const char* begin = advice.data() + at + flag.size() + 1;
  std::from_chars(begin, advice.data() + advice.size(), value);
  return value;
}

TEST(MarginBytes, IsSmallOnSmallMachines) {
  EXPECT_EQ(margin_bytes("cpu", kGiB, 64 * kGiB), 256 * kMiB);
  EXPECT_EQ(margin_bytes("cuda:0", kGiB, 64 * kGiB), 512 * kMiB);
  EXPECT_EQ(margin_bytes("cpu", 20 * kGiB, 64 * kGiB), kGiB);
  EXPECT_EQ(margin_bytes("cpu", 90 * kMiB, 256 * kMiB), 16 * kMiB);
}

TEST(Judge, SaysWhatFits) {
  const MemoryNeed need = make_need(4096, 1);
  const MemoryPlan plan = judge(need, std::nullopt, "cpu", 16 * kGiB, 32 * kGiB);
  EXPECT_TRUE(plan.fits);
  EXPECT_EQ(plan.required_bytes(), need.device_bytes());
  EXPECT_EQ(plan.margin_bytes, 256 * kMiB);
  EXPECT_EQ(plan.advice, "");
}

TEST(Judge, AMeasurementWinsOverThePlan) {
  const MemoryNeed need = make_need(4096, 1);
  EXPECT_FALSE(judge(need, 20 * kGiB, "cpu", 16 * kGiB, 32 * kGiB).fits);
  const MemoryPlan plan = judge(need, kGiB, "cpu", 2 * kGiB, 32 * kGiB);
  EXPECT_TRUE(plan.fits);
  EXPECT_EQ(plan.required_bytes(), kGiB);
}

TEST(Judge, NamesWhatIsMissingWhenNoCacheIsSmallEnough) {
  const MemoryPlan plan = judge(make_need(4096, 4), std::nullopt, "cpu", 3 * kGiB, 32 * kGiB);
  EXPECT_FALSE(plan.fits);
  EXPECT_THAT(plan.advice, HasSubstr("more, and a smaller cache does not make up for it"));
  EXPECT_THAT(plan.advice, HasSubstr("GiB"));
}

TEST(Judge, AdvisesAllThreeTogetherWhenOneIsNotEnough) {
  MemoryNeed need = make_need(131072, 64);
  const MemoryPlan plan =
      judge(need, std::nullopt, "cpu", 4 * kGiB + 256 * kMiB + 20 * kMiB, 32 * kGiB);
  EXPECT_THAT(plan.advice, HasSubstr("--slots 1 --kv q8_0"));
  need.kv_q8_0_bytes = 0;  // heads that q8_0 cannot hold
  EXPECT_THAT(judge(need, std::nullopt, "cpu", 4 * kGiB + 300 * kMiB, 32 * kGiB).advice,
              ::testing::Not(HasSubstr("q8_0")));
}

// Whatever the sizes: fits is what it says, and every advice is right when it is followed.
TEST(Judge, EveryAdviceIsRight) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const auto between = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  int advised = 0;
  for (int round = 0; round < 5'000; ++round) {
    const auto context = static_cast<std::int32_t>(between(1, 200'000));
    const auto slots = static_cast<std::int32_t>(between(1, 64));
    const MemoryNeed need =
        make_need(context, slots, between(1, 4'000) * 64, between(200, 40'000) * kMiB);
    const std::int64_t total = between(256, 80'000) * kMiB;
    const std::int64_t free = between(0, total);
    const std::string device = between(0, 1) == 0 ? "cpu" : "cuda:0";
    const std::optional<std::int64_t> measured =
        between(0, 3) == 0 ? std::optional(need.device_bytes() * between(90, 120) / 100)
                           : std::nullopt;
    const MemoryPlan plan = judge(need, measured, device, free, total);
    ASSERT_EQ(plan.fits, plan.required_bytes() + plan.margin_bytes <= free);
    ASSERT_EQ(plan.fits, plan.advice.empty());
    if (plan.fits) continue;
    const std::string ways = plan.advice.substr(0, plan.advice.find(';'));
    if (!ways.starts_with("fits with ")) continue;
    ++advised;
    std::size_t begin = 0;
    while (begin != std::string::npos) {
      const std::size_t end = ways.find(", or ", begin);
      const std::string way = ways.substr(begin, end - begin);
      begin = end == std::string::npos ? end : end + 5;
      const std::int32_t fewer = number_behind(way, "--slots");
      const std::int32_t shorter = number_behind(way, "--ctx");
      MemoryNeed followed = make_need(shorter > 0 ? shorter : context, fewer > 0 ? fewer : slots,
                                      need.kv_bytes_per_token, need.weights_bytes + 200 * kMiB);
      if (way.find("--kv q8_0") != std::string::npos) followed.kv_bytes = followed.kv_q8_0_bytes;
      ASSERT_LE(followed.kv_bytes, need.kv_bytes) << way;
      ASSERT_TRUE(judge(followed, std::nullopt, device, free, total).fits) << plan.advice;
    }
  }
  EXPECT_GT(advised, 100);
}

TEST(Choose, TakesEverythingWhereItFits) {
  const auto choice = choose(make_need(131072, 16), {}, "cpu", 64 * kGiB, 64 * kGiB);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->context, 131072);
  EXPECT_EQ(choice->slots, 16);
}

TEST(Choose, GivesUpContextBeforeSlotsAndSlotsBeforeTheUsualContext) {
  const MemoryNeed need = make_need(131072, 16);
  // 16 slots of 4096 tokens are 65536 tokens: 3.9 GiB beside 4 GiB of weights.
  auto choice = choose(need, {}, "cpu", 9 * kGiB, 64 * kGiB);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->slots, 16);
  EXPECT_GE(choice->context, 65536);
  EXPECT_LT(choice->context, 131072);
  choice = choose(need, {}, "cpu", 6 * kGiB, 64 * kGiB);
  ASSERT_TRUE(choice);
  EXPECT_LT(choice->slots, 16);
  EXPECT_GE(choice->context, 4096);
  choice = choose(need, {}, "cpu", 4 * kGiB + 300 * kMiB, 64 * kGiB);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->slots, 1);
  EXPECT_LT(choice->context, 4096);
  EXPECT_FALSE(choose(need, {}, "cpu", 4 * kGiB, 64 * kGiB));
}

TEST(Choose, KeepsWhatWasAskedFor) {
  PlanRequest request;
  request.context = 32768;
  const MemoryNeed need = make_need(32768, 16);
  auto choice = choose(need, request, "cpu", 7 * kGiB, 64 * kGiB);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->context, 32768);
  EXPECT_LT(choice->slots, 16);
  request.slots = 16;
  EXPECT_FALSE(choose(need, request, "cpu", 7 * kGiB, 64 * kGiB));
  request.context.reset();
  choice = choose(need, request, "cpu", 6 * kGiB, 64 * kGiB);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->slots, 16);
  EXPECT_LT(choice->context, 4096);
}

TEST(WorkerFlags, SayTheWholePlan) {
  const MemoryNeed need = make_need(8192, 4);
  EXPECT_EQ(worker_flags(need),
            (std::vector<std::string>{"--ctx", "8192", "--max-batch", "4", "--kv", "f16",
                                      "--kv-memory", std::to_string(need.kv_bytes)}));
}

class PlannerTest : public testing::Test {
 protected:
  PlannerTest() {
    planner_.worker_cpu = LLORCH_CPUD;
    planner_.worker_cuda = folder_ / "worker-orcd";
    planner_.measurements_file = folder_ / "state/measurements.json";
    model_.id = "builtin";
    model_.path = "builtin";
    model_.downloaded = true;
    model_.backends = {"cpu", "cuda"};
    host_.memory_total_bytes = 8 * kGiB;
    host_.memory_free_bytes = 6 * kGiB;
    host_.gpu_note = "no NVIDIA driver: x is not there";
    request_.backend = "cpu";
  }

  // A worker program that prints and ends as told.
  void write_worker(std::string_view body) {
    std::ofstream(planner_.worker_cuda) << "#!/bin/sh\n" << body;
    std::filesystem::permissions(planner_.worker_cuda, std::filesystem::perms::owner_all);
    planner_.confine = false;  // it is a script, and no shell runs inside the rules
    request_.backend = "cuda";
    host_.gpus = {
        {.index = 2, .name = "Card", .vram_total_bytes = 8 * kGiB, .vram_free_bytes = 7 * kGiB}};
  }

  test::TempDir folder_;
  Planner planner_;
  contract::ModelEntry model_;
  contract::HostInfo host_;
  PlanRequest request_;
};

TEST_F(PlannerTest, AsksTheWorkerItself) {
  const auto plans = planner_.plan(model_, request_, host_);
  ASSERT_TRUE(plans.ok()) << plans.error().message;
  ASSERT_EQ(plans->size(), 1U);
  const MemoryPlan& plan = (*plans)[0];
  EXPECT_EQ(plan.device, "cpu");
  EXPECT_TRUE(plan.fits) << plan.advice;
  EXPECT_GT(plan.need.weights_bytes, 10 * kMiB);
  EXPECT_EQ(plan.need.kv_bytes, plan.need.kv_bytes_per_token *
                                    contract::cache_tokens(plan.need.context, plan.need.slots));
  EXPECT_EQ(plan.need.kv_type, "f16");
}

TEST_F(PlannerTest, ACacheThatTheModelCannotHaveIsTheRequests) {
  write_worker("echo 'worker-orcd: --kv: heads of 12 values; take f16' >&2; exit 1\n");
  request_.gpu = 2;
  request_.kv_type = "q8_0";
  const auto plans = planner_.plan(model_, request_, host_);
  ASSERT_FALSE(plans.ok());
  EXPECT_EQ(plans.error().code, ErrorCode::InvalidArgument);
  EXPECT_EQ(plans.error().message, "--kv: heads of 12 values; take f16");
}

TEST_F(PlannerTest, FindsTheContextThatFitsAndKeepsToTheLimit) {
  host_.memory_total_bytes = 64 * kMiB;
  host_.memory_free_bytes = 56 * kMiB;
  const auto plans = planner_.plan(model_, request_, host_);
  ASSERT_TRUE(plans.ok()) << plans.error().message;
  const MemoryPlan& plan = (*plans)[0];
  EXPECT_TRUE(plan.fits) << plan.advice;
  EXPECT_LT(plan.need.slots, 16);
  host_.memory_free_bytes = 8 * kMiB;
  const auto none = planner_.plan(model_, request_, host_);
  ASSERT_TRUE(none.ok());
  EXPECT_FALSE((*none)[0].fits);
  EXPECT_THAT((*none)[0].advice, HasSubstr("more"));
}

TEST_F(PlannerTest, MeasuredPeaksReturnForTheSameKindOfLoadOnly) {
  request_.context = 512;
  request_.slots = 2;
  const auto plans = planner_.plan(model_, request_, host_);
  ASSERT_TRUE(plans.ok()) << plans.error().message;
  ASSERT_TRUE(planner_.keep_measurement(model_, "cpu", (*plans)[0].need, 123 * kMiB).ok());
  EXPECT_EQ((*planner_.plan(model_, request_, host_))[0].measured_bytes, 123 * kMiB);
  request_.slots = 3;
  EXPECT_FALSE((*planner_.plan(model_, request_, host_))[0].measured_bytes);
  request_.slots = 2;
  model_.files = {{.path = "x", .size = 5, .sha256 = ""}};
  EXPECT_FALSE((*planner_.plan(model_, request_, host_))[0].measured_bytes) << "other files";
}

TEST_F(PlannerTest, RefusesWhatIsNotHere) {
  request_.backend = "tpu";
  EXPECT_THAT(planner_.plan(model_, request_, host_).error().message, HasSubstr("cpu, cuda"));
  request_.backend = "cuda";
  EXPECT_EQ(planner_.plan(model_, request_, host_).error().message,
            "this build has no worker-orcd; build with the cuda preset");
  write_worker("exit 1\n");
  host_.gpus.clear();
  EXPECT_THAT(planner_.plan(model_, request_, host_).error().message,
              HasSubstr("no GPU here: no NVIDIA driver"));
  write_worker("exit 1\n");
  request_.gpu = 0;
  EXPECT_THAT(planner_.plan(model_, request_, host_).error().message,
              HasSubstr("no GPU 0; there are: 2 (Card)"));
  request_ = {.backend = "cpu"};
  model_.downloaded = false;
  EXPECT_THAT(planner_.plan(model_, request_, host_).error().message,
              HasSubstr("models download builtin"));
  model_.downloaded = true;
  model_.backends.clear();
  model_.unsupported = "Mamba layers";
  EXPECT_THAT(planner_.plan(model_, request_, host_).error().message, HasSubstr("Mamba layers"));
  model_.backends = {"cpu"};
  model_.path = (folder_ / "nothing.gguf").string();
  const auto missing = planner_.plan(model_, request_, host_);
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, HasSubstr("nothing.gguf"));
  EXPECT_THAT(missing.error().message, ::testing::Not(HasSubstr("llorch-cpud:")));
}

TEST_F(PlannerTest, AGpuWorkerNeedsHostMemoryToo) {
  write_worker(
      R"(echo '{"weights_bytes":1000,"context":4096,"slots":1,"kv_type":"f16","host_bytes":500000000}')");
  auto plans = planner_.plan(model_, request_, host_);
  ASSERT_TRUE(plans.ok()) << plans.error().message;
  EXPECT_EQ((*plans)[0].device, "cuda:2");
  EXPECT_TRUE((*plans)[0].fits) << (*plans)[0].advice;
  host_.memory_free_bytes = 600 * kMiB;
  plans = planner_.plan(model_, request_, host_);
  EXPECT_FALSE((*plans)[0].fits);
  EXPECT_THAT((*plans)[0].advice, HasSubstr("host memory"));
}

TEST_F(PlannerTest, AWorkerThatSpeaksNonsenseIsAnError) {
  for (const std::string_view body :
       {"echo nothing\n", "echo '{\"slots\":0}'\n", "kill -9 $$\n", "echo '[]'\n", "exit 3\n"}) {
    write_worker(body);
    EXPECT_FALSE(planner_.plan(model_, request_, host_).ok()) << body;
  }
}

TEST_F(PlannerTest, AProgramThatWasKilledSaysNothingAboutTheModel) {
  for (const std::string_view signal : {"KILL", "TERM", "INT", "HUP"}) {
    write_worker("kill -" + std::string(signal) + " $$\n");
    const auto plans = planner_.plan(model_, request_, host_);
    ASSERT_FALSE(plans.ok());
    EXPECT_EQ(plans.error().code, ErrorCode::Unavailable) << signal;
    EXPECT_THAT(plans.error().message, HasSubstr("try again"));
  }
  write_worker("kill -SEGV $$\n");
  EXPECT_EQ(planner_.plan(model_, request_, host_).error().code, ErrorCode::Internal)
      << "that one failed at the file";
}

TEST(Measurements, ManyWritersLoseNothingAndTheOldestGo) {
  const test::TempDir folder;
  const std::filesystem::path file = folder / "m.json";
  std::vector<std::jthread> writers;
  for (int writer = 0; writer < 4; ++writer) {
    writers.emplace_back([&file, writer] {
      for (int i = 0; i < 10; ++i)
        EXPECT_TRUE(keep_measurement(file, std::to_string(writer * 100 + i), 1 + i).ok());
    });
  }
  writers.clear();
  for (int writer = 0; writer < 4; ++writer) {
    for (int i = 0; i < 10; ++i)
      EXPECT_EQ(find_measurement(file, std::to_string(writer * 100 + i)), 1 + i);
  }
  std::string full = R"({"version":"1.0","measurements":[)";
  for (std::size_t i = 0; i < kMeasurementsMax; ++i)
    full += (i > 0 ? "," : "") + std::string(R"({"key":"k)") + std::to_string(i) +
            R"(","peak_bytes":5})";
  ASSERT_TRUE(base::write_file_atomically(file, full + "]}").ok());
  ASSERT_TRUE(keep_measurement(file, "new", 9).ok());
  EXPECT_FALSE(find_measurement(file, "k0"));
  EXPECT_EQ(find_measurement(file, "k1"), 5);
  EXPECT_EQ(find_measurement(file, "new"), 9);
}

TEST(Measurements, ADamagedFileIsNoMeasurementAndIsReplaced) {
  const test::TempDir folder;
  const std::filesystem::path file = folder / "m.json";
  for (const std::string_view text : {"", "{", "[]", R"({"measurements":[1,{"key":1}]})"}) {
    std::ofstream(file) << text;
    EXPECT_FALSE(find_measurement(file, "a")) << text;
  }
  EXPECT_FALSE(keep_measurement(file, "a", 0).ok());
  EXPECT_TRUE(keep_measurement(file, "a", 7).ok());
  EXPECT_EQ(find_measurement(file, "a"), 7);
}

}  // namespace
}  // namespace llorch::pool
