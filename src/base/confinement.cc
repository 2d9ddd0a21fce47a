#include "base/confinement.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>  // Linux' own numbers (__NR_): glibc 2.31 has no names for newer calls
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <sstream>

namespace llorch::base {
namespace {

// Newer than Debian 12's headers; the kernel says by its ABI number whether it knows them.
constexpr std::uint64_t kTruncate = 1ULL << 14;   // ABI 3
constexpr std::uint64_t kBindTcp = 1ULL << 0;     // ABI 4
constexpr std::uint64_t kConnectTcp = 1ULL << 1;  // ABI 4
constexpr int kRulePort = 2;                      // ABI 4
constexpr int kAbiOfPorts = 4;
constexpr int kAbiOfScopes = 6;
constexpr std::uint64_t kScopeAbstract = 1ULL << 0;  // ABI 6: sockets without a path, likewise
constexpr std::uint64_t kScopeSignal = 1ULL << 1;    // ABI 6: signals reach the same domain only
struct RulesetAttributes {
  std::uint64_t handled_access_fs;
  std::uint64_t handled_access_net;  // ABI 4
  std::uint64_t scoped;              // ABI 6
};

struct PortRule {
  std::uint64_t allowed;
  std::uint64_t port;
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
      ::syscall(__NR_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0U);
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

Status add_ports(int ruleset, const NetworkRules& rules) {
  const auto add = [&](const std::vector<std::uint16_t>& ports, std::uint64_t right) {
    return std::all_of(ports.begin(), ports.end(), [&](std::uint16_t port) {
      const PortRule rule{right, port};
      return ::syscall(__NR_landlock_add_rule, ruleset, kRulePort, &rule, 0U) == 0;
    });
  };
  if (add(rules.bind, kBindTcp) && add(rules.connect, kConnectTcp)) return ok_status();
  return failure("allow a port");
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

// One condition on a system call's argument; libseccomp's own macros are C's compound literals.
scmp_arg_cmp argument(unsigned index, scmp_compare how, std::uint64_t value,
                      std::uint64_t masked_value = 0) {
  return {index, how, value, masked_value};
}

// Sockets that landlock has no rule for are not made: other families, other types than streams,
// other protocols than TCP.
bool deny_sockets(const scmp_filter_ctx& context, const NetworkRules& rules) {
  const auto deny = [&](std::vector<scmp_arg_cmp> conditions) {
    return ::seccomp_rule_add_array(context, SCMP_ACT_ERRNO(EACCES), SCMP_SYS(socket),
                                    static_cast<unsigned>(conditions.size()),
                                    conditions.data()) == 0;
  };
  const bool has_tcp = !rules.bind.empty() || !rules.connect.empty();
  bool is_good = deny({argument(0, SCMP_CMP_GT, AF_INET6)});
  for (int family = AF_UNIX; family <= AF_INET6; ++family) {
    if (family == AF_UNIX && rules.local_sockets) continue;
    const bool is_internet = family == AF_INET || family == AF_INET6;
    const auto which = static_cast<scmp_datum_t>(family);
    if (!is_internet || !has_tcp) {
      is_good &= deny({argument(0, SCMP_CMP_EQ, which)});
      continue;
    }
    for (int type = SOCK_DGRAM; type <= SOCK_PACKET; ++type) {
      is_good &= deny({argument(0, SCMP_CMP_EQ, which),
                       argument(1, SCMP_CMP_MASKED_EQ, 0xF, static_cast<scmp_datum_t>(type))});
    }
    is_good &= deny({argument(0, SCMP_CMP_EQ, which), argument(2, SCMP_CMP_GT, IPPROTO_TCP)});
  }
  return is_good;
}

Result<std::vector<sock_filter>> make_filter(const std::optional<NetworkRules>& network) {
  const scmp_filter_ctx context = ::seccomp_init(SCMP_ACT_ALLOW);
  if (context == nullptr) return failure("begin a seccomp filter");
  bool is_good = true;
  for (const char* name : kDeniedCalls) {
    const int number = ::seccomp_syscall_resolve_name(name);
    if (number < 0) continue;  // not on this processor
    is_good &= ::seccomp_rule_add(context, SCMP_ACT_ERRNO(EPERM), number, 0) == 0;
  }
  if (network) is_good &= deny_sockets(context, *network);
  Result<std::vector<sock_filter>> filter =
      is_good ? exported(context) : Result<std::vector<sock_filter>>(failure("deny a system call"));
  ::seccomp_release(context);
  return filter;
}

// Its own folder below /proc, which has its name only now. What the kernel refuses stays closed.
void allow_own_process(int ruleset) {
  const int fd = ::open("/proc/self", O_PATH | O_CLOEXEC);
  if (fd < 0) return;
  const landlock_path_beneath_attr rule{kRead, fd};
  ::syscall(__NR_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0U);
  ::close(fd);
}

// The least of the attributes that the kernel of that ABI knows.
std::size_t attribute_bytes(int abi) {
  if (abi >= kAbiOfScopes) return sizeof(RulesetAttributes);
  return abi >= kAbiOfPorts ? 2 * sizeof(std::uint64_t) : sizeof(std::uint64_t);
}

}  // namespace

ConfinementRules rules_to_run(const std::filesystem::path& program, std::string_view library_path) {
  ConfinementRules rules;
  rules.executable = {program, "/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"};
  rules.readable = {"/lib",
                    "/lib64",
                    "/usr/lib",
                    "/usr/lib64",
                    "/usr/local/lib",
                    "/etc/ld.so.cache",
                    "/etc/ld.so.preload",
                    "/etc/localtime",
                    "/usr/share/zoneinfo",
                    "/dev/zero",
                    "/dev/random",
                    "/dev/urandom"};
  rules.writable = {"/dev/null"};
  rules.network = NetworkRules{};
  std::istringstream folders{std::string(library_path)};
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (std::filesystem::path(folder).is_absolute()) rules.readable.emplace_back(folder);
  }
  return rules;
}

Result<std::shared_ptr<const Confinement>> Confinement::prepare(const ConfinementRules& rules) {
  std::shared_ptr<Confinement> made(new Confinement());
  made->wants_ports_ = rules.network.has_value();
  const long abi =
      ::syscall(__NR_landlock_create_ruleset, nullptr, 0U, LANDLOCK_CREATE_RULESET_VERSION);
  if (abi > 0) {
    made->abi_ = static_cast<int>(abi);
    const std::uint64_t known = known_rights(made->abi_);
    made->limits_ports_ = rules.network && made->abi_ >= kAbiOfPorts;
    const RulesetAttributes attributes{known, made->limits_ports_ ? kBindTcp | kConnectTcp : 0,
                                       kScopeSignal | (rules.network ? kScopeAbstract : 0)};
    made->ruleset_ =
        static_cast<int>(::syscall(__NR_landlock_create_ruleset, &attributes,
                                   attribute_bytes(made->abi_), 0U));  // closes at exec
    if (made->ruleset_ < 0) return failure("make a landlock ruleset");
    if (Status added = add_paths(made->ruleset_, rules, known); !added.ok()) return added.error();
    if (made->limits_ports_) {
      if (Status added = add_ports(made->ruleset_, *rules.network); !added.ok())
        return added.error();
    }
  }
  if (kernel_has_seccomp()) {
    Result<std::vector<sock_filter>> filter = make_filter(rules.network);
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
  const std::string_view what = limits_ports() ? "files and ports" : "files";
  std::string text = limits_files() ? fmt::format("{} by landlock (ABI {})", what, abi_)
                                    : "files not (the kernel has no landlock)";
  if (wants_ports_ && !limits_ports())
    text += fmt::format(", ports not (landlock ABI {} is needed)", kAbiOfPorts);
  return text + (limits_calls() ? ", system calls by seccomp"
                                : ", system calls not (the kernel has no seccomp)");
}

bool Confinement::enter() const {
  if (!limits_files() && !limits_calls()) return true;
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
  if (limits_files()) allow_own_process(ruleset_);
  if (limits_files() && ::syscall(__NR_landlock_restrict_self, ruleset_, 0U) != 0) return false;
  if (!limits_calls()) return true;
  // The kernel only reads the program.
  const sock_fprog program{static_cast<unsigned short>(filter_.size()),
                           const_cast<sock_filter*>(filter_.data())};
  return ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

}  // namespace llorch::base
