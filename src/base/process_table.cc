#include "base/process_table.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <system_error>
#include <tuple>

namespace llorch::base {
namespace {

constexpr std::size_t kProcFileBytesMax = std::size_t{1} << 20;
constexpr idtype_t kByPidFd = static_cast<idtype_t>(3);  // P_PIDFD
constexpr std::size_t kStateField = 0;                   // of the fields behind the name
constexpr std::size_t kParentField = 1;
constexpr std::size_t kStartField = 19;

// Files of /proc say a size of 0: read to the end.
std::string read_proc(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  std::string text;
  std::array<char, 4096> buffer{};
  while (text.size() < kProcFileBytesMax) {
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  ::close(fd);
  return text;
}

std::int64_t to_number(std::string_view text) {
  std::int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// /proc/PID/stat, by the name of its first thread. An emulator of user programs (qemu) makes up the
// process's own /proc/PID/stat, with another start than everybody else reads; not this one.
std::string read_stat(int pid) {
  return read_proc(fmt::format("/proc/{0}/task/{0}/stat", pid));
}

// The fields of /proc/PID/stat behind the name, which may hold blanks and brackets itself.
std::vector<std::string_view> stat_fields(std::string_view stat) {
  std::vector<std::string_view> fields;
  const std::size_t name_end = stat.rfind(") ");
  if (name_end == std::string_view::npos) return fields;
  stat.remove_prefix(name_end + 2);
  while (!stat.empty()) {
    const std::size_t end = stat.find(' ');
    fields.push_back(stat.substr(0, end));
    if (end == std::string_view::npos) break;
    stat.remove_prefix(end + 1);
  }
  return fields;
}

template <class Wanted>
std::vector<int> processes_where(const Wanted& wanted) {
  std::vector<int> found;
  DIR* folder = ::opendir("/proc");
  if (folder == nullptr) return found;
  while (const dirent* entry = ::readdir(folder)) {
    const int pid = static_cast<int>(to_number(entry->d_name));
    if (pid > 0 && wanted(pid)) found.push_back(pid);
  }
  ::closedir(folder);
  return found;
}

// "NAME=value" of each, with a NUL before and behind it.
std::string read_variables(int pid) {
  return '\0' + read_proc(fmt::format("/proc/{}/environ", pid));
}

// "VmRSS:     1234 kB" of /proc/PID/status in bytes.
std::int64_t status_bytes(std::string_view status, std::string_view field) {
  const std::size_t at = status.find(field);
  if (at == std::string_view::npos) return 0;
  status.remove_prefix(at + field.size());
  status.remove_prefix(std::min(status.find_first_not_of(" \t"), status.size()));
  return to_number(status) * 1024;
}

}  // namespace

std::string current_boot_id() {
  std::string id = read_proc("/proc/sys/kernel/random/boot_id");
  while (!id.empty() && id.back() == '\n') id.pop_back();
  return id;
}

std::optional<ProcessIdentity> identify_process(int pid) {
  if (pid <= 0) return std::nullopt;
  const std::string stat = read_stat(pid);
  const std::vector<std::string_view> fields = stat_fields(stat);
  if (fields.size() <= kStartField) return std::nullopt;
  if (fields[kStateField] == "Z" || fields[kStateField] == "X") return std::nullopt;
  return ProcessIdentity{pid, to_number(fields[kStartField]), current_boot_id()};
}

bool is_running(const ProcessIdentity& identity) {
  return identify_process(identity.pid) == identity;
}

ProcessHandle& ProcessHandle::operator=(ProcessHandle&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void ProcessHandle::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Result<ProcessHandle> ProcessHandle::open(const ProcessIdentity& identity) {
  ProcessHandle handle;
  handle.fd_ = static_cast<int>(::syscall(SYS_pidfd_open, identity.pid, 0U));
  if (handle.fd_ < 0 && errno != ESRCH && errno != EINVAL) {
    return Error{ErrorCode::Internal,
                 fmt::format("process {} cannot be held: {}", identity.pid, std::strerror(errno))};
  }
  // Asked once it is held: from here on the number cannot be given away unseen.
  if (handle.fd_ < 0 || !is_running(identity)) {
    std::ignore = handle.has_ended();  // a child of ours that has ended is waited for
    return Error{ErrorCode::NotFound, fmt::format("process {} has ended", identity.pid)};
  }
  return handle;
}

bool ProcessHandle::has_ended() const {
  pollfd ended{fd_, POLLIN, 0};
  if (fd_ < 0 || ::poll(&ended, 1, 0) <= 0) return fd_ < 0;
  siginfo_t info{};
  ::waitid(kByPidFd, static_cast<id_t>(fd_), &info, WEXITED | WNOHANG);
  return true;
}

int ProcessHandle::ending_signal() const {
  siginfo_t info{};
  if (fd_ < 0 ||
      ::waitid(kByPidFd, static_cast<id_t>(fd_), &info, WEXITED | WNOHANG | WNOWAIT) != 0)
    return 0;
  const bool was_killed = info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED;
  return was_killed ? info.si_status : 0;
}

void ProcessHandle::send_signal(int signal) const {
  if (fd_ >= 0) ::syscall(SYS_pidfd_send_signal, fd_, signal, nullptr, 0U);
}

std::vector<int> processes_with_variable(std::string_view entry) {
  const std::string wanted = '\0' + std::string(entry) + '\0';
  return processes_where([&wanted](int pid) {
    return read_variables(pid).find(wanted) != std::string::npos &&
           identify_process(pid).has_value();
  });
}

bool has_variable(int pid, std::string_view name) {
  return read_variables(pid).find('\0' + std::string(name) + '=') != std::string::npos;
}

std::filesystem::path program_of(int pid) {
  std::error_code error;
  std::filesystem::path program =
      std::filesystem::read_symlink(fmt::format("/proc/{}/exe", pid), error);
  return error ? std::filesystem::path() : program;
}

std::vector<int> children_of(int pid) {
  return processes_where([pid](int child) {
    const std::string stat = read_stat(child);
    const std::vector<std::string_view> fields = stat_fields(stat);
    return fields.size() > kParentField && to_number(fields[kParentField]) == pid;
  });
}

ProcessMemory read_process_memory(int pid) {
  const std::string status = read_proc(fmt::format("/proc/{}/status", pid));
  return {status_bytes(status, "\nVmRSS:"), status_bytes(status, "\nVmHWM:"),
          status_bytes(status, "\nRssAnon:") + status_bytes(status, "\nRssShmem:")};
}

}  // namespace llorch::base
