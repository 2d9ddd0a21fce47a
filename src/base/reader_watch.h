// Whoever reads a program's output may be the one who presses Ctrl-C, far away and without a
// terminal that would pass it on.
#pragma once

#include <thread>

namespace llorch::base {

// When the last reader of `output` (a pipe or a socket) has gone, this process gets SIGINT, once.
class ReaderWatch {
 public:
  explicit ReaderWatch(int output);
  ~ReaderWatch();
  ReaderWatch(const ReaderWatch&) = delete;
  ReaderWatch& operator=(const ReaderWatch&) = delete;

 private:
  int stop_fd_;
  std::jthread thread_;
};

// Set for a program that is to watch its standard output in this way.
inline constexpr const char* kReaderVariable = "LLORCH_WATCH_READER";

}  // namespace llorch::base
