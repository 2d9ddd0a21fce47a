// Prometheus' text format: what the /metrics pages of our programs are made of.
#pragma once

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

namespace llorch::api {

inline constexpr std::string_view kMetricsType = "text/plain; version=0.0.4; charset=utf-8";

// The two lines in front of a metric's values.
void append_head(std::string& out, std::string_view metric, std::string_view type,
                 std::string_view help);

// A metric with one value.
template <class Number>
void append_value(std::string& out, std::string_view metric, std::string_view type,
                  std::string_view help, Number value) {
  append_head(out, metric, type, help);
  fmt::format_to(std::back_inserter(out), "{} {}\n", metric, value);
}

// A label's value: backslash, quote and line end escaped.
std::string label(std::string_view text);

// Counts of values up to each of its bounds, and their sum. Any thread may add while another reads.
class Histogram {
 public:
  static constexpr std::array<double, 14> kBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                     0.25,  0.5,    1,     2.5,  5,     10,   30};

  void add(double seconds);
  // Appends the lines of one histogram in Prometheus' text format.
  void append_to(std::string& out, std::string_view metric, std::string_view help) const;

 private:
  std::array<std::atomic<std::int64_t>, kBounds.size() + 1> counts_ = {};  // the last: above all
  std::atomic<std::int64_t> sum_us_ = 0;
};

}  // namespace llorch::api
