#include "compute/sizing.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/host_limits.h"

namespace llorch::compute {
namespace {

WeightSource source_of(std::span<const std::byte> bytes, std::int64_t rows, std::int64_t cols) {
  return {.name = "w",
          .dtype = tensor::DType::F32,
          .rows = rows,
          .cols = cols,
          .row_stride = cols,
          .col_stride = 1,
          .bytes = bytes};
}

TEST(SizingBackend, CountsBuffersOfAnySizeWithoutMemory) {
  const auto backend = make_sizing_backend("cpu", {.threads = 2}).take();
  constexpr std::int64_t kBytes = std::int64_t{1} << 38;  // ThreadSanitizer leaves little more
  const Result<Buffer> buffer = backend->allocate(kBytes);
  ASSERT_TRUE(buffer.ok()) << buffer.error().message;
  EXPECT_NE(buffer->data(), nullptr);
  EXPECT_EQ(backend->bytes(), kBytes);
  EXPECT_FALSE(backend->allocate(-1).ok());
  EXPECT_GT(backend->free_bytes(), std::int64_t{1} << 50) << "a plan sees no limit";
}

TEST(SizingBackend, CountsWeightsAsTheCpuBackendKeepsThem) {
  const std::vector<float> values(64 * 32);
  const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
  const auto backend = make_sizing_backend("cpu", {.threads = 1}).take();
  const Result<Weight> in_place = backend->load_weight(source_of(bytes, 64, 32));
  ASSERT_TRUE(in_place.ok());
  EXPECT_EQ(in_place->data, bytes.data());
  EXPECT_EQ(backend->bytes(), 64 * 32 * 4);
  ASSERT_TRUE(backend->load_weight(source_of(bytes, 64, 32)).ok());
  EXPECT_EQ(backend->bytes(), 64 * 32 * 4) << "tied weights are there once";

  WeightSource transposed = source_of(bytes, 32, 64);
  transposed.row_stride = 1;
  transposed.col_stride = 32;
  const Result<Weight> copied = backend->load_weight(transposed);
  ASSERT_TRUE(copied.ok()) << copied.error().message;
  EXPECT_NE(copied->data, bytes.data());
  EXPECT_EQ(backend->bytes(), 2 * 64 * 32 * 4);
  const auto real = make_backend("cpu", {.threads = 1}).take();
  EXPECT_EQ(real->load_weight(transposed)->storage.bytes(), 64 * 32 * 4) << "as the real one";

  WeightSource bad = source_of(bytes.first(100), 64, 32);
  EXPECT_EQ(backend->load_weight(bad).error().message, real->load_weight(bad).error().message);
}

TEST(SizingBackend, ScratchFollowsThreadsAndLimits) {
  const auto scratch = [](int threads, std::int64_t inputs, std::int64_t context) {
    const auto backend = make_sizing_backend("cpu", {.threads = threads}).take();
    EXPECT_TRUE(backend->reserve({.rows = 64, .inputs = inputs, .context = context}).ok());
    return backend->bytes();
  };
  EXPECT_EQ(scratch(3, 1024, 0), 3 * scratch(1, 1024, 0));
  EXPECT_GT(scratch(1, 1024, 100'000), scratch(1, 1024, 1'000));
  EXPECT_EQ(scratch(0, 1024, 0), base::usable_cores() * scratch(1, 1024, 0));
  const auto backend = make_sizing_backend("cpu").take();
  EXPECT_FALSE(backend->reserve({.rows = 1, .inputs = -1}).ok());
}

TEST(SizingBackend, CountsTheRoomForAPreparedInput) {
  const StepLimits limits = {.rows = 64, .inputs = 1024};
  const auto plain = make_sizing_backend("cpu", {.threads = 2}).take();
  const auto int8 = make_sizing_backend("cpu", {.threads = 2, .input = InputForm::Int8}).take();
  ASSERT_TRUE(plain->reserve(limits).ok() && int8->reserve(limits).ok());
  EXPECT_EQ(int8->bytes(), plain->bytes() + 64 * 1024 * 4);
}

TEST(SizingBackend, AGpuHasItsOwnGranularityAndOverhead) {
  const auto backend = make_sizing_backend("cuda:0").take();
  ASSERT_TRUE(backend->allocate(1).ok());
  ASSERT_TRUE(backend->allocate(600).ok());
  EXPECT_EQ(backend->bytes(), 2 << 20) << "small buffers share a piece";
  ASSERT_TRUE(backend->allocate((2 << 20) + 1).ok());
  EXPECT_EQ(backend->bytes(), (2 << 20) + (4 << 20));
  EXPECT_GT(backend->context_bytes(), 0);
  EXPECT_GT(backend->host_bytes(), 0);
  const std::vector<float> values(1024);
  ASSERT_TRUE(backend->load_weight(source_of(std::as_bytes(std::span(values)), 32, 32)).ok());
}

// Without a device, and without a build that has one: the function is the backend's own.
TEST(SizingBackend, RefusesStepsThatAGpuCannotTake) {
  const auto backend = make_sizing_backend("cuda:0").take();
  EXPECT_TRUE(backend->reserve({.rows = 65535, .inputs = 1024, .context = 4096}).ok());
  EXPECT_FALSE(backend->reserve({.rows = 65536, .inputs = 1024, .context = 4096}).ok());
  EXPECT_EQ(backend->bytes(), 0) << "its kernels take no workspace";
}

TEST(SizingBackend, KnowsNoOtherDevice) {
  EXPECT_FALSE(make_sizing_backend("reference").ok());
  EXPECT_FALSE(make_sizing_backend("").ok());
}

TEST(SizingBackendDeathTest, ComputesNothing) {
  const auto backend = make_sizing_backend("cpu").take();
  EXPECT_DEATH(backend->softmax({}), "only counts");
}

}  // namespace
}  // namespace llorch::compute
