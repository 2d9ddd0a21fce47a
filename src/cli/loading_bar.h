// A line on stderr that moves while a model loads, for people at a terminal. Private to cli/.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace llorch::cli {

// The line `elapsed` after the start: a block that wanders through a bar of `width` and back.
std::string loading_line(std::string_view what, std::chrono::milliseconds elapsed,
                         std::size_t width);

// Draws itself at each tick and wipes the line at its end. Draws nothing where stderr is no
// terminal.
class LoadingBar {
 public:
  explicit LoadingBar(std::string_view what);
  ~LoadingBar();
  LoadingBar(const LoadingBar&) = delete;
  LoadingBar& operator=(const LoadingBar&) = delete;

  void tick();

 private:
  const std::string what_;
  const bool enabled_;
  const std::chrono::steady_clock::time_point started_;
  bool drawn_ = false;
};

}  // namespace llorch::cli
