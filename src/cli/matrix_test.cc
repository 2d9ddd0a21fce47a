#include "cli/matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>

#include "base/mutex.h"
#include "base/utf8.h"
#include "cli/matrix_checks.h"
#include "cli/matrix_report.h"
#include "cli/matrix_run.h"
#include "support/test_paths.h"

namespace llorch::cli {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr, ::testing::IsEmpty, ::testing::Not,
    ::testing::SizeIs;

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
  Result<json::Object> chat(std::string_view, std::int32_t, std::stop_token) const override {
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

MatrixResult sample_result() {
  MatrixResult result;
  result.version = "0.1.0";
  result.made_at = "2026-11-16T12:00:00.000Z";
  result.machine = "Processor <9000>, AVX2, 2 cores";
  MatrixCell good;
  good.name = {"tiny_model", "cpu", "local"};
  good.quant = "Q4_K_M";
  good.build = "b";
  good.device_class = "cpu-avx2";
  good.checks = {{"plan", CheckState::Passed, "90 MiB"},
                 {"chat", CheckState::Skipped, "the model has no chat template"}};
  good.figures = {{"first_token_ms", "ms", {10, 11, 12}},
                  {"decode_tps_1", "tokens/s", {99, 100, 101}},
                  {"peak_memory", "bytes", {1 << 20}}};
  good.ids = {5, 6, 7};
  MatrixCell bad = good;
  bad.name.model = "<script>alert(1)</script>";
  bad.checks = {{"load", CheckState::Failed, "a | b <img src=x> \x1b[2J"}};
  MatrixCell none;
  none.name = {"tiny_model", "cuda", "local"};
  none.checks = {{"plan", CheckState::Skipped, "no NVIDIA driver"}};
  result.cells = {good, bad, none};
  return result;
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

TEST(MatrixResult, ReadsWhatItWrites) {
  const MatrixResult result = sample_result();
  const std::string text = json::serialize(to_json(result));
  const Result<MatrixResult> read = parse_matrix(text);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(json::serialize(to_json(*read)), text);
  EXPECT_EQ(read->count(CheckState::Passed), 1U);
  EXPECT_EQ(read->count(CheckState::Failed), 1U);
  EXPECT_EQ(read->count(CheckState::Skipped), 1U);
  for (const char* other : {"", "[]", "{}", R"({"kind":"llorch matrix","cells":[{}]})",
                            R"({"kind":"llorch matrix","cells":[{"model":"a","backend":"b",)"
                            R"("host":"c","checks":[{"state":"odd"}]}]})"}) {
    const Result<MatrixResult> refused = parse_matrix(other);
    ASSERT_FALSE(refused.ok()) << other;
    EXPECT_THAT(refused.error().message, HasSubstr("no file of `llorch matrix --json`"));
  }
}

TEST(MatrixCompare, NoiseIsNoRegression) {
  const MatrixResult before = sample_result();
  MatrixResult now = before;
  EXPECT_THAT(compare(now, before), IsEmpty());
  // The median distance is 1 % in both: 3 % and twice two.
  EXPECT_NEAR(allowed_change(now.cells[0].figures[1], before.cells[0].figures[1]), 0.07, 1e-9);
  now.cells[0].figures[1].samples = {93, 94, 95};
  EXPECT_THAT(compare(now, before), IsEmpty());
  now.cells[0].figures[1].samples = {89, 90, 91};
  const auto slower = compare(now, before);
  ASSERT_THAT(slower, SizeIs(1));
  EXPECT_TRUE(slower[0].is_regression());
  EXPECT_THAT(slower[0].sentence, HasSubstr("decode_tps_1: 90 tokens/s, was 100 (-10.0 %"));
  now.cells[0].figures[1].samples = {119, 120, 121};
  const auto faster = compare(now, before);
  ASSERT_THAT(faster, SizeIs(1));
  EXPECT_EQ(faster[0].change, Change::Better);
  // A noisy run may differ by more.
  now.cells[0].figures[1].samples = {70, 90, 110};
  EXPECT_THAT(compare(now, before), IsEmpty());
}

TEST(MatrixCompare, MoreMillisecondsAndBytesAreWorse) {
  const MatrixResult before = sample_result();
  MatrixResult now = before;
  now.cells[0].figures[0].samples = {20, 20, 20};
  now.cells[0].figures[2].samples = {2 << 20};
  const auto differences = compare(now, before);
  ASSERT_THAT(differences, SizeIs(2));
  EXPECT_TRUE(differences[0].is_regression());
  EXPECT_TRUE(differences[1].is_regression());
}

TEST(MatrixCompare, OneOutlierExcusesNothing) {
  MatrixResult before = sample_result();
  before.cells[0].figures[1].samples = {99, 100, 101, 1200, 100};
  MatrixResult now = before;
  now.cells[0].figures[1].samples = {70, 70, 71, 69, 900};
  const auto slower = compare(now, before);
  ASSERT_THAT(slower, SizeIs(1));
  EXPECT_TRUE(slower[0].is_regression());
  EXPECT_THAT(slower[0].sentence, HasSubstr("decode_tps_1: 70 tokens/s, was 100 (-30.0 %"));
}

TEST(MatrixCompare, HalfIsNeverNoise) {
  MatrixResult before = sample_result();
  before.cells[0].figures[0].samples = {1, 10, 19};  // a noise of 90 %
  MatrixResult now = before;
  now.cells[0].figures[0].samples = {1, 14, 27};
  EXPECT_THAT(compare(now, before), IsEmpty());
  now.cells[0].figures[0].samples = {1, 16, 31};
  EXPECT_THAT(compare(now, before), SizeIs(1));
}

TEST(MatrixCompare, APeakThatIsMeasuredOnceMayDifferByALittle) {
  const MatrixResult before = sample_result();
  MatrixResult now = before;
  now.cells[0].figures[2].samples = {1.08 * (1 << 20)};
  EXPECT_THAT(compare(now, before), IsEmpty());
  now.cells[0].figures[2].samples = {1.15 * (1 << 20)};
  const auto larger = compare(now, before);
  ASSERT_THAT(larger, SizeIs(1));
  EXPECT_EQ(larger[0].what, "peak_memory");
  EXPECT_TRUE(larger[0].is_regression());
}

TEST(MatrixCompare, WhatIsNoLongerTriedIsTold) {
  MatrixResult before = sample_result();
  before.cells[0].checks[1] = {"chat", CheckState::Passed, "4 tokens"};
  MatrixResult now = before;
  now.cells[0].checks[1] = {"chat", CheckState::Skipped, "the model has no chat template"};
  now.cells[0].figures.pop_back();
  now.cells.erase(now.cells.begin() + 1);
  const auto differences = compare(now, before);
  ASSERT_THAT(differences, SizeIs(3));
  EXPECT_EQ(differences[0].sentence, "chat skipped, was passed: the model has no chat template");
  EXPECT_TRUE(differences[0].is_regression());
  EXPECT_THAT(differences[1].sentence, HasSubstr("peak_memory: not measured, was 1.049e+06 bytes"));
  EXPECT_EQ(differences[1].change, Change::NotCompared);
  EXPECT_EQ(where_of(differences[2]), "all cells");
  EXPECT_EQ(differences[2].sentence,
            "1 of the earlier run is not here: <script>alert(1)</script> on cpu of local");
  EXPECT_EQ(differences[2].change, Change::NotCompared);
}

TEST(MatrixCompare, FiguresOfOtherThingsAreNotMixed) {
  const MatrixResult before = sample_result();
  MatrixResult slow = before;
  slow.cells[0].figures[1].samples = {9, 10, 11};
  ASSERT_THAT(compare(slow, before), SizeIs(1));
  const auto why = [&](const MatrixResult& now) {
    const auto differences = compare(now, before);
    EXPECT_THAT(differences, SizeIs(1));
    EXPECT_EQ(differences.at(0).change, Change::NotCompared);
    return differences.at(0).sentence;
  };
  MatrixResult elsewhere = slow;
  elsewhere.machine = "another";
  EXPECT_EQ(why(elsewhere),
            "figures are not compared: the earlier run is of another machine, " + before.machine);
  MatrixResult quick = slow;
  quick.cells[0].is_quick = true;
  EXPECT_THAT(why(quick), HasSubstr("a quick run beside a whole one"));
  MatrixResult random = slow;
  random.cells[0].is_random = true;
  random.cells[0].ids = {1};
  EXPECT_THAT(why(random), HasSubstr("random weights beside real ones"));
  // A check that fails there too is a failure all the same; one that cannot be tried there is none.
  elsewhere.cells[0].checks[0].state = CheckState::Failed;
  EXPECT_TRUE(compare(elsewhere, before).at(1).is_regression());
  elsewhere.cells[0].checks[0].state = CheckState::Skipped;
  EXPECT_EQ(compare(elsewhere, before).at(1).change, Change::NotCompared);
}

TEST(MatrixCompare, ChecksAndIdsCount) {
  const MatrixResult before = sample_result();
  MatrixResult now = before;
  now.cells[0].checks[0] = {"plan", CheckState::Failed, "too large"};
  now.cells[0].ids = {5, 6, 8};
  now.cells[1].checks[0].state = CheckState::Passed;
  const auto differences = compare(now, before);
  ASSERT_THAT(differences, SizeIs(3));
  EXPECT_EQ(differences[0].sentence, "plan failed, was passed: too large");
  EXPECT_EQ(differences[1].what, "ids");
  EXPECT_TRUE(differences[1].is_regression());
  EXPECT_EQ(differences[2].change, Change::Better);
  // Another build may compute in another order.
  now = before;
  now.cells[0].ids = {5, 6, 8};
  now.cells[0].build = "c";
  EXPECT_THAT(compare(now, before), IsEmpty());
}

TEST(MatrixCompare, ASecondBackendIsHeldAgainstTheFirst) {
  MatrixResult result = sample_result();
  MatrixCell other = result.cells[0];
  EXPECT_EQ(compare_backends(result, other), std::nullopt) << "itself is no other";
  other.name.backend = "cuda";
  other.ids = {5, 6, 9};
  const auto parted = compare_backends(result, other);
  ASSERT_TRUE(parted);
  EXPECT_EQ(parted->state, CheckState::Passed);
  EXPECT_EQ(parted->detail, "2 of 3 greedy ids as on cpu");
  other.ids = {9, 6, 7};
  EXPECT_EQ(compare_backends(result, other)->state, CheckState::Failed);
  other.is_random = true;
  EXPECT_EQ(compare_backends(result, other)->state, CheckState::Skipped);
  other.ids.clear();
  EXPECT_EQ(compare_backends(result, other), std::nullopt);
  other.name.host = "anna";
  EXPECT_EQ(compare_backends(result, other), std::nullopt);
}

TEST(MatrixReport, SaysWhichWeightsAreRandom) {
  MatrixResult result = sample_result();
  result.cells[0].is_random = true;
  EXPECT_THAT(matrix_markdown(result), HasSubstr("| Q4\\_K\\_M, random |"));
  EXPECT_THAT(matrix_html(result, {}), HasSubstr("Q4_K_M, random"));
  const Result<MatrixResult> read = parse_matrix(json::serialize(to_json(result)));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_TRUE(read->cells[0].is_random);
  EXPECT_FALSE(read->cells[1].is_random);
}

TEST(MatrixReport, SaysWhichCellsAreQuick) {
  MatrixResult result = sample_result();
  result.cells[0].is_quick = true;
  EXPECT_THAT(matrix_markdown(result), HasSubstr(", quick |"));
  EXPECT_THAT(matrix_html(result, {}), HasSubstr("passed, quick"));
  json::Object object = to_json(result);
  const Result<MatrixResult> read = parse_matrix(json::serialize(object));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_TRUE(read->cells[0].is_quick);
  EXPECT_FALSE(read->cells[1].is_quick);
  // Older files say it of all their cells.
  object["quick"] = true;
  EXPECT_TRUE(parse_matrix(json::serialize(object))->cells[1].is_quick);
}

TEST(MatrixReport, TellsStatesFiguresAndReasons) {
  const MatrixResult result = sample_result();
  std::vector<CellName> wanted;
  for (const MatrixCell& cell : result.cells) wanted.push_back(cell.name);
  wanted.push_back({"next", "cpu", "local"});
  wanted.push_back({"later", "cpu", "local"});
  const MatrixMoment now{wanted[3], "soak", 17, 20};
  const std::string table = matrix_table(result, wanted, &now, false);
  EXPECT_THAT(table, HasSubstr("1, 1 skipped"));
  EXPECT_THAT(table, HasSubstr("17/20 soak"));
  EXPECT_THAT(table, HasSubstr("waits"));
  EXPECT_THAT(table, HasSubstr("1.00 MiB"));
  EXPECT_THAT(matrix_remarks(result, false),
              HasSubstr("skipped   plan: no NVIDIA driver\n          tiny_model (cuda)\n"));
  EXPECT_THAT(matrix_remarks(result, false), Not(HasSubstr("\x1b")));
}

TEST(MatrixReport, TheLiveTableFitsItsScreen) {
  const MatrixResult result = sample_result();
  std::vector<CellName> wanted;
  for (int i = 0; i < 50; ++i) wanted.push_back({"model" + std::to_string(i), "cpu", "local"});
  for (const int current : {0, 25, 49}) {
    const MatrixMoment now{wanted[static_cast<std::size_t>(current)], "soak", 17, 20};
    const std::string text = matrix_screen(result, wanted, now, 40, 12);
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 10);
    EXPECT_THAT(text, HasSubstr("model" + std::to_string(current) + " "));
    EXPECT_THAT(text, HasSubstr("runs"));
    std::size_t begin = 0;
    for (std::size_t end = text.find('\n'); end != std::string::npos;
         begin = end + 1, end = text.find('\n', begin))
      EXPECT_LT(base::count_scalars(text.substr(begin, end - begin)), 40U);
  }
}

TEST(MatrixReport, OfManyCellsWithOneReasonTheFirstAreNamed) {
  MatrixResult result = sample_result();
  for (int i = 0; i < 9; ++i) {
    result.cells.push_back(result.cells[2]);
    result.cells.back().name.model = "m" + std::to_string(i);
  }
  EXPECT_THAT(matrix_remarks(result, false),
              HasSubstr("tiny_model (cuda), m0 (cuda), m1 (cuda) and 7 more\n"));
}

TEST(MatrixReport, BackendsOfAModelAreHeldAgainstEachOther) {
  MatrixResult result = sample_result();
  EXPECT_THAT(agreements(result), IsEmpty()) << "the other one made no ids";
  result.cells[2].ids = {5, 6, 9};
  EXPECT_THAT(agreements(result),
              ElementsAre("tiny_model of local: cpu and cuda agree on 2 of 3 greedy ids"));
  EXPECT_THAT(matrix_remarks(result, false), HasSubstr("agree on 2 of 3"));
  EXPECT_THAT(matrix_markdown(result), HasSubstr("* tiny\\_model of local: cpu and cuda agree"));
  result.cells[2].name.host = "anna";
  EXPECT_THAT(agreements(result), IsEmpty());
}

TEST(MatrixReport, MarkdownAndHtmlTrustNoText) {
  const MatrixResult result = sample_result();
  const std::string page = matrix_markdown(result);
  EXPECT_THAT(page, HasSubstr("| tiny\\_model | Q4\\_K\\_M | - | cpu | local | passed |"));
  EXPECT_THAT(page, HasSubstr("a \\| b \\<img"));
  EXPECT_THAT(page, Not(HasSubstr("| cuda |")));
  EXPECT_THAT(page, HasSubstr("* plan: no NVIDIA driver – tiny\\_model (cuda)"));
  EXPECT_THAT(page, HasSubstr("1 cells passed, 1 failed, 1 were skipped"));
  const std::vector<Difference> worse = {{{"m", "cpu", "local"}, "x", "x <b>", Change::Worse}};
  const std::string html = matrix_html(result, worse);
  for (const char* no : {"<script", "<img", "<b>x", "http:", "https:", "\x1b", "x <b>"})
    EXPECT_THAT(html, Not(HasSubstr(no)));
  for (const char* yes : {"&lt;script&gt;", "prefers-color-scheme:dark", "<svg", "no NVIDIA driver",
                          "worse", "Processor &lt;9000&gt;"})
    EXPECT_THAT(html, HasSubstr(yes));
}

TEST(MatrixWish, NamesNeverHoldPaths) {
  EXPECT_EQ(read_matrix_model("tinyllama").name, "tinyllama");
  EXPECT_EQ(read_matrix_model("/a/b/model-Q8_0.gguf").name, "model-Q8_0");
  EXPECT_EQ(read_matrix_model("/a/b/folder/").name, "folder");
  EXPECT_EQ(read_matrix_model("mine=/a/b/hf").name, "mine");
  EXPECT_EQ(read_matrix_model("mine=/a/b/hf").ref, "/a/b/hf");
  const MatrixWish wish{
      .models = {{"a", "a"}, {"b", "b"}}, .backends = {"cpu", "cuda"}, .hosts = {"local", "anna"}};
  EXPECT_THAT(cells_of(wish), SizeIs(8));
}

}  // namespace
}  // namespace llorch::cli
