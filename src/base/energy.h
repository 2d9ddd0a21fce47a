// Joules, as counters of processors and cards tell them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace llorch::base {

// The counter of one processor or card, in microjoules; it begins anew at `range`
// (0: not known).
struct EnergyCounter {
  std::uint64_t value = 0;
  std::uint64_t range = 0;
};

// Of all processors, memory and cores in them included (RAPL); empty: none that may be read.
// `root` stands before /sys: "/", or a folder of a test.
std::vector<EnergyCounter> read_processor_energy(const std::filesystem::path& root = "/");

// What they counted from one reading to the next, but for those that began anew nobody knows where.
double joules_between(const std::vector<EnergyCounter>& before,
                      const std::vector<EnergyCounter>& after);

}  // namespace llorch::base
