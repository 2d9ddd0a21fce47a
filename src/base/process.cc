#include "base/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/fd.h"
#include "base/job_border.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/thread.h"

namespace llorch::base {
namespace {

constexpr int kExecFailed = 127;
constexpr std::chrono::milliseconds kPollMax{10};
constexpr int kLookUpMs = 50;

struct Pipe {
  Fd read;
  Fd write;
};

bool open_pipe(Pipe& pipe) {
  std::array<int, 2> fds{};
  if (::pipe2(fds.data(), O_CLOEXEC) != 0) return false;
  pipe.read.reset(fds[0]);
  pipe.write.reset(fds[1]);
  return true;
}

// What the child needs, made before the fork: behind it only async-signal-safe calls are allowed.
struct ChildPlan {
  const char* program;
  char* const* arguments;
  char* const* environment;
  int input_fd;
  int output_fd;
  int error_fd;      // gets errno when the program could not be executed
  int go_fd = -1;    // where a byte must come before it may be executed; -1: at once
  pid_t parent = 0;  // that it dies with; 0: with nobody
  const Confinement* confinement = nullptr;
};

// Texts as exec wants them: pointers into strings that stay where they are.
class CStrings {
 public:
  explicit CStrings(std::vector<std::string> texts) : texts_(std::move(texts)) {
    pointers_.reserve(texts_.size() + 1);
    for (std::string& text : texts_) pointers_.push_back(text.data());
    pointers_.push_back(nullptr);
  }
  CStrings(const CStrings&) = delete;
  CStrings& operator=(const CStrings&) = delete;
  char* const* get() const { return pointers_.data(); }

 private:
  std::vector<std::string> texts_;
  std::vector<char*> pointers_;
};

std::vector<std::string> with_program(const std::filesystem::path& program,
                                      std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), program.string());
  return arguments;
}

[[noreturn]] void fail_in_child(const ChildPlan& plan) {
  const int error = errno;
  [[maybe_unused]] const ssize_t ignored = ::write(plan.error_fd, &error, sizeof error);
  ::_exit(kExecFailed);
}

void reset_signals() {
  struct sigaction defaults {};
  defaults.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) ::sigaction(signal, &defaults, nullptr);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

// By number: glibc has had a name for it only since 2.34. A kernel before 5.9 has not got it; what
// must be closed is then closed one by one.
void close_range(unsigned first, unsigned last, unsigned flags) {
  if (::syscall(__NR_close_range, first, last, flags) == 0 || flags != 0) return;
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  for (rlim_t fd = first; fd <= last && fd < files.rlim_cur; ++fd) ::close(static_cast<int>(fd));
}

// Closes everything but the standard files and these two, at once: a copy of our lock files must
// not live on in a child that waits.
void close_all_but(int one, int other) {
  const auto low = static_cast<unsigned>(std::min(one, other));
  const auto high = static_cast<unsigned>(std::max(one, other));
  if (low > STDERR_FILENO + 1U) close_range(STDERR_FILENO + 1U, low - 1, 0);
  if (high > low + 1) close_range(low + 1, high - 1, 0);
  close_range(high + 1, ~0U, 0);
}

void wait_for_go(const ChildPlan& plan) {
  char go = 0;
  ssize_t got = 0;
  do {
    got = ::read(plan.go_fd, &go, 1);
  } while (got < 0 && errno == EINTR);
  if (got != 1) ::_exit(kExecFailed);
}

[[noreturn]] void become_child(const ChildPlan& plan) {
  const bool is_held = plan.go_fd >= 0;
  if (is_held ? ::setsid() < 0 : ::setpgid(0, 0) != 0) fail_in_child(plan);
  if (plan.parent != 0) {
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) fail_in_child(plan);
    if (::getppid() != plan.parent) ::_exit(kExecFailed);  // it died before the call
  }
  reset_signals();
  if (::dup2(plan.input_fd, STDIN_FILENO) < 0 || ::dup2(plan.output_fd, STDOUT_FILENO) < 0 ||
      ::dup2(plan.output_fd, STDERR_FILENO) < 0) {
    fail_in_child(plan);
  }
  if (is_held) {
    close_all_but(plan.go_fd, plan.error_fd);
    wait_for_go(plan);
  }
  if (plan.confinement != nullptr && !plan.confinement->enter()) fail_in_child(plan);
  // Everything else closes by itself at exec; error_fd too, which tells the parent that it worked.
  // A kernel without the call leaves it to the O_CLOEXEC of whoever opened the files.
  close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  ::execve(plan.program, plan.arguments, plan.environment);
  fail_in_child(plan);
}

