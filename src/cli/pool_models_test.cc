// llorch-pool models … as a user runs it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "support/child_process.h"
#include "support/run_program.h"
#include "support/test_paths.h"

namespace llorch::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class PoolModelsTest : public testing::Test {
 protected:
  test::ProgramOutcome run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(),
                     {"LLORCH_HOME=" + (dir / "home").string(), LLORCH_POOL, "models"});
    return test::run_program("/usr/bin/env", std::move(arguments));
  }
  // Runs with --json, which must succeed and print one object.
  json::Object run_json(std::vector<std::string> arguments) const {
    arguments.emplace_back("--json");
    const test::ProgramOutcome outcome = run(std::move(arguments));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    Result<json::Value> value = json::parse(outcome.out);
    EXPECT_TRUE(value.ok()) << outcome.out;
    return value.ok() && value->is_object() ? value->get_object() : json::Object();
  }
  // The model of that id in `models catalog --json`; empty when it is not listed.
  json::Object listed(std::string_view id) const {
    const json::Object list = run_json({"catalog"});
    for (const json::Value& model : list.at("models").as_array()) {
      if (json::view(model.as_object().at("id").as_string()) == id) return model.as_object();
    }
    return {};
  }
  std::string state(std::string_view id) const {
    return std::string(json::view(listed(id).at("state").as_string()));
  }
  void copy_model(const fs::path& target) const {
    fs::create_directories(target);
    for (const char* name : {"model.safetensors", "config.json"})
      fs::copy_file(test::source_path("tests/golden/gpt2_tiny") / name, target / name);
  }

  test::TempDir dir;
};

TEST_F(PoolModelsTest, AFreshPoolListsTheBuiltInModelAndKnowsOthers) {
  const test::ProgramOutcome list = run({"list"});
  EXPECT_EQ(list.exit_code, 0) << list.err;
  EXPECT_THAT(list.out, HasSubstr("builtin"));
  EXPECT_THAT(list.out, HasSubstr("ready"));
  EXPECT_FALSE(fs::exists(dir / "home")) << "looking makes nothing";
  const test::ProgramOutcome known = run({"catalog"});
  EXPECT_EQ(known.exit_code, 0) << known.err;
  for (const char* text : {"tinyllama", "Apache-2.0", "hf:openai-community/gpt2", "cpu, cuda"})
    EXPECT_THAT(known.out, HasSubstr(text));
  EXPECT_GT(run_json({"catalog"}).at("known").as_array().size(), 10U);
  EXPECT_EQ(run_json({"catalog"}).at("models").as_array().size(), 1U) << "this pool's own";
}

TEST_F(PoolModelsTest, ListIsWhatIsHereAndCatalogAllThatIsKnown) {
  ASSERT_EQ(
      run({"register", "later", "--repo", "hf:org/repo", "--architecture", "llama"}).exit_code, 0);
  EXPECT_THAT(run({"list"}).out, Not(HasSubstr("later ")));
  EXPECT_THAT(run({"list"}).out, HasSubstr("1 more in the catalog"));
  const std::string catalog = run({"catalog"}).out;
  EXPECT_LT(catalog.find("later "), catalog.find("Can be fetched by name"));
  ASSERT_EQ(run({"register", "tinyllama", "--repo", "hf:org/repo"}).exit_code, 0);
  const std::string own = run({"catalog"}).out;
  EXPECT_EQ(own.find("\ntinyllama "), own.rfind("\ntinyllama ")) << "once, in this pool's own part";
}

TEST_F(PoolModelsTest, APoolThatIsNamedAndSilentIsAnErrorForEveryCommand) {
  copy_model(dir / "files");
  const std::string path = (dir / "files").string();
  for (const std::vector<std::string>& command : {std::vector<std::string>{"list"},
                                                  {"catalog"},
                                                  {"show", "x"},
                                                  {"unregister", "x"},
                                                  {"register", "x", "--path", path},
                                                  {"update", "x", "--name", "y"},
                                                  {"rm", "x"},
                                                  {"outdated"},
                                                  {"verify"}}) {
    std::vector<std::string> arguments = command;
    arguments.insert(arguments.end(), {"--pool", "http://127.0.0.1:1"});
    const test::ProgramOutcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 1) << command[0];
    EXPECT_THAT(outcome.err, HasSubstr("no pool manager answers at http://127.0.0.1:1"))
        << command[0];
  }
  EXPECT_FALSE(fs::exists(dir / "home/catalog.json")) << "nothing was done elsewhere instead";
}

