#include "cli/loading_bar.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "base/terminal.h"
#include "cli/output.h"

namespace llorch::cli {
namespace {

constexpr std::size_t kWidth = 24;
constexpr std::size_t kBlock = 6;
constexpr std::chrono::milliseconds kStep{100};
constexpr std::chrono::milliseconds kSilent{300};  // quick loads show nothing
constexpr std::string_view kWipe = "\r\x1b[K";

}  // namespace

std::string loading_line(std::string_view what, std::chrono::milliseconds elapsed,
                         std::optional<double> progress, std::size_t width) {
  if (progress && *progress > 0) {
    const double part = std::min(*progress, 1.0);
    const auto full = static_cast<std::size_t>(part * static_cast<double>(width));
    return fmt::format("loading {} [{}{}] {:.0f} %", base::printable(what), std::string(full, '='),
                       std::string(width - full, ' '), part * 100);
  }
  const std::size_t block = std::min(kBlock, width);
  const std::size_t way = width - block;
  std::string bar(width, ' ');
  if (way > 0) {
    const std::size_t at = static_cast<std::size_t>(elapsed / kStep) % (2 * way);
    bar.replace(at <= way ? at : 2 * way - at, block, std::string(block, '='));
  }
  return fmt::format("loading {} [{}] {:.1f} s", base::printable(what), bar,
                     static_cast<double>(elapsed.count()) / 1000.0);
}

LoadingBar::LoadingBar(std::string_view what)
    : what_(what),
      enabled_(::isatty(STDERR_FILENO) != 0),
      started_(std::chrono::steady_clock::now()) {}

LoadingBar::~LoadingBar() {
  if (drawn_) write_err(kWipe);
}

void LoadingBar::tick(std::optional<double> progress) {
  const auto elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - started_);
  if (!enabled_ || elapsed < kSilent) return;
  write_err(fmt::format("{}{}", kWipe, loading_line(what_, elapsed, progress, kWidth)));
  drawn_ = true;
}

}  // namespace llorch::cli
