// llorch bench and llorch matrix as a user types them, with the real worker and the built-in model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <functional>
#include <sstream>

#include "base/json.h"
#include "base/process_table.h"
#include "base/version.h"
#include "support/child_process.h"
#include "support/run_program.h"
#include "support/sanitized.h"
#include "support/test_paths.h"

namespace llorch::cli {
namespace {

using test::ProgramOutcome;
using ::testing::HasSubstr, ::testing::IsEmpty, ::testing::Not;

class Home {
 public:
  std::vector<std::string> environment() const {
    return {"LLORCH_HOME=" + folder_.path().string(),
            "LLORCH_ORCHESTRATOR=", "LLORCH_POOL=", "LLORCH_CONFIG=", "LLORCH_TOKEN="};
  }
  ProgramOutcome llorch(std::vector<std::string> words) const {
    return test::run_program(LLORCH, std::move(words), environment());
  }
  std::filesystem::path operator/(std::string_view name) const { return folder_ / name; }
  std::vector<int> processes() const {
    return base::processes_with_variable(environment().front());
  }

 private:
  test::TempDir folder_;
};

std::string read(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

TEST(Bench, MeasuresAWorkerOfItsOwn) {
  const Home home;
  const std::vector<std::string> small = {"bench", "--streams", "1,2",      "-n", "4",
                                          "-p",    "8",         "--repeat", "2"};
  const ProgramOutcome text = home.llorch(small);
  ASSERT_EQ(text.exit_code, 0) << text.err;
  for (const char* words : {"builtin", "this machine, cpu", "first token", "prefill",
                            "decode, 1 stream ", "decode, 2 streams", "tokens/s ± "})
    EXPECT_THAT(text.out, HasSubstr(words));
  std::vector<std::string> as_json = small;
  as_json.emplace_back("--json");
  const ProgramOutcome object = home.llorch(as_json);
  ASSERT_EQ(object.exit_code, 0) << object.err;
  const Result<json::Value> answer = json::parse(object.out);
  ASSERT_TRUE(answer.ok()) << object.out;
  const json::Array& places = answer->at("places").get_array();
  ASSERT_EQ(places.size(), 1U);
  const json::Array& figures = places[0].at("figures").get_array();
  ASSERT_EQ(figures.size(), 4U);
  for (const json::Value& figure : figures)
    EXPECT_EQ(figure.at("samples").get_array().size(), 2U) << figure.at("name").get_string();
  EXPECT_THAT(home.processes(), IsEmpty());
}

TEST(Bench, MistakesAreNamed) {
  const Home home;
  const ProgramOutcome streams = home.llorch({"bench", "--streams", "0"});
  EXPECT_EQ(streams.exit_code, 2);
  EXPECT_THAT(streams.err, HasSubstr("expected numbers from 1 to 64"));
  const ProgramOutcome host = home.llorch({"bench", "--host", "anna"});
  EXPECT_EQ(host.exit_code, 1);
  EXPECT_THAT(host.err, HasSubstr("`llorch up` starts one"));
  const ProgramOutcome model = home.llorch({"bench", "-m", "nothing-here"});
  EXPECT_EQ(model.exit_code, 1);
  EXPECT_THAT(model.err, HasSubstr("nothing-here"));
}

TEST(Bench, CtrlCEndsItAndItsWorker) {
  const Home home;
  test::ChildProcess bench(LLORCH, {"bench", "-n", "400", "--repeat", "50"}, home.environment());
  while (home.processes().size() < 2) ASSERT_TRUE(bench.is_running());
  bench.signal(SIGINT);
  EXPECT_EQ(bench.wait(std::chrono::seconds(60)), 130);
  EXPECT_EQ(bench.out(), "");
  EXPECT_THAT(home.processes(), IsEmpty());
}

// The same result with other samples: `of` says which, by a figure's unit.
std::string with_samples(json::Value result, const std::function<double(bool is_rate)>& of) {
  for (json::Value& figure : result.at("cells").at(0).at("figures").as_array()) {
    const double sample = of(figure.at("unit") == "tokens/s");
    figure.at("samples") = json::Array{sample, sample, sample};
  }
  return json::serialize(result);
}

TEST(Matrix, TriesTheBuiltinModelAndWritesItDown) {
  const Home home;
  const std::string state = (home / "matrix.json").string();
  const std::vector<std::string> words = {"matrix",     "--quick",
                                          "--soak",     "8",
                                          "--json",     state,
                                          "--html",     (home / "matrix.html").string(),
                                          "--markdown", (home / "matrix.md").string()};
  const ProgramOutcome first = home.llorch(words);
  EXPECT_THAT(first.err, HasSubstr("builtin on cpu of local: "));
  EXPECT_THAT(first.out, HasSubstr("builtin"));
  // Files of the built-in model are inside the program.
  EXPECT_THAT(first.out, HasSubstr("skipped   checkpoints: "));
  const Result<json::Value> result = json::parse(read(home / "matrix.json"));
  ASSERT_TRUE(result.ok());
  const json::Value& cell = result->at("cells").get_array()[0];
  EXPECT_EQ(cell.at("checks").get_array().size(), 21U);
  EXPECT_GE(cell.at("figures").get_array().size(), 6U);
  bool failed = false;
  for (const json::Value& check : cell.at("checks").get_array()) {
    const bool is_memory = check.at("name") == "soak" || check.at("name") == "peak memory";
    failed |= check.at("state") == "failed";
    EXPECT_TRUE(check.at("state") != "failed" || (is_memory && test::is_sanitized()))
        << json::serialize(check);
  }
  EXPECT_EQ(first.exit_code, failed ? 1 : 0) << first.out << first.err;
  EXPECT_THAT(read(home / "matrix.md"), HasSubstr("| builtin | "));
  EXPECT_THAT(read(home / "matrix.html"), HasSubstr("<svg"));
  EXPECT_THAT(home.processes(), IsEmpty());

  // What is done is kept: the same command measures nothing again.
  const ProgramOutcome second = home.llorch(words);
  EXPECT_EQ(second.exit_code, first.exit_code) << second.err;
  EXPECT_THAT(second.err, Not(HasSubstr("builtin on cpu of local")));
  EXPECT_EQ(json::parse(read(home / "matrix.json"))->at("cells").get_array()[0], cell);

  // Beside an earlier run that was twice as fast, it is worse; beside one that was as fast, not.
  std::ofstream(home / "matrix.json") << with_samples(*result, [](bool) { return 100; });
  std::ofstream(home / "before.json")
      << with_samples(*result, [](bool is_rate) { return is_rate ? 200 : 50; });
  std::vector<std::string> beside = words;
  beside.insert(beside.end(), {"--baseline", (home / "before.json").string()});
  const ProgramOutcome worse = home.llorch(beside);
  EXPECT_EQ(worse.exit_code, 1);
  for (const char* figure : {"prefill_tps", "first_token_ms", "decode_tps_16"})
    EXPECT_THAT(worse.out, HasSubstr(std::string("worse     builtin on cpu of local: ") + figure));
  std::ofstream(home / "before.json") << with_samples(*result, [](bool) { return 100; });
  const ProgramOutcome same = home.llorch(beside);
  EXPECT_EQ(same.exit_code, first.exit_code);
  EXPECT_THAT(same.out, Not(HasSubstr("worse ")));
  // What was kept can be drawn without running anything.
  const std::string page = (home / "again.md").string();
  const ProgramOutcome shown =
      home.llorch({"matrix", "--show", (home / "matrix.json").string(), "--markdown", page});
  EXPECT_EQ(shown.exit_code, first.exit_code);
  EXPECT_THAT(shown.err, IsEmpty());
  EXPECT_THAT(shown.out, HasSubstr("builtin"));
  EXPECT_THAT(read(page), HasSubstr("| builtin |"));
}

TEST(Matrix, AFailedCellStopsNothingAndIsTriedAgainWhenAsked) {
  const Home home;
  std::ofstream(home / "broken.gguf") << "GGUF is what this is not";
  const std::string state = (home / "matrix.json").string();
  const std::vector<std::string> words = {
      "matrix",     "--models", "broken=" + (home / "broken.gguf").string() + ",none=/no/such/file",
      "--backends", "cpu",      "--json",
      state};
  const ProgramOutcome outcome = home.llorch(words);
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("broken on cpu of local: failed"));
  EXPECT_THAT(outcome.err, HasSubstr("none on cpu of local: failed"));
  EXPECT_THAT(outcome.out, HasSubstr("failed    plan: "));
  EXPECT_THAT(outcome.out, Not(HasSubstr((home / "").string()))) << "where files lie";
  EXPECT_THAT(home.llorch(words).err, IsEmpty());
  std::vector<std::string> again = words;
  again.emplace_back("--again");
  EXPECT_THAT(home.llorch(again).err, HasSubstr("broken on cpu of local: failed"));
  const ProgramOutcome printed =
      home.llorch({"matrix", "--models", "none=/no/such/file", "--backends", "cpu", "--json", "-"});
  EXPECT_EQ(printed.exit_code, 1);
  EXPECT_TRUE(json::parse(printed.out).ok()) << printed.out;
}

TEST(Matrix, CtrlCKeepsWhatIsDoneAndTheSameCommandGoesOn) {
  const Home home;
  const std::string state = (home / "matrix.json").string();
  const std::vector<std::string> words = {
      "matrix",     "--quick", "--soak",   "8",
      "--json",     state,     "--models", "none=/no/such/file,builtin",
      "--backends", "cpu"};
  test::ChildProcess matrix(LLORCH, words, home.environment());
  while (home.processes().size() < 2) ASSERT_TRUE(matrix.is_running());
  matrix.signal(SIGINT);
  EXPECT_EQ(matrix.wait(std::chrono::seconds(60)), 130);
  EXPECT_THAT(matrix.err(), HasSubstr("interrupted; the same command goes on behind the 1 cells"));
  EXPECT_THAT(home.processes(), IsEmpty());
  const Result<json::Value> kept = json::parse(read(state));
  ASSERT_TRUE(kept.ok());
  ASSERT_EQ(kept->at("cells").get_array().size(), 1U) << "no cell that is not whole";
  const ProgramOutcome rest = home.llorch(words);
  EXPECT_THAT(rest.err, Not(HasSubstr("none on cpu of local")));
  EXPECT_THAT(rest.err, HasSubstr("builtin on cpu of local: "));
  EXPECT_EQ(json::parse(read(state))->at("cells").get_array().size(), 2U);
}

TEST(Matrix, TheTwoScriptsRunIt) {
  const Home home;
  std::vector<std::string> environment = home.environment();
  environment.push_back("LLORCH_BIN=" + std::filesystem::path(LLORCH).parent_path().string());
  const std::string folder = LLORCH_SCRIPTS;
  const ProgramOutcome all = test::run_program(folder + "/test_all_models.sh",
                                               {"--models", "none=/no/such/file"}, environment);
  EXPECT_EQ(all.exit_code, 1);
  EXPECT_THAT(all.err, HasSubstr("none on cpu of local: failed"));
  EXPECT_THAT(all.err, HasSubstr("none on cuda of local: failed"));
  const ProgramOutcome one = test::run_program(
      folder + "/test_multi_model.sh", {"cpu", "--models", "none=/no/such/file"}, environment);
  EXPECT_EQ(one.exit_code, 1);
  EXPECT_THAT(one.err, HasSubstr("none on cpu of local: failed"));
  EXPECT_THAT(one.err, Not(HasSubstr("cuda")));
  const ProgramOutcome none = test::run_program(folder + "/test_multi_model.sh", {}, environment);
  EXPECT_NE(none.exit_code, 0);
  EXPECT_THAT(none.err, HasSubstr("usage: scripts/test_multi_model.sh BACKEND"));
}

TEST(Matrix, WhatIsNotHereIsSkippedWithTheReason) {
  const Home home;
  const ProgramOutcome outcome =
      home.llorch({"matrix", "--models", "tinyllama", "--hosts", "local,anna"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              HasSubstr("`llorch-pool models download tinyllama` fetches them, or --fetch"));
  EXPECT_THAT(outcome.out, HasSubstr("no orchestrator is running"));
}

// A result with one cell that passed, quick or whole.
std::string one_cell(const std::string& machine, bool is_quick) {
  return json::serialize(json::Object{
      {"kind", "llorch matrix"},
      {"version", std::string(base::version())},
      {"machine", machine},
      {"cells",
       json::Array{json::Object{
           {"model", "none"},
           {"backend", "cpu"},
           {"host", "local"},
           {"quick", is_quick},
           {"checks", json::Array{json::Object{{"name", "ids"}, {"state", "passed"}}}}}}}});
}

TEST(Matrix, QuickCellsGiveWayToWholeOnesAndOtherMachinesToThisOne) {
  const Home home;
  const std::string state = (home / "matrix.json").string();
  const std::vector<std::string> words = {
      "matrix", "--models", "none=/no/such/file", "--backends", "cpu", "--json", state};
  std::vector<std::string> quick = words;
  quick.emplace_back("--quick");
  const auto is_kept = [&](const std::string& before, const std::vector<std::string>& command) {
    std::ofstream(home / "matrix.json") << before;
    const ProgramOutcome outcome = home.llorch(command);
    EXPECT_EQ(outcome.exit_code == 0, outcome.err.find("failed") == std::string::npos);
    return outcome.exit_code == 0;
  };
  EXPECT_TRUE(is_kept(one_cell("", true), quick));
  EXPECT_TRUE(is_kept(one_cell("", false), quick));
  EXPECT_TRUE(is_kept(one_cell("", false), words));
  EXPECT_FALSE(is_kept(one_cell("", true), words));
  // A cell that is not asked for stays as it is.
  std::vector<std::string> another = words;
  another[2] = "other=/no/such/file";
  EXPECT_FALSE(is_kept(one_cell("", true), another));
  EXPECT_THAT(read(home / "matrix.json"), HasSubstr("\"none\""));
  // Speeds of another machine are none of this one.
  std::ofstream(home / "matrix.json") << one_cell("a pocket calculator", false);
  const ProgramOutcome elsewhere = home.llorch(words);
  EXPECT_EQ(elsewhere.exit_code, 1);
  EXPECT_THAT(elsewhere.err, HasSubstr("on a pocket calculator; it is begun anew"));
}

TEST(Matrix, RunsOfSeveralMachinesStandInOneFile) {
  const Home home;
  const std::string all = (home / "all.json").string();
  std::ofstream(home / "here.json") << one_cell("a pocket calculator", false);
  std::ofstream(home / "there.json") << one_cell("an abacus", false);
  const ProgramOutcome shown = home.llorch(
      {"matrix", "--show", (home / "here.json").string() + "," + (home / "there.json").string(),
       "--json", all, "--markdown", (home / "all.md").string()});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("none   cpu      machine 2  passed"));
  EXPECT_THAT(read(home / "all.md"),
              HasSubstr("machine 1: a pocket calculator; machine 2: an aba"));
  // A run would have to forget one of the two.
  const std::string before = read(all);
  const ProgramOutcome refused =
      home.llorch({"matrix", "--models", "none=/no/such/file", "--json", all});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("all.json holds cells of several machines"));
  EXPECT_EQ(read(all), before);
  EXPECT_EQ(home.llorch({"matrix", "--show", all + "," + (home / "no.json").string()}).exit_code,
            1);
}

// A known model that is not here, of random weights with the tokenizer of the built-in one.
TEST(Matrix, RandomWeightsNeedATokenizerThatFits) {
  const Home home;
  const ProgramOutcome nowhere =
      home.llorch({"matrix", "--models", "tinyllama", "--random", (home / "none").string()});
  EXPECT_EQ(nowhere.exit_code, 1);
  EXPECT_THAT(nowhere.err, HasSubstr("is no folder; expected one with a tokenizer for each model"));
  std::filesystem::create_directories(home / "tokenizers");
  std::filesystem::copy_file(LLORCH_BUILTIN_MODEL, home / "tokenizers/tinyllama.gguf");
  const ProgramOutcome outcome = home.llorch({"matrix", "--models", "tinyllama,phi3", "--backends",
                                              "cpu", "--random", (home / "tokenizers").string()});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("has 4096 tokens, expected the 32000 of tinyllama-1.1b"));
  EXPECT_THAT(outcome.out, HasSubstr("has neither phi3 nor phi3.gguf"));
}

TEST(Matrix, AFileOfAnotherKindIsLeftAlone) {
  const Home home;
  std::ofstream(home / "other.json") << "{\"mine\":1}";
  const ProgramOutcome outcome = home.llorch({"matrix", "--json", (home / "other.json").string()});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("no file of `llorch matrix --json`"));
  EXPECT_EQ(read(home / "other.json"), "{\"mine\":1}");
  const ProgramOutcome backend = home.llorch({"matrix", "--backends", "abacus"});
  EXPECT_EQ(backend.exit_code, 1);
  EXPECT_THAT(backend.err, HasSubstr("abacus"));
  const ProgramOutcome twice = home.llorch({"matrix", "--models", "a=/x,a=/y"});
  EXPECT_THAT(twice.err, HasSubstr("two models are called a"));
}

}  // namespace
}  // namespace llorch::cli
