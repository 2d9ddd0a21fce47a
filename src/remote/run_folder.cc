#include "remote/run_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <string>

#include "base/digest.h"
#include "base/file.h"
#include "remote/ssh.h"

namespace llorch::remote {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kHashDigits = 12;

bool holds_sockets(const fs::path& folder) {
  return SshHost::make("host", folder).ok();
}

// A folder in /tmp is believed only when it is ours.
Status check_owner(const fs::path& folder) {
  struct stat found {};
  if (::lstat(folder.c_str(), &found) == 0 && S_ISDIR(found.st_mode) &&
      found.st_uid == ::geteuid() && (found.st_mode & 077U) == 0)
    return ok_status();
  return Error{ErrorCode::Forbidden,
               fmt::format("{} is not a folder of this user alone; remove it", folder.string())};
}

}  // namespace

Result<fs::path> make_run_folder(const base::Home& home, const base::Environment& environment) {
  const std::string hash = base::sha256_hex(home.state.string()).substr(0, kHashDigits);
  fs::path folder = home.state / "run";
  if (!holds_sockets(folder)) {
    const char* runtime = environment("XDG_RUNTIME_DIR");
    folder = fs::path(runtime != nullptr ? runtime : "") / ("llorch-" + hash);
    if (!holds_sockets(folder)) folder = fmt::format("/tmp/llorch-{}-{}", ::geteuid(), hash);
  }
  if (Status made = base::make_private_folder(folder); !made.ok()) return made.error();
  if (Status ours = check_owner(folder); !ours.ok()) return ours.error();
  return folder;
}

}  // namespace llorch::remote
