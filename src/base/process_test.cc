#include "base/process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <fstream>
#include <functional>
#include <string>

#include "base/interrupt.h"
#include "support/eventually.h"
#include "support/test_paths.h"

namespace llorch::base {
namespace {

using ::llorch::test::eventually;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::EndsWith, ::testing::HasSubstr;

std::unique_ptr<Process> start_shell(const std::string& script, std::size_t tail_bytes = 4096) {
  ProcessOptions options;
  options.program = "/bin/sh";
  options.arguments = {"-c", script};
  options.output_tail_bytes = tail_bytes;
  options.dies_with_parent = true;
  Result<std::unique_ptr<Process>> process = Process::spawn(options);
  EXPECT_TRUE(process.ok()) << process.error().message;
  return process.take();
}

bool is_running(int pid) {
  return ::kill(pid, 0) == 0;
}

// Gone, or a zombie that only waits for whoever inherited it.
bool is_dead(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string id;
  std::string name;
  std::string state;
  if (!(file >> id >> name >> state)) return true;
  return state == "Z" || state == "X";
}

int number_in(const std::string& text) {
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

TEST(Process, ReportsCodeAndOutput) {
  const auto process = start_shell("echo out; echo err >&2; exit 3");
  const auto status = process->wait_for(seconds(10));
  ASSERT_TRUE(status.has_value());
  EXPECT_EQ(*status, (ExitStatus{3, 0}));
  EXPECT_FALSE(status->success());
  EXPECT_EQ(status->describe(), "exited with code 3");
  EXPECT_EQ(process->output_tail(), "out\nerr\n");
  EXPECT_EQ(process->wait_for(milliseconds(0)), status) << "the answer stays";
  EXPECT_FALSE(is_running(process->pid())) << "not waited for";
}

TEST(Process, KeepsTheEndOfLongOutput) {
  const auto process =
      start_shell("i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done", 100);
  ASSERT_TRUE(process->wait_for(seconds(10)).has_value());
  EXPECT_EQ(process->output_tail().size(), 100U);
  EXPECT_THAT(process->output_tail(), EndsWith("line 1999\n"));
}

TEST(Process, SaysWhyItCannotStart) {
  const test::TempDir folder;
  ProcessOptions options;
  options.program = folder / "absent";
  const auto absent = Process::spawn(options);
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code, ErrorCode::NotFound);
  EXPECT_THAT(absent.error().message, HasSubstr("absent cannot be started: No such file"));

  options.program = folder / "data";
  std::ofstream(options.program) << "no program";
  const auto data = Process::spawn(options);
  ASSERT_FALSE(data.ok());
  EXPECT_EQ(data.error().code, ErrorCode::Forbidden);
}

TEST(Process, StopAsksBeforeItKills) {
  const auto polite = start_shell("trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done");
  ASSERT_TRUE(eventually([&] { return polite->output_tail() == "ready\n"; }));
  EXPECT_EQ(polite->stop(seconds(10)), (ExitStatus{7, 0}));

  const auto stubborn = start_shell("trap '' TERM; echo ready; while :; do sleep 0.01; done");
  ASSERT_TRUE(eventually([&] { return stubborn->output_tail() == "ready\n"; }));
  EXPECT_EQ(stubborn->stop(milliseconds(50)), (ExitStatus{0, SIGKILL}));
}

TEST(Process, TakesItsWholeGroupAlong) {
  // The child leaves a grandchild behind, which holds the output open.
  const auto process = start_shell("sleep 1000 & echo $!; exit 0");
  ASSERT_TRUE(process->wait_for(seconds(10)).has_value());
  const int grandchild = number_in(process->output_tail());
  ASSERT_GT(grandchild, 0);
  EXPECT_TRUE(eventually([&] { return is_dead(grandchild); }));
}

TEST(Process, TheDestructorLeavesNothing) {
  int pid = 0;
  {
    const auto process = start_shell("exec sleep 1000");
    pid = process->pid();
    EXPECT_TRUE(is_running(pid));
  }
  EXPECT_FALSE(is_running(pid));
  EXPECT_EQ(::waitpid(pid, nullptr, WNOHANG), -1);
}

TEST(Process, StartsWithDefaultSignals) {
  // Blocked here, and yet the child is ended by it.
  const InterruptWatch watch([] {});
  const auto process = start_shell("exec sleep 1000");
  process->send_signal(SIGINT);
  EXPECT_EQ(process->wait_for(seconds(10)), (ExitStatus{0, SIGINT}));
}

TEST(Process, InheritsNoOtherFiles) {
  // Without O_CLOEXEC on purpose.
  const int leaked = ::dup(STDERR_FILENO);
  const auto process =
      start_shell("if [ -e /proc/self/fd/" + std::to_string(leaked) + " ]; then echo there; fi");
  ASSERT_TRUE(process->wait_for(seconds(10)).has_value());
  ::close(leaked);
  EXPECT_EQ(process->output_tail(), "");
}

// The process that `start` starts in a parent which is then killed without a chance to clean up; 0
// where there is none.
template <class Start>
pid_t left_behind(const Start& start) {
  std::array<int, 2> fds{};
  EXPECT_EQ(::pipe(fds.data()), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    start([&](int pid) {
      if (::write(fds[1], &pid, sizeof pid) != static_cast<ssize_t>(sizeof pid)) ::_exit(1);
      ::raise(SIGKILL);
    });
    ::_exit(1);
  }
  ::close(fds[1]);
  int child = 0;
  EXPECT_EQ(::read(fds[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
  EXPECT_EQ(::waitpid(parent, nullptr, 0), parent);
  ::close(fds[0]);
  return child;
}

TEST(Process, DiesWithItsParent) {
  const pid_t child =
      left_behind([](const auto& die) { die(start_shell("exec sleep 1000")->pid()); });
  ASSERT_GT(child, 0);
  EXPECT_TRUE(eventually([&] { return is_dead(child); }));
}

TEST(Process, HasTheEnvironmentItIsGiven) {
  ProcessOptions options;
  options.program = "/bin/sh";
  options.arguments = {"-c", "echo \"$ONE,$HOME\""};
  options.environment = {"ONE=1"};
  std::string seen;
  options.on_output = [&seen](std::string_view bytes) { seen += bytes; };
  const auto process = Process::spawn(options);
  ASSERT_TRUE(process.ok());
  ASSERT_TRUE((*process)->wait_for(seconds(10)).has_value());
  EXPECT_EQ((*process)->output_tail(), "1,\n");
  EXPECT_EQ(seen, "1,\n");
}

TEST(Process, AListenerThatThrowsLosesWhatItWasToldAndNothingElse) {
  ProcessOptions options;
  options.program = "/bin/sh";
  options.arguments = {"-c", "echo one"};
  options.on_output = [](std::string_view) { throw std::bad_alloc(); };
  const auto process = Process::spawn(options);
  ASSERT_TRUE(process.ok());
  const std::optional<ExitStatus> status = (*process)->wait_for(seconds(10));
  ASSERT_TRUE(status.has_value());
  EXPECT_TRUE(status->success()) << status->describe();
  EXPECT_EQ((*process)->output_tail(), "");
}

TEST(HeldProcess, RunsWhenItIsReleased) {
  const test::TempDir folder;
  const auto held =
      HeldProcess::spawn("/bin/sh", {"-c", "echo $$,$MARK > " + (folder / "ran").string()},
                         {"MARK=held", "PATH=/usr/bin:/bin"});
  ASSERT_TRUE(held.ok()) << held.error().message;
  const ProcessIdentity identity = (*held)->identity();
  EXPECT_TRUE(base::is_running(identity));
  EXPECT_FALSE(std::filesystem::exists(folder / "ran"));
  const auto handle = (*held)->release();
  ASSERT_TRUE(handle.ok()) << handle.error().message;
  ASSERT_TRUE(eventually([&] { return handle->has_ended(); }));
  std::string line;
  std::getline(std::ifstream(folder / "ran") >> std::ws, line);
  EXPECT_EQ(line, std::to_string(identity.pid) + ",held");
  EXPECT_EQ(::waitpid(identity.pid, nullptr, WNOHANG), -1) << "a zombie stayed";
}

TEST(HeldProcess, EndsUnusedWhenItIsNotReleased) {
  const test::TempDir folder;
  int pid = 0;
  {
    const auto held =
        HeldProcess::spawn("/bin/sh", {"-c", "echo > " + (folder / "ran").string()}, {});
    ASSERT_TRUE(held.ok());
    pid = (*held)->identity().pid;
  }
  EXPECT_FALSE(is_running(pid));
  EXPECT_FALSE(std::filesystem::exists(folder / "ran"));
}

TEST(HeldProcess, EndsUnusedWhenItsParentIsKilled) {
  const test::TempDir folder;
  const pid_t child = left_behind([&](const auto& die) {
    const auto held =
        HeldProcess::spawn("/bin/sh", {"-c", "echo > " + (folder / "ran").string()}, {});
    die(held.ok() ? (*held)->identity().pid : 0);
  });
  ASSERT_GT(child, 0);
  EXPECT_TRUE(eventually([&] { return is_dead(child); }));
  EXPECT_FALSE(std::filesystem::exists(folder / "ran"));
}

TEST(HeldProcess, LivesOnWhenItsParentIsKilledAfterwards) {
  const pid_t child = left_behind([](const auto& die) {
    auto held = HeldProcess::spawn("/bin/sleep", {"1000"}, {});
    die(held.ok() && (*held)->release().ok() ? (*held)->identity().pid : 0);
  });
  ASSERT_GT(child, 0);
  const auto identity = identify_process(child);
  ASSERT_TRUE(identity.has_value());
  EXPECT_EQ(::getsid(child), child);
  const auto handle = ProcessHandle::open(*identity);
  ASSERT_TRUE(handle.ok());
  EXPECT_FALSE(handle->has_ended());
  handle->send_signal(SIGKILL);
  EXPECT_TRUE(eventually([&] { return handle->has_ended(); }));
  EXPECT_FALSE(base::is_running(*identity));
}

TEST(HeldProcess, SaysWhyItCannotRun) {
  const test::TempDir folder;
  const auto held = HeldProcess::spawn(folder / "absent", {}, {});
  ASSERT_TRUE(held.ok());
  const auto released = (*held)->release();
  ASSERT_FALSE(released.ok());
  EXPECT_EQ(released.error().code, ErrorCode::NotFound);
}

TEST(ProcessTable, TellsARecycledNumberFromTheSameProcess) {
  const auto process = start_shell("exec sleep 1000");
  const std::optional<ProcessIdentity> identity = identify_process(process->pid());
  ASSERT_TRUE(identity.has_value());
  EXPECT_TRUE(ProcessHandle::open(*identity).ok());
  ProcessIdentity other = *identity;
  other.start_ticks -= 1;
  EXPECT_FALSE(base::is_running(other));
  EXPECT_EQ(ProcessHandle::open(other).error().code, ErrorCode::NotFound);
  other = *identity;
  other.boot_id = "another boot";
  EXPECT_EQ(ProcessHandle::open(other).error().code, ErrorCode::NotFound);
}

TEST(ProcessTable, FindsProcessesByWhatTheyInherit) {
  // Its own for each run: several may be under way on one machine.
  const std::string mark = "LLORCH_TEST_MARK=a1b2-" + std::to_string(::getpid());
  ProcessOptions options;
  options.program = "/bin/sh";
  options.arguments = {"-c", "setsid sleep 1000 & echo $!; wait"};
  options.environment = {"PATH=/usr/bin:/bin", mark};
  const auto process = Process::spawn(options);
  ASSERT_TRUE(process.ok());
  ASSERT_TRUE(eventually([&] { return processes_with_variable(mark).size() == 2U; }));
  EXPECT_TRUE(processes_with_variable(mark.substr(0, mark.size() - 1)).empty());
  EXPECT_EQ(children_of((*process)->pid()).size(), 1U);
  EXPECT_TRUE(has_variable((*process)->pid(), "LLORCH_TEST_MARK"));
  EXPECT_FALSE(has_variable((*process)->pid(), "LLORCH_TEST")) << "not by its beginning";
  EXPECT_FALSE(has_variable((*process)->pid(), "TEST_MARK")) << "nor by its end";
  for (const int pid : processes_with_variable(mark)) ::kill(pid, SIGKILL);
  EXPECT_TRUE(eventually([&] { return processes_with_variable(mark).empty(); }));
}

TEST(ProcessTable, NamesTheProgramAlsoOnceItIsReplaced) {
  const test::TempDir folder;
  const std::filesystem::path program = folder / "program";
  std::filesystem::copy_file("/bin/sleep", program);
  const auto process = Process::spawn({.program = program, .arguments = {"1000"}});
  ASSERT_TRUE(process.ok());
  const int pid = (*process)->pid();
  EXPECT_TRUE(eventually([&] { return program_of(pid) == program; }));
  std::filesystem::copy_file("/bin/sleep", folder / "newer");
  std::filesystem::rename(folder / "newer", program);
  EXPECT_EQ(program_of(pid), program.string() + " (deleted)");
  (*process)->send_signal(SIGKILL);
  EXPECT_TRUE((*process)->wait_for(seconds(20)));
  EXPECT_EQ(program_of(pid), "");
}

TEST(Process, ReadsItsInputFromAFile) {
  const test::TempDir folder;
  std::ofstream(folder / "in") << "one\ntwo\n";
  ProcessOptions options;
  options.program = "/bin/cat";
  options.input_file = folder / "in";
  Result<std::unique_ptr<Process>> process = Process::spawn(options);
  ASSERT_TRUE(process.ok());
  ASSERT_TRUE((*process)->wait_for(seconds(20)));
  EXPECT_EQ((*process)->output_tail(), "one\ntwo\n");
  options.input_file = folder / "absent";
  const Result<std::unique_ptr<Process>> refused = Process::spawn(options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::NotFound);
  EXPECT_THAT(refused.error().message, HasSubstr("absent cannot be read"));
}

TEST(Process, FindsProgramsInAbsoluteFoldersOnly) {
  const test::TempDir folder;
  std::filesystem::create_directories(folder / "a/tool");
  std::filesystem::create_directories(folder / "b");
  std::ofstream(folder / "b/tool") << "#!/bin/sh\n";
  const std::string path =
      "relative::" + (folder / "a").string() + ":" + (folder / "b").string() + ":/bin";
  EXPECT_EQ(find_program("tool", path), "");
  std::filesystem::permissions(folder / "b/tool", std::filesystem::perms::owner_all);
  EXPECT_EQ(find_program("tool", path), folder / "b/tool");
  EXPECT_EQ(find_program("sh", path), "/bin/sh");
  EXPECT_EQ(find_program("sh", ""), "");
}

TEST(Process, BecomesAnotherProgramOrSaysWhyNot) {
  EXPECT_EQ(become_program("/absent/program", {"program"}, {}).code, ErrorCode::NotFound);
  EXPECT_EXIT(
      {
        ::setenv("LLORCH_TEST_KEPT", "kept", 1);
        ::setenv("LLORCH_TEST_WORD", "replaced", 1);
        [[maybe_unused]] const Error error = become_program(
            "/bin/sh",
            {"sh", "-c",
             "test \"$0$LLORCH_TEST_WORD $LLORCH_TEST_KEPT\" = \"a b; c kept\" && exit 7", "a b"},
            {"LLORCH_TEST_WORD=; c"});
        ::_exit(1);
      },
      ::testing::ExitedWithCode(7), "");
}

TEST(ProcessTable, ReadsMemory) {
  const ProcessMemory memory = read_process_memory(::getpid());
  EXPECT_GT(memory.resident_bytes, 0);
  EXPECT_GE(memory.peak_bytes, memory.resident_bytes);
  EXPECT_GT(memory.anonymous_bytes, 0);
  EXPECT_LT(memory.anonymous_bytes, memory.resident_bytes);
  EXPECT_EQ(read_process_memory(0).resident_bytes, 0);
}

TEST(InterruptWatch, CallsOnceAndRemembers) {
  std::atomic<int> calls = 0;
  const InterruptWatch watch([&calls] { ++calls; });
  EXPECT_FALSE(watch.interrupted());
  ::kill(::getpid(), SIGINT);
  ASSERT_TRUE(eventually([&] { return calls == 1; }));
  EXPECT_TRUE(watch.interrupted());
  ::kill(::getpid(), SIGTERM);
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace llorch::base
