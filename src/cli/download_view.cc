#include "cli/download_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/utf8.h"
#include "cli/output.h"

namespace llorch::cli {
namespace {

constexpr std::size_t kLabelColumns = 20;
constexpr std::size_t kBarColumns = 10;
constexpr std::chrono::seconds kPlainEvery{5};
constexpr std::size_t kHostColumns = 15;
constexpr std::size_t kPlainHostColumns = 100;
constexpr double kLongest = 10.0 * 3600;  // a longer wait is a guess

// Cut in front, where names of shards are all the same.
std::string shortened(std::string_view text, std::size_t columns) {
  std::string clean = base::printable(text);
  if (base::count_scalars(clean) <= columns) return clean;
  while (base::count_scalars(clean) > columns - 1) {
    clean.erase(clean.begin());
    while (!clean.empty() && (static_cast<unsigned char>(clean.front()) & 0xC0U) == 0x80U)
      clean.erase(clean.begin());
  }
  return "…" + clean;
}

std::string label_of(const contract::DownloadEvent& event) {
  const std::string& name = event.file.empty() ? event.model : event.file;
  if (event.files_total <= 1) return shortened(name, kLabelColumns);
  const std::string count =
      fmt::format("{}/{} ", std::min(event.files_done + 1, event.files_total), event.files_total);
  return count + shortened(name, kLabelColumns - count.size());
}

double fraction_of(const contract::DownloadEvent& event) {
  return event.bytes_total > 0 ? std::min(1.0, static_cast<double>(event.bytes_done) /
                                                   static_cast<double>(event.bytes_total))
                               : 0;
}

// The end is reached when it is reached: 99.9 % is not 100.
int percent_of(const contract::DownloadEvent& event) {
  return static_cast<int>(std::floor(fraction_of(event) * 100));
}

std::string rate_text(const contract::DownloadEvent& event) {
  if (event.bytes_per_second <= 0) return {};
  std::string text =
      fmt::format("  {}/s", base::human_bytes(static_cast<std::int64_t>(event.bytes_per_second)));
  if (event.seconds_left && *event.seconds_left < kLongest && event.bytes_done < event.bytes_total)
    text += "  " + clock_text(*event.seconds_left);
  return text;
}

// Nothing when it goes on.
std::string waiting_text(const contract::DownloadEvent& event, std::size_t columns) {
  if (!event.waiting_seconds) return {};
  return fmt::format("waiting for {} ({})", shortened(event.waiting_for, columns),
                     clock_text(static_cast<double>(*event.waiting_seconds)));
}

std::string plain_line(const contract::DownloadEvent& event) {
  if (event.waiting_seconds)
    return fmt::format("{}: {}\n", base::printable(event.model),
                       waiting_text(event, kPlainHostColumns));
  const std::string file = event.files_total > 1 ? "  " + base::printable(event.file) : "";
  const std::string done =
      event.bytes_total > 0
          ? fmt::format("{:3} %  {} of {}", percent_of(event), base::human_bytes(event.bytes_done),
                        base::human_bytes(event.bytes_total))
          : base::human_bytes(event.bytes_done);
  return fmt::format("{}: {}{}{}\n", base::printable(event.model), done, rate_text(event), file);
}

}  // namespace

std::string clock_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::ceil(std::max(0.0, seconds)));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string progress_line(const contract::DownloadEvent& event) {
  if (event.kind == contract::DownloadEvent::Kind::Verifying) {
    return fmt::format("{} {} {:3} %  checking", label_of(event),
                       base::progress_bar(fraction_of(event), kBarColumns), percent_of(event));
  }
  if (event.waiting_seconds && event.bytes_total <= 0)
    return fmt::format("{}  {}", label_of(event), waiting_text(event, kHostColumns));
  if (event.waiting_seconds) {
    return fmt::format("{} {} {:3} %  {}", label_of(event),
                       base::progress_bar(fraction_of(event), kBarColumns), percent_of(event),
                       waiting_text(event, kHostColumns));
  }
  if (event.bytes_total <= 0)
    return fmt::format("{}  {}{}", label_of(event), base::human_bytes(event.bytes_done),
                       rate_text(event));
  return fmt::format("{} {} {:3} %  {}/{}{}", label_of(event),
                     base::progress_bar(fraction_of(event), kBarColumns), percent_of(event),
                     base::human_bytes(event.bytes_done), base::human_bytes(event.bytes_total),
                     rate_text(event));
}

bool PlainProgress::is_due(const contract::DownloadEvent& event, Time now) {
  const bool begins_to_wait = event.waiting_seconds.has_value() && !was_waiting_;
  was_waiting_ = event.waiting_seconds.has_value();
  if (begins_to_wait || (was_waiting_ && now - last_ >= kPlainEvery)) {
    last_ = now;
    return true;
  }
  if (was_waiting_ || event.bytes_done == 0) return false;  // nothing to tell yet
  const int tenth = percent_of(event) / 10;
  if (last_tenth_ >= 0 && tenth <= last_tenth_ && now - last_ < kPlainEvery) return false;
  last_tenth_ = std::max(tenth, last_tenth_);
  last_ = now;
  return true;
}

DownloadView::DownloadView(bool is_terminal) : is_terminal_(is_terminal), line_(stderr) {}

void DownloadView::show(const contract::DownloadEvent& event) {
  using Kind = contract::DownloadEvent::Kind;
  switch (event.kind) {
    case Kind::Resolved:
      line_.clear();
      write_err(
          fmt::format("{}: {}{}{}\n", base::printable(event.model), base::printable(event.text),
                      event.files_total > 1 ? fmt::format(", {} files", event.files_total) : "",
                      event.bytes_total > 0 ? ", " + base::human_bytes(event.bytes_total) : ""));
      return;
    case Kind::Note:
      line_.clear();
      write_err(base::printable(event.text) + "\n");
      return;
    case Kind::Progress:
    case Kind::Verifying:
      if (is_terminal_)
        line_.show(progress_line(event));
      else if (plain_.is_due(event, std::chrono::steady_clock::now()))
        write_err(plain_line(event));
      return;
    case Kind::FileDone:
    case Kind::Done:
      return;
  }
}

}  // namespace llorch::cli