// The errno of a failed exec; 0 when it worked.
int read_exec_error(int fd) {
  int error = 0;
  ssize_t got = 0;
  do {
    got = ::read(fd, &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  return got == static_cast<ssize_t>(sizeof error) ? error : 0;
}

Error spawn_error(const std::filesystem::path& program, int error) {
  ErrorCode code = ErrorCode::Internal;
  if (error == ENOENT || error == ENOTDIR) code = ErrorCode::NotFound;
  if (error == EACCES || error == EPERM || error == ENOEXEC) code = ErrorCode::Forbidden;
  return Error{code,
               fmt::format("{} cannot be started: {}", program.string(), std::strerror(error))};
}

ExitStatus decode(int status) {
  if (WIFSIGNALED(status)) return {0, WTERMSIG(status)};
  return {WEXITSTATUS(status), 0};
}

}  // namespace

std::string ExitStatus::describe() const {
  if (signal == 0) return fmt::format("exited with code {}", code);
  return fmt::format("was ended by signal {} ({})", signal, ::strsignal(signal));
}

std::filesystem::path find_program(std::string_view name, std::string_view search_path) {
  while (!search_path.empty()) {
    const std::size_t colon = search_path.find(':');
    const std::string_view folder = search_path.substr(0, colon);
    search_path.remove_prefix(colon == std::string_view::npos ? search_path.size() : colon + 1);
    if (!folder.starts_with('/')) continue;
    std::filesystem::path program = std::filesystem::path(folder) / name;
    std::error_code error;
    if (std::filesystem::is_regular_file(program, error) && ::access(program.c_str(), X_OK) == 0)
      return program;
  }
  return {};
}

Error become_program(const std::filesystem::path& program, std::vector<std::string> words,
                     const std::vector<std::string>& variables) {
  const auto name_of = [](std::string_view entry) { return entry.substr(0, entry.find('=')); };
  std::vector<std::string> all = variables;
  for (char** entry = ::environ; *entry != nullptr; ++entry) {
    const bool is_replaced = std::any_of(
        variables.begin(), variables.end(),
        [&](const std::string& variable) { return name_of(variable) == name_of(*entry); });
    if (!is_replaced) all.emplace_back(*entry);
  }
  const CStrings arguments(std::move(words));
  const CStrings environment(std::move(all));
  ::execve(program.c_str(), arguments.get(), environment.get());
  return spawn_error(program, errno);
}

Result<std::unique_ptr<Process>> Process::spawn(const ProcessOptions& options) {
  Pipe output;
  Pipe failure;
  const std::filesystem::path input = options.input_file.empty() ? "/dev/null" : options.input_file;
  const Fd input_file(::open(input.c_str(), O_RDONLY | O_CLOEXEC));
  if (input_file.get() < 0) {
    return Error{ErrorCode::NotFound,
                 fmt::format("{} cannot be read: {}", input.string(), std::strerror(errno))};
  }
  if (!open_pipe(output) || !open_pipe(failure)) return spawn_error(options.program, errno);
  const std::string program = options.program.string();
  const CStrings arguments(with_program(options.program, options.arguments));
  const CStrings environment(options.environment.value_or(std::vector<std::string>()));
  const ChildPlan plan{.program = program.c_str(),
                       .arguments = arguments.get(),
                       .environment = options.environment ? environment.get() : ::environ,
                       .input_fd = input_file.get(),
                       .output_fd = output.write.get(),
                       .error_fd = failure.write.get(),
                       .parent = options.dies_with_parent ? ::getpid() : 0,
                       .confinement = options.confinement.get()};
  const pid_t pid = ::fork();
  if (pid < 0) return spawn_error(options.program, errno);
  if (pid == 0) become_child(plan);
  ::setpgid(pid, pid);  // also here: signals may be sent before the child gets to it
  output.write.reset();
  failure.write.reset();
  if (const int error = read_exec_error(failure.read.get()); error != 0) {
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    return spawn_error(options.program, error);
  }
  return std::unique_ptr<Process>(new Process(pid, output.read.release(), options));
}

Process::Process(int pid, int output_fd, const ProcessOptions& options)
    : pid_(pid),
      tail_bytes_(options.output_tail_bytes),
      on_output_(options.on_output),
      reader_(start_thread("child-output", [this, output_fd] { read_output(output_fd); })) {}

Process::~Process() {
  stop(std::chrono::milliseconds(0));
  reader_.join();
}

void Process::send_signal(int signal) {
  const MutexLock lock(mutex_);
  if (!exit_) ::kill(-pid_, signal);
}

std::optional<ExitStatus> Process::poll_exit() {
  const MutexLock lock(mutex_);
  if (exit_) return exit_;
  // First without reaping: while the child is a zombie its group keeps its number, so that what it
  // left in there can be killed safely.
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0) {
    return std::nullopt;
  }
  ::kill(-pid_, SIGKILL);
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  exit_ = decode(status);
  return exit_;
}

