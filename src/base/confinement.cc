#include "base/confinement.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

namespace llorch::base {
namespace {

// Newer than Debian 12's headers; the kernel says by its ABI number whether it knows them.
constexpr std::uint64_t kTruncate = 1ULL << 14;    // ABI 3
constexpr std::uint64_t kScopeSignal = 1ULL << 1;  // ABI 6: signals reach the same domain only
struct RulesetAttributes {
  std::uint64_t handled_access_fs;
  std::uint64_t handled_access_net;  // ABI 4
  std::uint64_t scoped;              // ABI 6
};

constexpr std::uint64_t kRead = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
constexpr std::uint64_t kExecute = kRead | LANDLOCK_ACCESS_FS_EXECUTE;
constexpr std::uint64_t kWriteFile = LANDLOCK_ACCESS_FS_WRITE_FILE | kTruncate;
constexpr std::uint64_t kMake = LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |
                                LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_DIR |
                                LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK |
                                LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK |
                                LANDLOCK_ACCESS_FS_MAKE_SYM | LANDLOCK_ACCESS_FS_REFER;
constexpr std::uint64_t kWrite = kRead | kWriteFile | kMake;
constexpr std::uint64_t kEverything = kExecute | kWrite;
constexpr std::uint64_t kOfFiles =
    LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | kWriteFile;

constexpr std::array kDeniedCalls = {"acct",
                                     "add_key",
                                     "adjtimex",
                                     "bpf",
                                     "chroot",
                                     "clock_adjtime",
                                     "clock_settime",
                                     "delete_module",
                                     "finit_module",
                                     "fsconfig",
                                     "fsmount",
                                     "fsopen",
                                     "fspick",
                                     "init_module",
                                     "io_uring_enter",
                                     "io_uring_register",
                                     "io_uring_setup",
                                     "ioperm",
                                     "iopl",
                                     "kcmp",
                                     "kexec_file_load",
                                     "kexec_load",
                                     "keyctl",
                                     "lookup_dcookie",
                                     "mount",
                                     "mount_setattr",
                                     "move_mount",
                                     "name_to_handle_at",
                                     "nfsservctl",
                                     "open_by_handle_at",
                                     "open_tree",
                                     "perf_event_open",
                                     "pidfd_getfd",
                                     "pivot_root",
                                     "process_madvise",
                                     "process_vm_readv",
                                     "process_vm_writev",
                                     "ptrace",
                                     "quotactl",
                                     "reboot",
                                     "request_key",
                                     "setdomainname",
                                     "sethostname",
                                     "setns",
                                     "settimeofday",
                                     "swapoff",
                                     "swapon",
                                     "syslog",
                                     "umount",
                                     "umount2",
                                     "unshare",
                                     "userfaultfd",
                                     "vhangup"};

Error failure(std::string_view what) {
  return Error{ErrorCode::Internal,
               fmt::format("confinement: cannot {}: {}", what, std::strerror(errno))};
}

std::uint64_t known_rights(int abi) {
  std::uint64_t rights = kEverything;
  if (abi < 2) rights &= ~std::uint64_t{LANDLOCK_ACCESS_FS_REFER};
  if (abi < 3) rights &= ~kTruncate;
  return rights;
}

Status add_path(int ruleset, const std::filesystem::path& path, std::uint64_t rights) {
  const int fd = ::open(path.c_str(), O_PATH | O_CLOEXEC);
  if (fd < 0) return ok_status();  // absent, or not ours to see: nothing to allow
  struct stat info {};
  if (::fstat(fd, &info) == 0 && !S_ISDIR(info.st_mode)) rights &= kOfFiles;
  const landlock_path_beneath_attr rule{rights, fd};
  const long added =
      ::syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0U);
  Status outcome = added == 0 ? ok_status() : Status(failure("allow " + path.string()));
  ::close(fd);
  return outcome;
}

Status add_paths(int ruleset, const ConfinementRules& rules, std::uint64_t known) {
  const auto add = [&](const std::vector<std::filesystem::path>& paths, std::uint64_t rights) {
    for (const std::filesystem::path& path : paths) {
      if (Status added = add_path(ruleset, path, rights & known); !added.ok()) return added;
    }
    return ok_status();
  };
  if (Status added = add(rules.readable, kRead); !added.ok()) return added;
  if (Status added = add(rules.executable, kExecute); !added.ok()) return added;
  return add(rules.writable, kWrite);
}

bool kernel_has_seccomp() {
  const std::uint32_t action = SECCOMP_RET_ERRNO;
  return ::syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0U, &action) == 0;
}

