// A line on stderr that moves while a model loads, for people at a terminal. Private to cli/.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace llorch::cli {

// The line `elapsed` after the start: a bar of `width` that is full at 1 where the progress is
// known, else a block that wanders through it and back.
std::string loading_line(std::string_view what, std::chrono::milliseconds elapsed,
                         std::optional<double> progress, std::size_t width);

// Draws itself at each tick and wipes the line at its end. Draws nothing where stderr is no
// terminal.
class LoadingBar {
 public:
  explicit LoadingBar(std::string_view what);
  ~LoadingBar();
  LoadingBar(const LoadingBar&) = delete;
  LoadingBar& operator=(const LoadingBar&) = delete;

  void tick(std::optional<double> progress);  // 0..1

 private:
  const std::string what_;
  const bool enabled_;
  const std::chrono::steady_clock::time_point started_;
  bool drawn_ = false;
};

}  // namespace llorch::cli
