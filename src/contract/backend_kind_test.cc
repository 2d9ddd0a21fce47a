#include "contract/backend_kind.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace llorch::contract {
namespace {

TEST(BackendKind, TheContractsTwo) {
  EXPECT_THAT(backend_names(), testing::ElementsAre("cpu", "cuda"));
  EXPECT_EQ(find_backend_kind("cpu")->program, "llorch-cpud");
  EXPECT_EQ(find_backend_kind("cpu")->memory_type, "cpu");
  EXPECT_EQ(find_backend_kind("cuda")->program, "worker-orcd");
  EXPECT_EQ(find_backend_kind("cuda")->memory_type, "vram-only");
  EXPECT_EQ(find_backend_kind("CUDA"), nullptr);
  EXPECT_TRUE(needs_gpu("cuda"));
  EXPECT_FALSE(needs_gpu("cpu"));
  EXPECT_FALSE(needs_gpu(""));
}

TEST(BackendKind, DevicesAreNamedByKindAndNumber) {
  for (const BackendKind& kind : kBackendKinds) {
    const BackendKind* again = find_device_kind(device_name(kind, 7));
    ASSERT_NE(again, nullptr);
    EXPECT_EQ(again->name, kind.name);
  }
  EXPECT_EQ(device_name(*find_backend_kind("cuda"), 1), "cuda:1");
  EXPECT_EQ(device_name(*find_backend_kind("cpu"), 1), "cpu");
  EXPECT_EQ(find_device_kind("reference"), nullptr);
}

}  // namespace
}  // namespace llorch::contract