TEST_F(PoolModelsTest, AModelsWholeLife) {
  copy_model(dir / "files");
  const test::ProgramOutcome added =
      run({"register", "mine", "--path", (dir / "files").string(), "--name", "My model"});
  EXPECT_EQ(added.exit_code, 0) << added.err;
  EXPECT_EQ(added.out, "registered mine: My model, gpt2 F32, 388 KiB, runs on cpu, cuda\n");
  EXPECT_EQ(state("mine"), "ready");
  EXPECT_THAT(run({"show", "mine"}).out, HasSubstr("model.safetensors"));

  std::ofstream(dir / "files/config.json", std::ios::app) << "\n";
  EXPECT_EQ(state("mine"), "changed");
  EXPECT_EQ(run({"update", "mine", "--downloaded", "true"}).exit_code, 0);
  EXPECT_EQ(state("mine"), "ready");

  EXPECT_EQ(run({"update", "mine", "--downloaded", "false"}).exit_code, 0);
  EXPECT_EQ(state("mine"), "not_downloaded");
  EXPECT_EQ(run({"update", "mine", "--downloaded", "true", "--repo", "org/repo"}).exit_code, 0);
  EXPECT_THAT(run({"show", "mine"}).out, HasSubstr("hf:org/repo"));

  fs::remove(dir / "files/model.safetensors");
  EXPECT_EQ(state("mine"), "missing");
  const test::ProgramOutcome gone = run({"update", "mine", "--downloaded", "true"});
  EXPECT_EQ(gone.exit_code, 1);
  EXPECT_TRUE(gone.err.starts_with("llorch-pool: ")) << gone.err;

  const test::ProgramOutcome forgot = run({"unregister", "mine"});
  EXPECT_EQ(forgot.exit_code, 0) << forgot.err;
  EXPECT_THAT(forgot.out, HasSubstr("forgot mine; its files stay at"));
  EXPECT_TRUE(listed("mine").empty());
  EXPECT_TRUE(fs::exists(dir / "files/config.json"));
}

TEST_F(PoolModelsTest, MistakesAreNamedWithTheNextStep) {
  copy_model(dir / "files");
  ASSERT_EQ(run({"register", "mine", "--path", (dir / "files").string()}).exit_code, 0);
  struct Case {
    std::vector<std::string> arguments;
    int exit_code;
    std::string_view expected;
  };
  for (const Case& c : {
           Case{{"register", "mine", "--repo", "hf:a/b"}, 1, "registered already"},
           Case{{"register", "x"}, 2, "neither a path nor a repo"},
           Case{{"register", "x", "--repo", "gopher://x"}, 2, "no model reference"},
           Case{{"register", "a/b", "--repo", "hf:a/b"}, 2, "no model id"},
           Case{{"register", "builtin", "--repo", "hf:a/b"}, 1, "part of the program"},
           Case{{"register", "x", "--path", (dir / "files").string(), "--architecture", "llama"},
                2,
                "says \"gpt2\""},
           Case{{"update", "mien", "--name", "x"}, 1, "did you mean mine?"},
           Case{{"update", "mine", "--downloaded", "maybe"}, 2, "true"},
           Case{{"show", "tinyllama"}, 1, "models download tinyllama"},
           Case{{"rm", "nothing-like-it"}, 1, "models list"},
           Case{{"rm", "builtin"}, 1, "part of the program"},
           Case{{"rm"}, 2, "ID"},
       }) {
    const test::ProgramOutcome outcome = run(c.arguments);
    EXPECT_EQ(outcome.exit_code, c.exit_code) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(std::string(c.expected)));
    EXPECT_EQ(outcome.out, "");
  }
}

TEST_F(PoolModelsTest, WhatWasMistypedIsNamedWithTheNearest) {
  const auto err_of = [this](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"LLORCH_HOME=" + (dir / "home").string(), LLORCH_POOL});
    const test::ProgramOutcome outcome = test::run_program("/usr/bin/env", std::move(arguments));
    EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
    return outcome.err;
  };
  EXPECT_THAT(err_of({"worker", "spawn", "cpux", "--model", "builtin"}),
              HasSubstr("BACKEND is \"cpux\", expected cpu or cuda; did you mean cpu?"));
  EXPECT_THAT(err_of({"worker", "spawn", "cpu", "--model", "builtin", "--kv", "q8_1"}),
              HasSubstr("--kv is \"q8_1\", expected f16 or q8_0; did you mean q8_0?"));
  EXPECT_THAT(err_of({"worker", "spawn", "cpu", "--model", "builtin", "--ctx", "0"}),
              HasSubstr("llorch-pool: --ctx"));
  EXPECT_THAT(err_of({"models", "download", "hf:a/b", "--sha265", "12"}),
              HasSubstr("there is no option \"--sha265\"; did you mean --sha256?"));
}

