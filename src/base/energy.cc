#include "base/energy.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <optional>

namespace llorch::base {
namespace {

namespace fs = std::filesystem;

constexpr int kPackagesMax = 64;

std::optional<std::uint64_t> read_number(const fs::path& file) {
  std::ifstream stream(file);
  std::uint64_t value = 0;
  if (!(stream >> value)) return std::nullopt;
  return value;
}

}  // namespace

std::vector<EnergyCounter> read_processor_energy(const fs::path& root) {
  std::vector<EnergyCounter> counters;
  for (int i = 0; i < kPackagesMax; ++i) {
    const fs::path folder = root / "sys/class/powercap" / fmt::format("intel-rapl:{}", i);
    const auto value = read_number(folder / "energy_uj");
    if (!value) break;
    counters.push_back({*value, read_number(folder / "max_energy_range_uj").value_or(0)});
  }
  return counters;
}

double joules_between(const std::vector<EnergyCounter>& before,
                      const std::vector<EnergyCounter>& after) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < std::min(before.size(), after.size()); ++i) {
    const bool has_turned = after[i].value < before[i].value;
    if (has_turned && after[i].range < before[i].value) continue;  // where it turns is not known
    sum += after[i].value + (has_turned ? after[i].range : 0) - before[i].value;
  }
  return static_cast<double>(sum) / 1e6;
}

}  // namespace llorch::base
