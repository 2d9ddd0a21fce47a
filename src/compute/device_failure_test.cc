#include "compute/device_failure.h"

#include <gtest/gtest.h>

namespace llorch::compute {
namespace {

TEST(DeviceFailureDeathTest, EndsTheProcessWithOneLine) {
  EXPECT_EXIT(end_with_device_failure("download, or an op before it", "cudaErrorIllegalAddress"),
              testing::ExitedWithCode(1),
              "^the device failed: download, or an op before it: cudaErrorIllegalAddress; this "
              "process ends, a new one may find it in order\n$");
}

}  // namespace
}  // namespace llorch::compute
