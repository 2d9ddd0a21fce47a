// A lock between processes that ends with its holder, however that ends.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "base/result.h"

namespace llorch::base {

// Exclusive, on a file that is made when it is not there and stays unless its holder removes it.
// The kernel lets go of it when the holding process ends; children do not inherit it. The holder's
// pid is written into the file, for messages only.
class FileLock {
 public:
  // Conflict names the file and the holder when it is still held after `patience`.
  static Result<std::unique_ptr<FileLock>> acquire(const std::filesystem::path& file,
                                                   std::chrono::milliseconds patience);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  // Removes the file now, while it is held: whoever waits for it makes a new one. For locks beside
  // things that are finished for good.
  void remove_file();

  // Whether anybody holds the lock now, without ever taking it. False when there is no such file.
  static bool is_held(const std::filesystem::path& file);

 private:
  FileLock(std::filesystem::path file, int fd) : file_(std::move(file)), fd_(fd) {}
  void write_pid() const;

  std::filesystem::path file_;
  int fd_;
};

}  // namespace llorch::base
