// Joules for each token, where the processor counts them for everybody to read.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "cli/matrix_checks.h"
#include "contract/backend_kind.h"

namespace llorch::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::int32_t kTokens = 32;
constexpr std::size_t kStreams = 4;
constexpr int kRepeats = 3;
constexpr int kPackagesMax = 64;

// The counter of one processor, in microjoules; it begins anew at `range`.
struct Counter {
  std::uint64_t value = 0;
  std::uint64_t range = 0;
};

std::optional<std::uint64_t> read_number(const fs::path& file) {
  std::ifstream stream(file);
  std::uint64_t value = 0;
  if (!(stream >> value)) return std::nullopt;
  return value;
}

// Of all processors, memory and cores in them included; empty: none that may be read.
std::vector<Counter> read_counters(const fs::path& root) {
  std::vector<Counter> counters;
  for (int i = 0; i < kPackagesMax; ++i) {
    const fs::path folder = root / "sys/class/powercap" / fmt::format("intel-rapl:{}", i);
    const auto value = read_number(folder / "energy_uj");
    if (!value) break;
    counters.push_back({*value, read_number(folder / "max_energy_range_uj").value_or(0)});
  }
  return counters;
}

double joules_between(const std::vector<Counter>& before, const std::vector<Counter>& after) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < std::min(before.size(), after.size()); ++i) {
    const bool has_turned = after[i].value < before[i].value;
    sum += after[i].value + (has_turned ? after[i].range : 0) - before[i].value;
  }
  return static_cast<double>(sum) / 1e6;
}

}  // namespace

CheckResult check_energy(Subject& subject, MatrixCell& cell) {
  if (subject.pid == 0) return skipped("the worker is not on this machine");
  if (subject.backend != contract::kCpu) return skipped("a card counts watts, not joules");
  if (read_counters(subject.root).empty())
    return skipped("no counter of joules may be read below /sys/class/powercap");
  Figure figure{"joules_per_token", "J/token", {}};
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    std::vector<Asked> asks(kStreams);
    for (std::size_t i = 0; i < asks.size(); ++i) {
      asks[i].prompt_ids = shuffled_prompt(subject.known, 8, 9000 + i);
      asks[i].max_tokens = kTokens;
      asks[i].temperature = 1;
      asks[i].seed = i + 1;
    }
    const std::vector<Counter> before = read_counters(subject.root);
    const std::vector<TimedAnswer> answers = ask_together(subject.client, asks, subject.stop);
    const double joules = joules_between(before, read_counters(subject.root));
    std::size_t tokens = 0;
    for (const TimedAnswer& timed : answers) {
      if (!timed.answer.ok()) return failed(timed.answer.error().message);
      tokens += timed.answer->ids.size();
    }
    if (tokens > 0 && joules > 0) figure.samples.push_back(joules / static_cast<double>(tokens));
  }
  if (figure.samples.empty()) return skipped("the counters do not move");
  cell.figures.push_back(figure);
  return passed(fmt::format("{:.3g} J for each token of {} streams, whole processors counted",
                            figure.median(), kStreams));
}

}  // namespace llorch::cli
