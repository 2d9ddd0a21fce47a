#include "base/energy.h"

#include <gtest/gtest.h>

#include <fstream>

#include "support/test_paths.h"

namespace llorch::base {
namespace {

TEST(Energy, IsWhatAllProcessorsCounted) {
  const test::TempDir root;
  EXPECT_TRUE(read_processor_energy(root.path()).empty());
  const auto write = [&](int processor, const char* file, std::uint64_t value) {
    const auto folder = root / "sys/class/powercap" / ("intel-rapl:" + std::to_string(processor));
    std::filesystem::create_directories(folder);
    std::ofstream(folder / file) << value;
  };
  write(0, "energy_uj", 900'000'000);
  write(0, "max_energy_range_uj", 1'000'000'000);
  write(1, "energy_uj", 5'000'000);
  const auto before = read_processor_energy(root.path());
  ASSERT_EQ(before.size(), 2U);
  write(0, "energy_uj", 20'000'000);  // began anew
  write(1, "energy_uj", 12'500'000);
  EXPECT_DOUBLE_EQ(joules_between(before, read_processor_energy(root.path())), 120 + 7.5);
  EXPECT_DOUBLE_EQ(joules_between(before, {}), 0);

  write(1, "energy_uj", 1'000'000);  // began anew, and nothing says where: not a number to add up
  EXPECT_DOUBLE_EQ(joules_between(before, read_processor_energy(root.path())), 120);
}

}  // namespace
}  // namespace llorch::base
