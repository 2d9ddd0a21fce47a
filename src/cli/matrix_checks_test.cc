// The checks of the matrix, each with a model that breaks it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

#include "base/mutex.h"
#include "cli/matrix_checks.h"
#include "support/test_paths.h"

namespace llorch::cli {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr, ::testing::IsEmpty, ::testing::SizeIs;

// A model whose every answer is a count from a number that follows from the prompt, with a letter
// for each id; faults are put in by `spoil` and `refuse`.
class CountingModel : public ModelClient {
 public:
  Result<ModelFacts> facts() const override { return facts_; }
  Result<Heard> ask(const Asked& asked, std::stop_token stop) const override {
    if (stop.stop_requested()) return Error{ErrorCode::Cancelled, "stopped"};
    if (refuse)
      if (const std::optional<Error> error = refuse(asked)) return *error;
    if (asked.prompt.empty() && asked.prompt_ids.empty() && !answers_empty)
      return Error{ErrorCode::InvalidArgument, "prompt: must not be empty"};
    if (static_cast<std::int64_t>(asked.prompt_ids.size()) + 1 > facts_.context && !answers_long)
      return Error{ErrorCode::InvalidArgument, "too long"};
    Heard heard;
    heard.prompt_tokens = static_cast<std::int64_t>(asked.prompt_ids.size());
    heard.first_ms = 1;
    heard.last_ms = 1 + asked.max_tokens;
    heard.stop_reason = "max_tokens";
    std::int32_t id = static_cast<std::int32_t>(asked.prompt.size());
    for (const std::int32_t one : asked.prompt_ids) id += one;
    for (std::int32_t i = 0; i < asked.max_tokens; ++i) {
      heard.ids.push_back(id % 20 + i);
      heard.pieces.push_back(std::string(1, static_cast<char>('a' + i % 26)));
      heard.text += heard.pieces.back();
    }
    if (!asked.stop.empty() && !ignores_stop) {
      const std::size_t at = heard.text.find(asked.stop.front());
      if (at != std::string::npos) {
        heard.text.resize(at);
        heard.stop_reason = "stop_sequence";
      }
    }
    const base::MutexLock lock(mutex_);
    if (spoil) spoil(asked, heard, ++calls_);
    return heard;
  }
  Result<double> cancel_after(const Asked& asked, std::size_t tokens,
                              std::stop_token) const override {
    const base::MutexLock lock(mutex_);
    cancels.emplace_back(asked.prompt_ids.size(), tokens);
    if (ends_early) return Error{ErrorCode::InvalidArgument, "ended before"};
    return 2.5;
  }
  Result<json::Object> chat(const Asked&, std::stop_token) const override {
    return json::Object{{"choices", json::Array{json::Object{}}},
                        {"usage", json::Object{{"completion_tokens", chat_tokens}}}};
  }

  ModelFacts facts_{.model = "counting", .context = 512, .slots = 4, .has_template = true};
  std::function<std::optional<Error>(const Asked&)> refuse;
  std::function<void(const Asked&, Heard&, int call)> spoil;
  bool answers_empty = false;
  bool answers_long = false;
  bool ignores_stop = false;
  bool ends_early = false;
  std::int64_t chat_tokens = 4;
  mutable std::vector<std::pair<std::size_t, std::size_t>> cancels;

