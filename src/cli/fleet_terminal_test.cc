// What people have at their terminal: completion in the shells themselves, and `llorch top`.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "cli/fake_orchestrator.h"
#include "cli/sample_fleet.h"
#include "support/run_program.h"
#include "support/terminal_program.h"
#include "support/test_paths.h"

namespace llorch::cli {
namespace {

using test::ProgramOutcome;
using ::testing::HasSubstr, ::testing::Not, ::testing::StartsWith;

TEST(Completion, IsJsonToo) {
  const ProgramOutcome plain = test::run_program(LLORCH, {"completion", "bash"});
  const ProgramOutcome object = test::run_program(LLORCH, {"completion", "bash", "--json"});
  EXPECT_EQ(object.exit_code, 0) << object.err;
  EXPECT_EQ(json::view(json::parse(object.out)->at("script").as_string()), plain.out);
}

TEST(Completion, BashOffersWhatFitsAndAllShellsReadTheirs) {
  const test::TempDir folder;
  const auto words_after = [&folder](const std::vector<std::string>& line) {
    const std::string file = (folder / "llorch.bash").string();
    const ProgramOutcome script = test::run_program(LLORCH, {"completion", "bash"});
    std::ofstream(file) << script.out;
    std::string words;
    for (const std::string& word : line) words += " '" + word + "'";
    return test::run_program("/bin/bash", {"--norc", "-c",
                                           fmt::format("source {}; COMP_WORDS=({}); COMP_CWORD={};"
                                                       " _llorch; echo ${{COMPREPLY[@]}}",
                                                       file, words, line.size() - 1)})
        .out;
  };
  EXPECT_EQ(words_after({"llorch", "sta"}), "status\n");
  EXPECT_EQ(words_after({"llorch", "jobs", "su"}), "submit\n");
  EXPECT_EQ(words_after({"llorch", "jobs", "submit", "--model", "m", "--det"}), "--detach\n");
  EXPECT_EQ(words_after({"llorch", "--json", "keys", ""}), "add list revoke --help\n");
  for (const std::string shell : {"zsh", "fish"}) {
    const ProgramOutcome script = test::run_program(LLORCH, {"completion", shell});
    EXPECT_EQ(script.exit_code, 0) << script.err;
    EXPECT_THAT(script.out, HasSubstr("submit"));
    const std::string program = fmt::format("/usr/bin/{}", shell);
    if (!std::filesystem::exists(program)) continue;
    const std::string file = (folder / shell).string();
    std::ofstream(file) << script.out;
    const ProgramOutcome read = test::run_program(program, {"-n", file});
    EXPECT_EQ(read.exit_code, 0) << read.err;
    EXPECT_EQ(read.err, "");
  }
  const ProgramOutcome typo = test::run_program(LLORCH, {"completion", "bsh"});
  EXPECT_EQ(typo.exit_code, 2);
  EXPECT_THAT(typo.err, HasSubstr("bash"));
}

// The names that the shell would offer at the end of the line, one a line.
TEST(Completion, FishOffersWhatFits) {
  const std::string program = "/usr/bin/fish";
  if (!std::filesystem::exists(program)) GTEST_SKIP() << "fish is not installed";
  const test::TempDir folder;
  const std::string file = (folder / "llorch.fish").string();
  std::ofstream(file) << test::run_program(LLORCH, {"completion", "fish"}).out;
  const auto offers = [&](const std::string& line) {
    const ProgramOutcome said = test::run_program(
        program, {"-N", "-c", fmt::format("source {}; complete -C '{}'", file, line)},
        {"HOME=" + folder.path().string(), "XDG_CONFIG_HOME=", "XDG_DATA_HOME="});
    EXPECT_EQ(said.err, "") << line;
    return said.out;
  };
  EXPECT_THAT(offers("llorch sta"), StartsWith("status\t"));
  EXPECT_THAT(offers("llorch jobs su"), StartsWith("submit\t"));
  EXPECT_THAT(offers("llorch jobs submit --model m --det"), StartsWith("--detach\t"));
  EXPECT_THAT(offers("llorch keys "), Not(HasSubstr("submit")));
}

TEST(Completion, ZshOffersWhatFits) {
  const std::string program = "/usr/bin/zsh";
  if (!std::filesystem::exists(program)) GTEST_SKIP() << "zsh is not installed";
  const test::TempDir folder;
  std::ofstream(folder / "_llorch") << test::run_program(LLORCH, {"completion", "zsh"}).out;
  std::ofstream(folder / ".zshrc") << "PS1='ready> '\nfpath=(\"$ZDOTDIR\" $fpath)\nLISTMAX=0\n"
                                      "autoload -Uz compinit && compinit -u -D\n";
  test::TerminalProgram zsh(
      program, {"-d", "-i"},
      {"ZDOTDIR=" + folder.path().string(), "HOME=" + folder.path().string()});
  ASSERT_TRUE(zsh.shows("ready> ")) << zsh.seen();
  zsh.type("llorch jobs su\t");
  EXPECT_TRUE(zsh.shows("bmit")) << zsh.seen();  // what was typed may have been shown before
  zsh.type("--det\t");
  EXPECT_TRUE(zsh.shows("ach")) << zsh.seen();
  zsh.type("\x15llorch keys \t");
  EXPECT_TRUE(zsh.shows("revoke  -- take a key back")) << zsh.seen();
  zsh.type("\x15 exit\r");
  EXPECT_EQ(zsh.wait(), 0);
}

TEST(Top, TheCancelKeyCancelsTheJob) {
  FakeOrchestrator fake;
  const contract::FleetStatus status = sample_status();
  const std::string job = status.tasks.front().job_id;
  fake.answer(http::Method::Get, "/v2/status", json::serialize(contract::write_fields(status)));
  fake.answer(http::Method::Delete, "/v2/tasks/{id}",
              R"({"job_id":"j1","status":"cancelled","stop_ms":12.5})");
  test::TerminalProgram top(LLORCH, {"top", "--interval", "0.1"}, fake.environment());
  ASSERT_TRUE(top.shows("c cancels")) << top.seen();
  top.type("c");
  ASSERT_TRUE(top.shows("cancel " + job + "?")) << top.seen();
  top.type("n");
  ASSERT_TRUE(top.shows("c cancels")) << top.seen();
  EXPECT_FALSE(fake.was_asked("DELETE /v2/tasks/" + job)) << "only after y";
  top.type("cy");
  EXPECT_TRUE(top.shows("j1 cancelled within 1")) << top.seen();
  EXPECT_TRUE(fake.was_asked("DELETE /v2/tasks/" + job));
  top.type("q");
  EXPECT_EQ(top.wait(), 0) << top.seen();
}

// What a job waits for is shown where its answer will stand, and taken away again.
TEST(Terminal, NoticesOfAJobLeaveThePromptAndTheAnswerAlone) {
  FakeOrchestrator fake;
  fake.answer(http::Method::Post, "/v2/tasks",
              R"({"job_id":"j1","status":"queued","queue_position":1,"predicted_start_ms":5,)"
              R"("events_url":"/v2/tasks/j1/events"})",
              202);
  fake.events("/v2/tasks/{id}/events",
              "event: queued\ndata: {\"queue_position\":1,\"predicted_start_ms\":900}\n\n"
              "id: 0\nevent: started\ndata: {\"job_id\":\"j1\",\"model\":\"m\",\"started_at\":"
              "\"2026-01-01T00:00:00Z\",\"seed\":7}\n\n"
              "id: 1\nevent: token\ndata: {\"t\":\" there was\",\"i\":0,\"ids\":[1]}\n\n"
              "event: migrated\ndata: {\"from\":\"a/w\",\"to\":\"b/w\",\"at_token\":1,\"gap_ms\":3}"
              "\n\n"
              "id: 2\nevent: token\ndata: {\"t\":\" a king.\",\"i\":1,\"ids\":[2]}\n\n"
              "id: 2\nevent: end\ndata: {\"tokens_out\":2,\"decode_time_ms\":5,\"stop_reason\":"
              "\"eos\",\"stop_sequence_matched\":null,\"prompt_tokens\":3,\"seed\":7}\n\n");
  test::TerminalProgram run(LLORCH, {"run", "--raw", "-m", "m", "Once"}, fake.environment());
  EXPECT_EQ(run.wait(), 0) << run.seen();
  const std::string seen = run.seen();
  const std::size_t prompt = seen.find("Once");
  ASSERT_NE(prompt, std::string::npos) << seen;
  EXPECT_NE(seen.find("queued"), std::string::npos) << "it waited: " << seen;
  EXPECT_LT(seen.rfind("\x1b[K"), prompt) << "nothing is erased behind it: " << seen;
  EXPECT_NE(seen.find(" there was a king."), std::string::npos) << seen;
}

}  // namespace
}  // namespace llorch::cli