// libseccomp writes programs to files only, in the version we build with.
Result<std::vector<sock_filter>> exported(const scmp_filter_ctx& context) {
  const int file = ::memfd_create("filter", MFD_CLOEXEC);
  if (file < 0) return failure("make the seccomp filter");
  const int written = ::seccomp_export_bpf(context, file);
  const off_t bytes = ::lseek(file, 0, SEEK_END);
  std::vector<sock_filter> filter;
  bool is_good = written == 0 && bytes > 0;
  if (is_good) {
    filter.resize(static_cast<std::size_t>(bytes) / sizeof(sock_filter));
    is_good = ::pread(file, filter.data(), filter.size() * sizeof(sock_filter), 0) == bytes;
  }
  ::close(file);
  if (!is_good) return failure("write the seccomp filter");
  return filter;
}

Result<std::vector<sock_filter>> make_filter() {
  const scmp_filter_ctx context = ::seccomp_init(SCMP_ACT_ALLOW);
  if (context == nullptr) return failure("begin a seccomp filter");
  bool is_good = true;
  for (const char* name : kDeniedCalls) {
    const int number = ::seccomp_syscall_resolve_name(name);
    if (number < 0) continue;  // not on this processor
    is_good &= ::seccomp_rule_add(context, SCMP_ACT_ERRNO(EPERM), number, 0) == 0;
  }
  Result<std::vector<sock_filter>> filter =
      is_good ? exported(context) : Result<std::vector<sock_filter>>(failure("deny a system call"));
  ::seccomp_release(context);
  return filter;
}

}  // namespace

Result<std::shared_ptr<const Confinement>> Confinement::prepare(const ConfinementRules& rules) {
  std::shared_ptr<Confinement> made(new Confinement());
  const long abi =
      ::syscall(SYS_landlock_create_ruleset, nullptr, 0U, LANDLOCK_CREATE_RULESET_VERSION);
  if (abi > 0) {
    made->abi_ = static_cast<int>(abi);
    const std::uint64_t known = known_rights(made->abi_);
    const RulesetAttributes attributes{known, 0, kScopeSignal};
    const std::size_t bytes =
        made->abi_ >= 6 ? sizeof attributes : sizeof attributes.handled_access_fs;
    made->ruleset_ = static_cast<int>(
        ::syscall(SYS_landlock_create_ruleset, &attributes, bytes, 0U));  // closes at exec
    if (made->ruleset_ < 0) return failure("make a landlock ruleset");
    if (Status added = add_paths(made->ruleset_, rules, known); !added.ok()) return added.error();
  }
  if (kernel_has_seccomp()) {
    Result<std::vector<sock_filter>> filter = make_filter();
    if (!filter.ok()) return filter.error();
    made->filter_ = filter.take();
  }
  return std::shared_ptr<const Confinement>(std::move(made));
}

Confinement::~Confinement() {
  if (ruleset_ >= 0) ::close(ruleset_);
}

std::string Confinement::describe() const {
  if (!limits_files() && !limits_calls())
    return "not confined: the kernel has neither landlock nor seccomp";
  const std::string files = limits_files() ? fmt::format("files by landlock (ABI {})", abi_)
                                           : "files not (the kernel has no landlock)";
  return files + (limits_calls() ? ", system calls by seccomp"
                                 : ", system calls not (the kernel has no seccomp)");
}

bool Confinement::enter() const {
  if (!limits_files() && !limits_calls()) return true;
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
  if (limits_files() && ::syscall(SYS_landlock_restrict_self, ruleset_, 0U) != 0) return false;
  if (!limits_calls()) return true;
  // The kernel only reads the program.
  const sock_fprog program{static_cast<unsigned short>(filter_.size()),
                           const_cast<sock_filter*>(filter_.data())};
  return ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

}  // namespace llorch::base
