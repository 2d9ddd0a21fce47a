// A worker's log file: written line by line, started anew when it is full, read from its end.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/home.h"

namespace llorch::pool {

// Appends to the file. A line is never split between two files unless it is longer than
// kLineBytesMax. What cannot be written (a full disk) is dropped: the worker must not wait for it.
// Belongs to one thread.
class WorkerLog {
 public:
  static constexpr std::size_t kLineBytesMax = std::size_t{64} << 10;

  WorkerLog(std::filesystem::path file, std::int64_t bytes_max);
  ~WorkerLog();  // flushes
  WorkerLog(const WorkerLog&) = delete;
  WorkerLog& operator=(const WorkerLog&) = delete;

  void write(std::string_view bytes);
  // Writes an unfinished last line too, and ends it.
  void flush();
  // A line of its own.
  void write_line(std::string_view line);

 private:
  void write_whole(std::string_view bytes);
  void open();

  const std::filesystem::path file_;
  const std::int64_t bytes_max_;
  int fd_ = -1;  // -1: cannot be opened
  std::int64_t bytes_ = 0;
  std::string line_;  // unfinished
};

// At most `count` lines from the end, the older file's too when this one is short; as printable
// text, long ones cut. An older file that was last written before `since` belongs to an earlier
// worker of the same id and is left alone.
std::vector<std::string> read_last_lines(const std::filesystem::path& file, std::size_t count,
                                         std::chrono::system_clock::time_point since = {});

struct LeftLog {
  std::string id;  // of the worker
  std::filesystem::path file;
  std::chrono::system_clock::time_point last_written;
};
// Every worker's log that is here, by id.
std::vector<LeftLog> list_logs(const base::Home& home);

// The log of a worker that nobody lists any more, while there is one.
std::optional<std::filesystem::path> find_log_of(const base::Home& home, std::string_view id);

}  // namespace llorch::pool