TEST_F(PoolModelsTest, WhatTheEnvironmentSaysWronglyIsBlamedOnIt) {
  const auto err_of = [this](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "LLORCH_HOME=" + (dir / "home").string());
    const test::ProgramOutcome outcome = test::run_program("/usr/bin/env", std::move(arguments));
    EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
    return outcome.err;
  };
  EXPECT_THAT(err_of({"LLORCH_POOL=odd", LLORCH_POOL, "status"}),
              HasSubstr("LLORCH_POOL: URL 'odd' does not begin with"));
  EXPECT_THAT(err_of({"LLORCH_CA_FILE=/nope", LLORCH_POOL, "status"}),
              HasSubstr("LLORCH_CA_FILE: "));
  EXPECT_THAT(err_of({LLORCH_POOL, "models", "list", "--ca-file", "/nope"}),
              HasSubstr("--ca-file: "));
}

TEST_F(PoolModelsTest, FilesThatAreNoModelAreFailuresNotMistakes) {
  std::ofstream(dir / "damaged.gguf") << "GGUF, or so it says";
  fs::create_symlink(dir / "loop", dir / "loop");
  for (const std::string& path :
       {(dir / "damaged.gguf").string(), (dir / "loop").string(), std::string("/dev/null")}) {
    const test::ProgramOutcome outcome = run({"register", "x", "--path", path});
    EXPECT_EQ(outcome.exit_code, 1) << path;
    EXPECT_THAT(outcome.err, HasSubstr(path));
  }
  fs::create_directories(dir / "home/catalog.json");
  const test::ProgramOutcome outcome = run({"register", "x", "--repo", "hf:a/b"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("not a regular file"));
}

TEST_F(PoolModelsTest, AnAddressThatIsNoneIsUsage) {
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"models", "list"}, {"worker", "list"}, {"health"}}) {
    std::vector<std::string> arguments = {"LLORCH_HOME=" + (dir / "home").string(), LLORCH_POOL};
    arguments.insert(arguments.end(), command.begin(), command.end());
    arguments.insert(arguments.end(), {"--pool", "zz"});
    const test::ProgramOutcome outcome = test::run_program("/usr/bin/env", std::move(arguments));
    EXPECT_EQ(outcome.exit_code, 2) << command[0];
    EXPECT_THAT(outcome.err, HasSubstr("--pool: URL 'zz' does not begin with http://"));
  }
}

// Those that the list has forgotten are known by their logs.
TEST_F(PoolModelsTest, WorkerListAllShowsWhatLeftALog) {
  fs::create_directories(dir / "home/logs");
  std::ofstream(dir / "home/logs/worker-cuda-3.log") << "the end\n";
  const auto list = [this](const char* flag) {
    return test::run_program("/usr/bin/env", {"LLORCH_HOME=" + (dir / "home").string(), LLORCH_POOL,
                                              "worker", "list", flag})
        .out;
  };
  EXPECT_THAT(list("--all"), testing::AllOf(HasSubstr("worker-cuda-3"), HasSubstr("stopped")));
  EXPECT_THAT(list("--json"), Not(HasSubstr("worker-cuda-3")));
}

// While a worker runs it, it stays: tests/pool.
TEST_F(PoolModelsTest, RmDeletesWhatWasDownloaded) {
  const fs::path folder = dir / "home/models/mine";
  copy_model(folder);
  ASSERT_EQ(run({"register", "mine", "--path", folder.string()}).exit_code, 0);
  const test::ProgramOutcome removed = run({"rm", "mine"});
  EXPECT_EQ(removed.exit_code, 0) << removed.err;
  EXPECT_EQ(removed.out, "removed mine\n");
  EXPECT_FALSE(fs::exists(folder));
  EXPECT_TRUE(listed("mine").empty());
}

