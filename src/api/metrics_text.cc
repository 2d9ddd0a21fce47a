#include "api/metrics_text.h"

#include <algorithm>

namespace llorch::api {

void append_head(std::string& out, std::string_view metric, std::string_view type,
                 std::string_view help) {
  fmt::format_to(std::back_inserter(out), "# HELP {} {}\n# TYPE {} {}\n", metric, help, metric,
                 type);
}

std::string label(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

void Histogram::add(double seconds) {
  const auto* bound = std::lower_bound(kBounds.begin(), kBounds.end(), seconds);
  ++counts_[static_cast<std::size_t>(bound - kBounds.begin())];
  sum_us_ += static_cast<std::int64_t>(seconds * 1e6);
}

void Histogram::append_to(std::string& out, std::string_view metric, std::string_view help) const {
  append_head(out, metric, "histogram", help);
  std::int64_t so_far = 0;
  for (std::size_t i = 0; i < kBounds.size(); ++i) {
    so_far += counts_[i].load();
    fmt::format_to(std::back_inserter(out), "{}_bucket{{le=\"{}\"}} {}\n", metric, kBounds[i],
                   so_far);
  }
  so_far += counts_.back().load();
  fmt::format_to(std::back_inserter(out),
                 "{0}_bucket{{le=\"+Inf\"}} {1}\n{0}_sum {2}\n{0}_count {1}\n", metric, so_far,
                 static_cast<double>(sum_us_.load()) / 1e6);
}

}  // namespace llorch::api
