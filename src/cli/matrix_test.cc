#include "cli/matrix.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/utf8.h"
#include "cli/matrix_report.h"
#include "cli/matrix_run.h"

namespace llorch::cli {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr, ::testing::IsEmpty, ::testing::Not,
    ::testing::SizeIs;

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
  for (MatrixCell& cell : result.cells) {
    cell.machine = result.machine;
    cell.made_at = result.made_at;
  }
  return result;
}

MatrixResult of_machine(MatrixResult result, const std::string& machine) {
  result.machine = machine;
  for (MatrixCell& cell : result.cells) cell.machine = machine;
  return result;
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
  // In older files the file alone names the machine.
  EXPECT_EQ(parse_matrix(R"({"kind":"llorch matrix","machine":"m","cells":)"
                         R"([{"model":"a","backend":"b","host":"c"}]})")
                ->cells[0]
                .machine,
            "m");
  const char* const odd_state =
      R"({"kind":"llorch matrix","cells":[{"model":"a","backend":"b","host":"c",)"
      R"("checks":[{"state":"odd"}]}]})";
  for (const char* other :
       {"", "[]", "{}", R"({"kind":"llorch matrix","cells":[{}]})", odd_state}) {
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
  elsewhere = of_machine(elsewhere, "another");
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

// Two machines: the first without a card, the second with one.
std::vector<MatrixResult> two_machines() {
  MatrixResult here = of_machine(sample_result(), "small one");
  here.cells[0].size_bytes = 100;
  MatrixResult there = of_machine(sample_result(), "one | with a card");
  there.made_at = "2026-11-17T12:00:00.000Z";
  there.cells = {there.cells[0]};
  there.cells[0].name.backend = "cuda";
  there.cells[0].made_at = there.made_at;
  there.cells[0].size_bytes = 100;
  there.cells[0].ids = {5, 6, 9};
  return {here, there};
}

TEST(MatrixMachines, ArePutTogetherAndKeptApart) {
  const MatrixResult all = put_together(two_machines());
  ASSERT_THAT(all.cells, SizeIs(3)) << "cuda, which the first could not try, is the second's";
  EXPECT_EQ(all.cells[2].machine, "one | with a card");
  EXPECT_EQ(all.made_at, "2026-11-17T12:00:00.000Z");
  EXPECT_THAT(machines_of(all), ElementsAre("small one", "one | with a card"));
  EXPECT_EQ(place_of(all, all.cells[2]), "machine 2");
  // Written and read again each cell keeps its machine, and put together again nothing changes.
  const std::string text = json::serialize(to_json(all));
  const Result<MatrixResult> read = parse_matrix(text);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(json::serialize(to_json(*read)), text);
  EXPECT_EQ(json::serialize(to_json(put_together({*read, *read}))), text);
  // The later run of a machine takes the place of the earlier one.
  MatrixResult later = two_machines()[1];
  later.cells[0].ids = {1};
  const MatrixResult newer = put_together({all, later});
  ASSERT_THAT(newer.cells, SizeIs(3));
  EXPECT_THAT(newer.cells[2].ids, ElementsAre(1));
  // One result alone speaks of no machines by number.
  const MatrixResult alone = put_together({two_machines()[0]});
  EXPECT_EQ(place_of(alone, alone.cells[0]), "local");
  EXPECT_THAT(alone.cells, SizeIs(3));
}

TEST(MatrixMachines, StandBesideEachOtherOnThePages) {
  const MatrixResult all = put_together(two_machines());
  const std::string page = matrix_markdown(all);
  EXPECT_THAT(page, HasSubstr("on machine 1: small one, 2026-11-16; machine 2: one \\| with a "
                              "card, 2026-11-17."));
  EXPECT_THAT(page, HasSubstr("| cuda | machine 2 | passed |"));
  EXPECT_THAT(page, HasSubstr("cpu of machine 1 and cuda of machine 2 agree on 2 of 3 greedy"));
  EXPECT_THAT(page, Not(HasSubstr("Nothing was tried on cuda")));
  const std::string html = matrix_html(all, {});
  EXPECT_THAT(html, HasSubstr("<br>machine 2: one | with a card</div>"));
  EXPECT_THAT(html, HasSubstr("tiny_model, cuda of machine 2</text>"));
  EXPECT_THAT(html, HasSubstr("tiny_model on cuda of machine 2 <span"));
  EXPECT_THAT(matrix_table(all, {}, nullptr, false), HasSubstr("cuda     machine 2  passed"));
  // Other weights of that name say nothing about each other.
  std::vector<MatrixResult> unlike = two_machines();
  unlike[1].cells[0].size_bytes = 101;
  EXPECT_THAT(agreements(put_together(std::move(unlike))), IsEmpty());
}

TEST(MatrixMachines, AreComparedWithThemselves) {
  const MatrixResult all = put_together(two_machines());
  EXPECT_THAT(compare(all, all), IsEmpty());
  MatrixResult now = two_machines()[1];
  now.cells[0].figures[1].samples = {49, 50, 51};
  const auto slower = compare(now, all);
  ASSERT_THAT(slower, SizeIs(2)) << "and the cells that are not here";
  EXPECT_EQ(slower[0].what, "decode_tps_1");
  // Beside other machines' cells alone no figure is compared, which is said once.
  now.cells[0].machine = "a third";
  const auto elsewhere = compare(now, all);
  ASSERT_THAT(elsewhere, SizeIs(2));
  EXPECT_EQ(elsewhere[0].what, "machine");
}

TEST(MatrixReport, SaysWhichWeightsAreRandom) {
  MatrixResult result = sample_result();
  EXPECT_THAT(matrix_markdown(result), Not(HasSubstr("## Random weights")));
  result.cells[0].is_random = true;
  result.cells[0].checks.push_back({"draw", CheckState::Passed, "of the shape x, tokenizer y"});
  EXPECT_THAT(matrix_markdown(result), HasSubstr("| Q4\\_K\\_M, random |"));
  EXPECT_THAT(
      matrix_markdown(result),
      HasSubstr("## Random weights\n\n* draw: of the shape x, tokenizer y – tiny\\_model (cpu)\n"));
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

TEST(MatrixReport, ABackendThatWasNeverTriedIsNotHidden) {
  MatrixResult result = sample_result();
  EXPECT_THAT(untried_backends(result),
              ElementsAre("Nothing was tried on cuda: no NVIDIA driver."));
  EXPECT_THAT(matrix_markdown(result),
              HasSubstr("\n**Nothing was tried on cuda: no NVIDIA driver.**\n\n| model |"));
  EXPECT_THAT(matrix_html(result, {}), HasSubstr("Nothing was tried on cuda: no NVIDIA driver."));
  result.cells[2].checks[0].state = CheckState::Failed;
  EXPECT_THAT(untried_backends(result), IsEmpty());
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
