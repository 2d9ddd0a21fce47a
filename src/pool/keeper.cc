// The keeper of one worker: its parent, its log, its last will.
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fstream>
#include <optional>
#include <thread>

#include "base/file_lock.h"
#include "base/job_border.h"
#include "base/mutex.h"
#include "base/process.h"
#include "pool/pool_manager.h"
#include "pool/worker_log.h"
#include "pool/worker_record.h"

namespace llorch::pool {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kFailure = 1;
constexpr milliseconds kLongestTick{1'000};
constexpr milliseconds kShortestTick{10};
constexpr milliseconds kLastKillPatience{10'000};

sigset_t keeper_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, kKillOrder, SIGCHLD}) {
    sigaddset(&signals, signal);
  }
  return signals;
}

// The next signal, or 0 after `patience`.
int wait_for_signal(milliseconds patience) {
  const sigset_t signals = keeper_signals();
  const timespec time{patience.count() / 1000, (patience.count() % 1000) * 1'000'000};
  return std::max(0, ::sigtimedwait(&signals, nullptr, &time));
}

std::int64_t count_oom_kills(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string name;
  std::int64_t count = 0;
  while (in >> name >> count) {
    if (name == "oom_kill") return count;
  }
  return 0;
}

class Keeper {
 public:
  Keeper(std::filesystem::path file, WorkerRecord record)
      : file_(std::move(file)),
        record_(std::move(record)),
        log_(record_.launch.log_file, record_.launch.log_bytes_max) {
    note_.mark = record_.mark;
  }

  int run() {
    const std::int64_t oom_kills = count_oom_kills(record_.launch.oom_counter);
    if (Status started = start(); !started.ok()) {
      note_.start_error = started.error().message;
      say(started.error().message);
    } else {
      const base::ExitStatus status = watch();
      std::ignore = process_->output_tail();  // all of its output is in the log behind this
      note_.code = status.code;
      note_.signal = status.signal;
      note_.oom_kill = count_oom_kills(record_.launch.oom_counter) > oom_kills;
      end_descendants();
      say("the worker " + status.describe());
    }
    note_.ended_at = now_rfc3339();
    return write_note(file_, note_).ok() ? 0 : kFailure;
  }

 private:
  void say(const std::string& text) {
    const base::MutexLock lock(log_mutex_);
    log_.write_line(std::string(kKeeperPrefix) + text);
  }

  Status start() {
    const LaunchPlan& launch = record_.launch;
    base::ProcessOptions options;
    options.program = launch.program;
    options.arguments = launch.arguments;
    options.environment = launch.environment;
    options.dies_with_parent = true;
    options.output_tail_bytes = 0;
    options.on_output = [this](std::string_view bytes) {
      const base::MutexLock lock(log_mutex_);
      log_.write(bytes);
    };
    std::string confinement = "not confined: switched off";
    if (launch.confinement) {
      Result<std::shared_ptr<const base::Confinement>> prepared =
          base::Confinement::prepare(*launch.confinement);
      if (!prepared.ok()) return prepared.error();
      options.confinement = prepared.take();
      confinement = options.confinement->describe();
    }
    Result<std::unique_ptr<base::Process>> process = base::Process::spawn(options);
    if (!process.ok()) return process.error();
    process_ = process.take();
    say(fmt::format("started {} as process {}; confined: {}", launch.program.string(),
                    process_->pid(), confinement));
    // A worker that has ended already needs no note. Without the note the manager cannot show the
    // worker's memory; everything else goes on.
    if (const auto identity = base::identify_process(process_->pid()))
      std::ignore = write_note(file_, RunNote{record_.mark, *identity, confinement});
    return ok_status();
  }

  base::ExitStatus watch() {
    const milliseconds tick =
        std::clamp(record_.launch.orphan_patience / 10, kShortestTick, kLongestTick);
    for (;;) {
      if (const std::optional<base::ExitStatus> status = process_->wait_for(milliseconds(0)))
        return *status;
      const int signal = wait_for_signal(tick);
      if (signal == kKillOrder) {
        note_.ordered = true;
        process_->send_signal(SIGKILL);
      } else if (signal != 0 && signal != SIGCHLD) {
        note_.told = true;
        process_->send_signal(SIGTERM);
      }
      watch_owner(Clock::now());
    }
  }

  // Ends the worker once nobody has owned it for long enough. There is no way back from that.
  void watch_owner(Clock::time_point now) {
    if (!note_.orphaned) {
      if (base::FileLock::is_held(record_.launch.lock_file)) alone_since_ = now;
      if (now - alone_since_ < record_.launch.orphan_patience) return;
      note_.orphaned = true;
      kill_at_ = now + record_.launch.term_patience;
      say("no pool manager: the worker is ended");
      process_->send_signal(SIGTERM);
    } else if (now >= kill_at_) {
      process_->send_signal(SIGKILL);
    }
  }

  // What the worker left behind is ours by now (PR_SET_CHILD_SUBREAPER), wherever it hid.
  static void end_descendants() {
    const Clock::time_point until = Clock::now() + kLastKillPatience;
    while (Clock::now() < until) {
      for (const int child : base::children_of(::getpid())) ::kill(child, SIGKILL);
      pid_t reaped = 0;
      do {
        reaped = ::waitpid(-1, nullptr, WNOHANG);
      } while (reaped > 0);
      if (reaped < 0 && errno == ECHILD) return;
      std::this_thread::sleep_for(milliseconds(1));
    }
  }

  const std::filesystem::path file_;
  const WorkerRecord record_;
  base::Mutex log_mutex_;
  WorkerLog log_ LLORCH_GUARDED_BY(log_mutex_);
  ExitNote note_;
  Clock::time_point alone_since_ = Clock::now();
  Clock::time_point kill_at_{};
  std::unique_ptr<base::Process> process_;  // last: its thread writes to the log
};

}  // namespace

int run_keeper(const std::filesystem::path& record) {
  // Before any thread is made, so that only wait_for_signal hears them.
  const sigset_t signals = keeper_signals();
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  Result<WorkerRecord> read = read_record(record);
  if (!read.ok()) return kFailure;
  std::error_code error;
  const std::filesystem::path file = std::filesystem::absolute(record, error);
  if (error) return kFailure;
  if (::chdir("/") != 0) return kFailure;  // holds no folder of the user's
  // What throws here ends the keeper, and with it the worker; its record says that it is gone.
  const Result<int> code = base::run_job<int>(
      "in the keeper", [&]() -> Result<int> { return Keeper(file, read.take()).run(); });
  return code.ok() ? *code : kFailure;
}

}  // namespace llorch::pool
