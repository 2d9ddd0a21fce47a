// The end of a log file, and what comes after it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "base/result.h"

namespace llorch::pool {

// Reads the last lines of a file and then whatever is appended, also when the file is moved away
// and another takes its name. One thread at a time.
class LogTail {
 public:
  // At most `lines` lines and 4 MiB of them. A file that is not there yet is an empty one: between
  // two lives of a worker there is a moment without.
  static Result<LogTail> open(std::filesystem::path file, std::size_t lines);
  ~LogTail();
  LogTail(LogTail&& other) noexcept;
  LogTail& operator=(LogTail&& other) noexcept;

  // What has come since the last call, whole lines, at most 256 KiB of them; first the last lines.
  // Empty: nothing yet. A line without an end comes once the file is not the current one any more
  // or `take_rest` asks for it. Valid UTF-8.
  Result<std::string> read_more(bool take_rest = false);

 private:
  LogTail(std::filesystem::path file, int fd, std::int64_t offset);
  bool is_current() const;  // the name still means the file that is open

  std::filesystem::path file_;
  int fd_ = -1;  // -1: the file was not there yet
  std::int64_t offset_ = 0;
};

}  // namespace llorch::pool