std::optional<ExitStatus> Process::wait_for(std::chrono::milliseconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  std::chrono::milliseconds pause{1};
  for (;;) {
    if (const std::optional<ExitStatus> status = poll_exit()) return status;
    if (std::chrono::steady_clock::now() >= until) return std::nullopt;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kPollMax);
  }
}

ExitStatus Process::stop(std::chrono::milliseconds patience) {
  if (patience.count() > 0) {
    send_signal(SIGTERM);
    if (const std::optional<ExitStatus> status = wait_for(patience)) return *status;
  }
  for (;;) {
    send_signal(SIGKILL);
    if (const std::optional<ExitStatus> status = wait_for(std::chrono::seconds(1))) return *status;
  }
}

std::string Process::output_tail() const {
  const MutexLock lock(mutex_);
  while (exit_ && !output_ended_) output_end_.wait(mutex_);
  return tail_.size() > tail_bytes_ ? tail_.substr(tail_.size() - tail_bytes_) : tail_;
}

void Process::read_output(int fd) {
  const Fd output(fd);
  std::array<char, 4096> buffer{};
  for (;;) {
    // A process that left the group may hold the other end for ever: once the child has ended, only
    // what is there already counts.
    pollfd ready{output.get(), POLLIN, 0};
    const int events = ::poll(&ready, 1, kLookUpMs);
    if (events < 0 && errno == EINTR) continue;
    const ssize_t got = events > 0 ? ::read(output.get(), buffer.data(), buffer.size()) : 0;
    if (got < 0 && errno == EINTR) continue;
    if (got > 0) {
      const Status kept = run_guarded("while its output was kept", [&] {
        keep({buffer.data(), static_cast<std::size_t>(got)});
      });
      if (!kept.ok())
        Logger("base").error("a child's output is lost", {{"why", kept.error().message}});
      continue;
    }
    const MutexLock lock(mutex_);
    if (events == 0 && !exit_) continue;
    output_ended_ = true;
    output_end_.notify_all();
    return;
  }
}

void Process::keep(std::string_view output) {
  if (on_output_) on_output_(output);
  const MutexLock lock(mutex_);
  tail_.append(output);
  // Cut seldom, so that appending stays cheap.
  if (tail_.size() > 2 * tail_bytes_) tail_.erase(0, tail_.size() - tail_bytes_);
}

Result<std::unique_ptr<HeldProcess>> HeldProcess::spawn(const std::filesystem::path& program,
                                                        std::vector<std::string> arguments,
                                                        std::vector<std::string> environment,
                                                        int output) {
  Pipe go;
  Pipe failure;
  const Fd null_file(::open("/dev/null", O_RDWR | O_CLOEXEC));
  // A socket, because a pipe whose reader has ended would end us with SIGPIPE.
  std::array<int, 2> sockets{-1, -1};
  if (null_file.get() < 0 || !open_pipe(failure) ||
      ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) != 0) {
    return spawn_error(program, errno);
  }
  go.read.reset(sockets[0]);
  go.write.reset(sockets[1]);
  const std::string path = program.string();
  const CStrings words(with_program(program, std::move(arguments)));
  const CStrings variables(std::move(environment));
  const ChildPlan plan{.program = path.c_str(),
                       .arguments = words.get(),
                       .environment = variables.get(),
                       .input_fd = null_file.get(),
                       .output_fd = output >= 0 ? output : null_file.get(),
                       .error_fd = failure.write.get(),
                       .go_fd = go.read.get()};
  const pid_t pid = ::fork();
  if (pid < 0) return spawn_error(program, errno);
  if (pid == 0) become_child(plan);
  std::unique_ptr<HeldProcess> held(new HeldProcess());
  held->program_ = program;
  held->go_fd_ = go.write.release();
  held->error_fd_ = failure.read.release();
  held->identity_ = identify_process(pid).value_or(ProcessIdentity{pid, 0, {}});
  Result<ProcessHandle> handle = ProcessHandle::open(held->identity_);
  if (!handle.ok()) return handle.error().in(path);
  held->handle_ = handle.take();
  return held;
}

HeldProcess::~HeldProcess() {
  if (go_fd_ >= 0) ::close(go_fd_);
  if (error_fd_ >= 0) ::close(error_fd_);
  if (!handle_.is_open()) return;
  while (::waitpid(identity_.pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Result<ProcessHandle> HeldProcess::release() {
  CHECK(handle_.is_open(), "a held process is released once");
  const char go = 1;
  [[maybe_unused]] const ssize_t written = ::send(go_fd_, &go, 1, MSG_NOSIGNAL);
  if (const int error = read_exec_error(error_fd_); error != 0) return spawn_error(program_, error);
  return std::move(handle_);
}

}  // namespace llorch::base
