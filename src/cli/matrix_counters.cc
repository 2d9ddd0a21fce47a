// What processor, kernel and card count for everybody to read: joules and memory.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/energy.h"
#include "base/nvml.h"
#include "base/process_table.h"
#include "base/terminal.h"
#include "cli/matrix_checks.h"
#include "contract/backend_kind.h"

namespace llorch::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::int32_t kTokens = 32;
constexpr std::size_t kStreams = 4;
constexpr int kRepeats = 3;
constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr double kPlanTolerance = 0.05;

std::vector<base::EnergyCounter> read_card(const base::Nvml& nvml, std::int32_t gpu) {
  const std::optional<std::int64_t> used = nvml.millijoules(gpu);
  if (!used) return {};
  return {{static_cast<std::uint64_t>(*used) * 1000, 0}};
}

}  // namespace

CheckResult check_energy(Subject& subject, MatrixCell& cell) {
  if (subject.pid == 0) return skipped("the worker is not on this machine");
  const bool is_cpu = subject.backend == contract::kCpu;
  std::unique_ptr<base::Nvml> nvml;
  if (!is_cpu) {
    Result<std::unique_ptr<base::Nvml>> loaded = base::Nvml::load(subject.nvml);
    if (!loaded.ok()) return skipped(loaded.error().message);
    nvml = loaded.take();
  }
  const auto read_counters = [&] {
    return is_cpu ? base::read_processor_energy(subject.root) : read_card(*nvml, subject.gpu);
  };
  if (read_counters().empty())
    return skipped(is_cpu ? "no counter of joules may be read below /sys/class/powercap"
                          : "the card does not count joules");
  Figure figure{"joules_per_token", "J/token", {}};
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    std::vector<Asked> asks(kStreams);
    for (std::size_t i = 0; i < asks.size(); ++i) {
      asks[i].prompt_ids = shuffled_prompt(subject.known, 8, 9000 + i);
      asks[i].max_tokens = kTokens;
      asks[i].temperature = 1;
      asks[i].seed = i + 1;
    }
    const std::vector<base::EnergyCounter> before = read_counters();
    const std::vector<TimedAnswer> answers = ask_together(subject.client, asks, subject.stop);
    const double joules = base::joules_between(before, read_counters());
    std::size_t tokens = 0;
    for (const TimedAnswer& timed : answers) {
      if (!timed.answer.ok()) return failed(timed.answer.error().message);
      tokens += timed.answer->ids.size();
    }
    if (tokens > 0 && joules > 0) figure.samples.push_back(joules / static_cast<double>(tokens));
  }
  if (figure.samples.empty()) return skipped("the counters do not move");
  cell.figures.push_back(figure);
  return passed(fmt::format("{:.3g} J for each token of {} streams, the whole {} counted",
                            figure.median(), kStreams, is_cpu ? "processors" : "card"));
}

CheckResult check_memory(Subject& subject, MatrixCell& cell) {
  if (subject.pid == 0) return skipped("the worker is not on this machine");
  std::int64_t peak = 0;
  if (subject.backend == contract::kCpu) {
    peak = base::read_process_memory(subject.pid).peak_bytes;
    if (peak <= 0) return skipped("the kernel does not say it");
  } else {
    // A worker keeps what it once took of a card: what it holds after all that is its peak.
    const Result<std::unique_ptr<base::Nvml>> nvml = base::Nvml::load(subject.nvml);
    if (!nvml.ok()) return skipped(nvml.error().message);
    peak = (*nvml)->vram_of_process(subject.gpu, subject.pid);
    if (peak <= 0) return skipped("the driver does not say what the worker holds");
  }
  cell.figures.push_back({"peak_memory", "bytes", {static_cast<double>(peak)}});
  const std::string seen = fmt::format("peak {}, planned {}", base::human_bytes(peak),
                                       base::human_bytes(subject.planned_bytes));
  const auto allowed =
      static_cast<std::int64_t>(static_cast<double>(subject.planned_bytes) * (1 + kPlanTolerance));
  if (peak > allowed + 4 * kMiB) return failed(seen + ": the plan is too low");
  return passed(seen);
}

}  // namespace llorch::cli
