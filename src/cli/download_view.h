// What a person sees of a download: one line that is written over on a terminal, a line now and
// then in a pipe. Private to cli/.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "base/terminal.h"
#include "catalog/download.h"

namespace llorch::cli {

// "7 s", "2:05", "1:02:03".
std::string clock_text(double seconds);

// "2/7 model.safetensors  [#####     ]  48 %  1.20 GiB/2.50 GiB  23.4 MiB/s  0:57", at most 79
// columns: what is done, of how much, how fast, and the time that is left. While nothing comes it
// says for whom it waits: "… 48 %  waiting for hub.example (12 s)".
std::string progress_line(const contract::DownloadEvent& event);

// When a pipe gets a line: the first bytes, each tenth, every few seconds, and when a wait begins.
class PlainProgress {
 public:
  using Time = std::chrono::steady_clock::time_point;
  bool is_due(const contract::DownloadEvent& event, Time now);

 private:
  int last_tenth_ = -1;
  bool was_waiting_ = false;
  Time last_{};
};

// Belongs to one thread. Writes to stderr.
class DownloadView {
 public:
  explicit DownloadView(bool is_terminal);

  void show(const contract::DownloadEvent& event);
  void clear() { line_.clear(); }

 private:
  bool is_terminal_;
  base::StatusLine line_;
  PlainProgress plain_;
};

}  // namespace llorch::cli