TEST_F(PoolModelsTest, RmOfFilesInPlaceKeepsThem) {
  copy_model(dir / "files");
  ASSERT_EQ(run({"register", "mine", "--path", (dir / "files").string()}).exit_code, 0);
  const json::Object removed = run_json({"rm", "mine"});
  EXPECT_FALSE(removed.at("files_deleted").as_bool());
  EXPECT_EQ(json::view(removed.at("files_kept_at").as_string()), (dir / "files").string());
  EXPECT_TRUE(fs::exists(dir / "files/model.safetensors"));
}

TEST_F(PoolModelsTest, ADamagedCatalogIsAnErrorForEveryCommand) {
  fs::create_directories(dir / "home");
  std::ofstream(dir / "home/catalog.json") << "{\"version\":\"1.0\",\n\"models\":[,]}";
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"list"}, {"catalog"}, {"show", "x"}, {"unregister", "x"}}) {
    const test::ProgramOutcome outcome = run(command);
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_THAT(outcome.err, HasSubstr("line 2, column 11"));
  }
}

TEST_F(PoolModelsTest, WhatAFileSaysCannotCommandATerminal) {
  fs::create_directories(dir / "home");
  std::ofstream(dir / "home/catalog.json")
      << R"({"version":"1.0","pool_id":"p","models":[{"id":"evil","name":"a\u001b[2Jb\nc"}]})";
  for (const char* command : {"catalog", "show"}) {
    std::vector<std::string> arguments = {command};
    if (arguments[0] == "show") arguments.emplace_back("evil");
    const test::ProgramOutcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("evil"));
    EXPECT_EQ(outcome.out.find('\x1b'), std::string::npos);
  }
}

TEST_F(PoolModelsTest, EveryCommandHasExamples) {
  for (const char* command :
       {"list", "catalog", "show", "register", "update", "unregister", "rm"}) {
    const test::ProgramOutcome help = run({command, "--help"});
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_THAT(help.out, HasSubstr(fmt::format("llorch-pool models {}", command)));
    EXPECT_THAT(help.out, HasSubstr("Examples:"));
  }
}

TEST_F(PoolModelsTest, ShellsCompleteCommandsAndFlags) {
  const std::string file = dir / "llorch-pool.bash";
  const test::ProgramOutcome script = test::run_program(LLORCH_POOL, {"completion", "bash"});
  ASSERT_EQ(script.exit_code, 0) << script.err;
  std::ofstream(file) << script.out;
  const auto words_after = [&](const std::string& line, int count) {
    return test::run_program(
               "/bin/bash",
               {"--norc", "-c",
                fmt::format("source {}; COMP_WORDS=(llorch-pool {}); COMP_CWORD={}; "
                            "$(complete -p llorch-pool | sed 's/.*-F \\([^ ]*\\).*/\\1/'); echo "
                            "${{COMPREPLY[@]}}",
                            file, line, count)})
        .out;
  };
  EXPECT_EQ(words_after("models regi", 2), "register\n");
  EXPECT_EQ(words_after("worker spawn --mo", 3), "--model\n");
  const test::ProgramOutcome zsh = test::run_program(LLORCH_POOL, {"completion", "zsh"});
  EXPECT_THAT(zsh.out, HasSubstr("#compdef llorch-pool\n"));
  EXPECT_THAT(zsh.out, HasSubstr("compdef _llorch-pool llorch-pool"));
  const test::ProgramOutcome fish =
      test::run_program(LLORCH_POOL, {"completion", "fish", "--json"});
  const Result<json::Value> object = json::parse(fish.out);
  ASSERT_TRUE(object.ok()) << fish.out;
  const std::string words(json::view(object->at("script").as_string()));
  EXPECT_THAT(words, HasSubstr("complete -c llorch-pool -n \"__llorch_pool_at ' models'\""));
  if (fs::exists("/usr/bin/fish")) {
    std::ofstream(dir / "words.fish") << words;
    EXPECT_EQ(test::run_program("/usr/bin/fish", {"-n", dir / "words.fish"}).err, "");
  }
}

TEST_F(PoolModelsTest, AnOutputThatCannotBeWrittenIsAFailure) {
  const test::ProgramOutcome full = test::run_program(
      "/bin/sh", {"-c", "LLORCH_HOME=/nonexistent \"$0\" models list >/dev/full", LLORCH_POOL});
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_THAT(full.err, HasSubstr("cannot be written"));
}

}  // namespace
}  // namespace llorch::cli
