#include "base/log_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <system_error>
#include <tuple>

namespace llorch::base {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t kLogBytesMax = std::uintmax_t{8} << 20;

bool is_full(const std::string& file) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(file, error);
  return !error && size >= kLogBytesMax;
}

}  // namespace

fs::path older_log(const fs::path& file, int age) {
  return file.string() + "." + std::to_string(age);
}

void rotate_log(const fs::path& file) {
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return;
  for (int age = kOlderLogs; age > 1; --age)
    fs::rename(older_log(file, age - 1), older_log(file, age), ignored);
  fs::rename(file, older_log(file, 1), ignored);
}

Status redirect_log(const std::string& file) {
  if (file.empty()) return ok_status();
  if (is_full(file)) rotate_log(file);
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0 || ::dup2(fd, STDERR_FILENO) < 0) {
    return Error{ErrorCode::Internal, fmt::format("--log-file {}: {}", file, std::strerror(errno))};
  }
  ::close(fd);
  return ok_status();
}

void keep_log_small(const std::string& file) {
  if (!file.empty() && is_full(file)) std::ignore = redirect_log(file);
}

}  // namespace llorch::base
