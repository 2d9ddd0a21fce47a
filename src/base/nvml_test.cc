#include "base/nvml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace llorch::base {
namespace {

using ::testing::HasSubstr;

TEST(Nvml, AGpuIsFoundByItsPlaceOnTheBus) {
  ::setenv("FAKE_NVML_DEVICES", "First|1000|400;Second|2000|500", 1);
  const Result<std::unique_ptr<Nvml>> nvml = Nvml::load(LLORCH_FAKE_NVML);
  ASSERT_TRUE(nvml.ok()) << nvml.error().message;
  const Result<GpuReading> second = (*nvml)->read_at("0000:01:00.0");
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_EQ(second->name, "Second");
  EXPECT_EQ(second->vram_total_bytes, 2000);
  EXPECT_EQ(second->vram_free_bytes, 500);
  EXPECT_EQ(second->power_watts, 71.5);
  EXPECT_EQ(second->temperature_celsius, 41.0);
  const Result<GpuReading> third = (*nvml)->read_at("0000:02:00.0");
  ASSERT_FALSE(third.ok());
  EXPECT_THAT(third.error().message, HasSubstr("GPU 0000:02:00.0 cannot be asked"));
  ::unsetenv("FAKE_NVML_DEVICES");
}

TEST(Nvml, TellsWhatAProcessHoldsAndWhatACardHasUsed) {
  ::setenv("FAKE_NVML_DEVICES", "First|1000|400;Second|2000|500", 1);
  ::setenv("FAKE_NVML_PROCESSES", "0|77|100;1|77|300", 1);
  ::setenv("FAKE_NVML_MILLIJOULES", "1|123456", 1);
  const Result<std::unique_ptr<Nvml>> nvml = Nvml::load(LLORCH_FAKE_NVML);
  ASSERT_TRUE(nvml.ok()) << nvml.error().message;
  EXPECT_EQ((*nvml)->vram_of_process(1, 77), 300);
  EXPECT_EQ((*nvml)->vram_of_process(1, 78), 0);
  EXPECT_EQ((*nvml)->millijoules(1), 123456);
  EXPECT_EQ((*nvml)->millijoules(0), std::nullopt) << "an old card";
  EXPECT_EQ((*nvml)->millijoules(2), std::nullopt) << "there is none";
  ::unsetenv("FAKE_NVML_DEVICES");
  ::unsetenv("FAKE_NVML_PROCESSES");
  ::unsetenv("FAKE_NVML_MILLIJOULES");
}

TEST(Nvml, NoLibraryIsAnErrorThatNamesIt) {
  const Result<std::unique_ptr<Nvml>> nvml = Nvml::load("libdoes-not-exist.so");
  ASSERT_FALSE(nvml.ok());
  EXPECT_EQ(nvml.error().code, ErrorCode::Unavailable);
  EXPECT_EQ(nvml.error().message, "no NVIDIA driver: libdoes-not-exist.so is not there");
}

}  // namespace
}  // namespace llorch::base