 private:
  mutable base::Mutex mutex_;
  mutable int calls_ = 0;
};

CheckResult run_check(const ModelClient& model, std::string_view name, Subject& subject,
                      MatrixCell& cell) {
  for (const Check& check : matrix_checks())
    if (check.name == name) return check.run(subject, cell);
  ADD_FAILURE() << "there is no check " << name << " of " << &model;
  return {};
}

// The check alone, behind the greedy answer that others are held against.
CheckResult try_check(CountingModel& model, std::string_view name) {
  Subject subject{.client = model, .backend = "cpu", .facts = model.facts_};
  subject.scale.soak = 20;
  subject.known = {1, 2, 3};
  subject.story = {.prompt = "Once upon a time there was a", .max_tokens = 24};
  subject.greedy = *CountingModel().ask(subject.story, {});
  MatrixCell cell;
  return run_check(model, name, subject, cell);
}

TEST(MatrixChecks, PassAGoodModel) {
  CountingModel model;
  for (const Check& check : matrix_checks()) {
    const CheckResult result = try_check(model, check.name);
    EXPECT_NE(result.state, CheckState::Failed) << check.name << ": " << result.detail;
    EXPECT_NE(result.detail, "") << check.name;
  }
}

TEST(MatrixChecks, IdsThatChangeFail) {
  CountingModel model;
  model.spoil = [](const Asked&, Heard& heard, int call) {
    if (call == 2) heard.ids[5] = 999;
  };
  const CheckResult again = try_check(model, "ids");
  EXPECT_EQ(again.state, CheckState::Failed);
  EXPECT_THAT(again.detail, HasSubstr("again: expected"));
  EXPECT_THAT(again.detail, HasSubstr("the first 5 are the same"));
  CountingModel batched;
  batched.spoil = [](const Asked& asked, Heard& heard, int call) {
    if (call > 2 && asked.temperature == 0) heard.ids[0] = 999;
  };
  EXPECT_THAT(try_check(batched, "ids").detail, HasSubstr("among others: expected"));
}

TEST(MatrixChecks, WhatMustBeRefusedAndIsNotFails) {
  CountingModel model;
  model.answers_empty = true;
  EXPECT_EQ(try_check(model, "empty prompt").state, CheckState::Failed);
  model.answers_long = true;
  EXPECT_EQ(try_check(model, "longest prompt").state, CheckState::Failed);
  model.ignores_stop = true;
  EXPECT_EQ(try_check(model, "stop across tokens").state, CheckState::Failed);
  model.chat_tokens = 17;
  EXPECT_EQ(try_check(model, "chat").state, CheckState::Failed);
  model.facts_.has_template = false;
  EXPECT_EQ(try_check(model, "chat").state, CheckState::Skipped);
}

TEST(MatrixChecks, BrokenCharactersAndForgottenSeedsFail) {
  CountingModel broken;
  broken.spoil = [](const Asked&, Heard& heard, int) { heard.pieces[1] = "\xe4\xb8"; };
  EXPECT_THAT(try_check(broken, "unicode").detail, HasSubstr("no UTF-8"));
  CountingModel forgetful;
  forgetful.spoil = [](const Asked&, Heard& heard, int call) { heard.ids[0] = call; };
  EXPECT_THAT(try_check(forgetful, "unicode").detail, HasSubstr("with the same seed"));
}

TEST(MatrixChecks, CancelsInThePromptAndInTheAnswer) {
  CountingModel model;
  EXPECT_EQ(try_check(model, "cancel in prefill").state, CheckState::Passed);
  EXPECT_EQ(try_check(model, "cancel in decode").state, CheckState::Passed);
  EXPECT_THAT(model.cancels, ElementsAre(std::pair<std::size_t, std::size_t>(256, 0),
                                         std::pair<std::size_t, std::size_t>(8, 4)));
  // Afterwards the greedy ids must be the same.
  model.spoil = [](const Asked&, Heard& heard, int) { heard.ids[0] = 999; };
  EXPECT_THAT(try_check(model, "cancel in decode").detail, HasSubstr("after that: expected"));
  model.ends_early = true;
  EXPECT_EQ(try_check(model, "cancel in decode").state, CheckState::Skipped);
}

TEST(MatrixChecks, ABurstMayBeToldToComeLaterButNotFail) {
  CountingModel full;
  std::atomic<int> asked = 0;
  full.refuse = [&](const Asked&) -> std::optional<Error> {
    if (++asked <= 8) return std::nullopt;
    return Error{ErrorCode::QueueFull, "come later"};
  };
  const CheckResult result = try_check(full, "burst of 64");
  EXPECT_EQ(result.state, CheckState::Passed);
  EXPECT_EQ(result.detail, "8 answered, 56 told to come later");
  CountingModel broken;
  broken.refuse = [&](const Asked&) { return Error{ErrorCode::Internal, "boom"}; };
  EXPECT_EQ(try_check(broken, "burst of 10").detail, "boom");
  CountingModel deaf;
  deaf.refuse = [&](const Asked&) { return Error{ErrorCode::QueueFull, "come later"}; };
  EXPECT_EQ(try_check(deaf, "burst of 10").state, CheckState::Failed);
}

TEST(MatrixChecks, TheSoakEndsAtTheFirstFailure) {
  CountingModel model;
  std::atomic<int> asked = 0;
  model.refuse = [&](const Asked&) -> std::optional<Error> {
    if (++asked != 7) return std::nullopt;
    return Error{ErrorCode::Internal, "boom"};
  };
  const CheckResult result = try_check(model, "soak");
  EXPECT_EQ(result.state, CheckState::Failed);
  EXPECT_THAT(result.detail, HasSubstr("boom"));
  EXPECT_LE(asked, 11);
}

// The soak looks at the memory of a process: at ours, where the model keeps something each time.
TEST(MatrixChecks, ASoakWhoseMemoryGrowsFails) {
  CountingModel model;
  std::vector<std::string> kept;
  Subject subject{.client = model, .backend = "cpu", .facts = model.facts_, .pid = ::getpid()};
  subject.scale.soak = 40;
  subject.known = {1, 2, 3};
  MatrixCell cell;
  const CheckResult flat = run_check(model, "soak", subject, cell);
  EXPECT_EQ(flat.state, CheckState::Passed) << flat.detail;
  EXPECT_THAT(flat.detail, HasSubstr("40 answers, memory "));
  model.spoil = [&](const Asked&, Heard&, int) { kept.emplace_back(std::size_t{8} << 20, 'x'); };
  const CheckResult growing = run_check(model, "soak", subject, cell);
  EXPECT_EQ(growing.state, CheckState::Failed) << growing.detail;
  EXPECT_THAT(growing.detail, HasSubstr(": it grew by more than "));
}

TEST(MatrixChecks, APeakAboveThePlanFails) {
  const CountingModel model;
  Subject subject{.client = model, .backend = "cpu", .pid = ::getpid()};
  MatrixCell cell;
  subject.planned_bytes = std::int64_t{1} << 50;
  EXPECT_EQ(run_check(model, "peak memory", subject, cell).state, CheckState::Passed);
  const Figure* peak = cell.find_figure("peak_memory");
  ASSERT_NE(peak, nullptr);
  subject.planned_bytes = static_cast<std::int64_t>(peak->median() / 2) - (std::int64_t{4} << 20);
  const CheckResult high = run_check(model, "peak memory", subject, cell);
  EXPECT_EQ(high.state, CheckState::Failed);
  EXPECT_THAT(high.detail, HasSubstr("the plan is too low"));
}

TEST(MatrixChecks, OfACardTheDriverTellsMemoryAndJoules) {
  const test::TempDir nowhere;
  CountingModel model;
  Subject subject{.client = model, .backend = "cuda", .pid = 77, .root = nowhere.path()};
  subject.known = {1, 2, 3};
  subject.planned_bytes = 1'000'000'000;
  subject.gpu = 1;
  MatrixCell cell;
  subject.nvml = "libdoes-not-exist.so";
  EXPECT_THAT(run_check(model, "peak memory", subject, cell).detail, HasSubstr("no NVIDIA driver"));
  EXPECT_THAT(run_check(model, "energy", subject, cell).detail, HasSubstr("no NVIDIA driver"));
  subject.nvml = LLORCH_FAKE_NVML;
  ::setenv("FAKE_NVML_DEVICES", "First|1000|400;Second|2000|500", 1);
  EXPECT_EQ(run_check(model, "peak memory", subject, cell).state, CheckState::Skipped);
  EXPECT_EQ(run_check(model, "energy", subject, cell).detail, "the card does not count joules");
  EXPECT_THAT(cell.figures, IsEmpty());

  ::setenv("FAKE_NVML_PROCESSES", "0|77|9000000000;1|77|900000000", 1);
  EXPECT_EQ(run_check(model, "peak memory", subject, cell).state, CheckState::Passed);
  ::setenv("FAKE_NVML_PROCESSES", "1|77|1900000000", 1);
  EXPECT_THAT(run_check(model, "peak memory", subject, cell).detail,
              HasSubstr("the plan is too low"));
  // 32 joules for each answer of 32 tokens.
  int joules = 1000;
  const auto count = [&] {
    ::setenv("FAKE_NVML_MILLIJOULES", fmt::format("1|{}000", joules).c_str(), 1);
  };
  count();
  model.spoil = [&](const Asked&, Heard&, int) {
    joules += 32;
    count();
  };
  cell.figures.clear();
  const CheckResult energy = run_check(model, "energy", subject, cell);
  EXPECT_EQ(energy.detail, "1 J for each token of 4 streams, the whole card counted");
  ASSERT_THAT(cell.figures, SizeIs(1));
  EXPECT_THAT(cell.figures[0].samples, ElementsAre(1, 1, 1));
  for (const char* variable : {"FAKE_NVML_DEVICES", "FAKE_NVML_PROCESSES", "FAKE_NVML_MILLIJOULES"})
    ::unsetenv(variable);
}

TEST(MatrixChecks, GoldenIdsAreThoseBesideTheWeights) {
  const test::TempDir folder;
  std::ofstream(folder / "golden.json") << R"({"input_ids":[1,2,3],"greedy_ids":[1,2,3,6,7,8,9]})";
  CountingModel model;
  Subject subject{.client = model, .backend = "cpu", .files = folder.path()};
  MatrixCell cell;
  EXPECT_EQ(run_check(model, "golden", subject, cell).state, CheckState::Passed);
  std::ofstream(folder / "golden.json") << R"({"input_ids":[1,2,3],"greedy_ids":[1,2,3,6,7,99,9]})";
  const CheckResult other = run_check(model, "golden", subject, cell);
  EXPECT_EQ(other.state, CheckState::Failed);
  EXPECT_THAT(other.detail, HasSubstr("the first 2 are the same"));
  subject.files.clear();
  EXPECT_EQ(run_check(model, "golden", subject, cell).state, CheckState::Skipped);
}

TEST(MatrixChecks, OnlyRandomWeightsMayHaveNothingToSay) {
  CountingModel model;
  Subject subject{.client = model, .backend = "cpu", .facts = model.facts_};
  MatrixCell cell;
  for (const std::int64_t tokens : {0, 17}) {
    model.chat_tokens = tokens;
    cell.is_random = false;
    const CheckResult result = run_check(model, "chat", subject, cell);
    EXPECT_EQ(result.state, CheckState::Failed);
    EXPECT_THAT(result.detail, HasSubstr(std::to_string(tokens) + ", expected 1 to 16"));
    cell.is_random = true;
    EXPECT_EQ(run_check(model, "chat", subject, cell).state == CheckState::Passed, tokens == 0);
  }
}

TEST(MatrixChecks, JoulesComeFromTheProcessorsCounter) {
  const test::TempDir root;
  const auto folder = root / "sys/class/powercap/intel-rapl:0";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "max_energy_range_uj") << 1'000'000'000;
  std::ofstream(folder / "energy_uj") << 999'000'000;
  CountingModel model;
  // 128 joules in each round of 4 answers of 32 tokens, over the end of the counter too.
  std::atomic<std::int64_t> joules = 999;
  model.spoil = [&](const Asked&, Heard&, int) {
    joules = (joules + 32) % 1000;
    std::ofstream(folder / "energy_uj") << joules * 1'000'000;
  };
  Subject subject{.client = model, .backend = "cpu", .pid = 1, .root = root.path()};
  subject.known = {1, 2, 3};
  MatrixCell cell;
  EXPECT_EQ(run_check(model, "energy", subject, cell).state, CheckState::Passed);
  ASSERT_THAT(cell.figures, SizeIs(1));
  EXPECT_THAT(cell.figures[0].samples, ElementsAre(1, 1, 1));
  EXPECT_FALSE(cell.figures[0].is_better_when_more());
  std::filesystem::remove(folder / "energy_uj");
  EXPECT_EQ(run_check(model, "energy", subject, cell).state, CheckState::Skipped);
}

TEST(MatrixChecks, TheStoryIsTheTextThatGoesOnForLongest) {
  CountingModel model;
  model.spoil = [](const Asked& asked, Heard& heard, int) {
    heard.ids.resize(asked.prompt.starts_with("The capital") ? 5 : 0);
  };
  const Result<Asked> story = choose_story(model, {});
  ASSERT_TRUE(story.ok());
  EXPECT_EQ(story->prompt, "The capital of France is");
  model.spoil = nullptr;
  EXPECT_EQ(choose_story(model, {})->prompt, "Once upon a time there was a");
}

}  // namespace
}  // namespace llorch::cli
