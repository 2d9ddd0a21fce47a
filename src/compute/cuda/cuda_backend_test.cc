// What the CUDA backend promises beyond the ops: memory, copies, messages. Needs a GPU; says so and
// skips without.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "compute/test_backends.h"
#include "compute/test_tensors.h"

namespace llorch::compute::test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class CudaBackend : public WithBackend {
 protected:
  CudaBackend() : WithBackend({.rows = 8, .inputs = 64, .context = 64}) {}

  std::vector<std::byte> download(const Buffer& buffer) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(buffer.bytes()));
    backend_->download(buffer.data(), bytes);
    return bytes;
  }
};

INSTANTIATE_TEST_SUITE_P(Every, CudaBackend, testing::ValuesIn(backends_under_test()), label_of);

TEST_P(CudaBackend, NamesItsDevice) {
  EXPECT_THAT(backend_->name(), StartsWith("cuda:0 ("));
}

TEST_P(CudaBackend, ListsTheDevicesWhenOneIsNotThere) {
  const auto absent = make_backend("cuda:99");
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code, ErrorCode::Unavailable);
  EXPECT_THAT(absent.error().message, HasSubstr(backend_->name()));
}

TEST_P(CudaBackend, TooLargeAnAllocationIsAnErrorAndTheDeviceGoesOn) {
  const auto huge = backend_->allocate(std::int64_t{1} << 45);
  ASSERT_FALSE(huge.ok());
  EXPECT_EQ(huge.error().code, ErrorCode::DeviceOutOfMemory);
  EXPECT_THAT(huge.error().message, HasSubstr("35184372088832 bytes"));
  EXPECT_THAT(huge.error().message, HasSubstr("bytes are free"));
  EXPECT_FALSE(backend_->allocate(-1).ok());
  EXPECT_TRUE(backend_->allocate(0).ok());
  const auto buffer = backend_->allocate(64);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(download(*buffer), std::vector<std::byte>(64));
}

TEST_P(CudaBackend, FreshMemoryIsZeroEvenWhereItWasUsed) {
  constexpr std::int64_t kBytes = 1 << 20;
  const std::vector<std::byte> ones(kBytes, std::byte{0xFF});
  for (int i = 0; i < 4; ++i) {
    const auto buffer = backend_->allocate(kBytes);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ(download(*buffer), std::vector<std::byte>(kBytes));
    backend_->upload(ones, buffer->data());
  }
}

// More than the page-locked memory holds, in pieces that cross its borders.
TEST_P(CudaBackend, LargeUploadsArriveWholeAndTheSourceIsFreeAtOnce) {
  constexpr std::size_t kPieceBytes = (7U << 20) + 13;
  constexpr std::size_t kPieces = 7;
  const auto buffer = backend_->allocate(kPieces * kPieceBytes);
  ASSERT_TRUE(buffer.ok());
  Random random(9);
  std::vector<std::byte> expected(kPieces * kPieceBytes);
  for (std::byte& byte : expected) byte = static_cast<std::byte>(random.bits() & 0xFFU);
  std::vector<std::byte> piece(kPieceBytes);
  for (std::size_t i = 0; i < kPieces; ++i) {
    std::copy_n(expected.begin() + static_cast<std::ptrdiff_t>(i * kPieceBytes), kPieceBytes,
                piece.begin());
    backend_->upload(piece, static_cast<std::byte*>(buffer->data()) + i * kPieceBytes);
    std::fill(piece.begin(), piece.end(), std::byte{0});
  }
  EXPECT_TRUE(download(*buffer) == expected);
}

// What a second step in flight rests on: ids that an op before found, and copies that are seen when
// their mark was waited for, whatever was enqueued since.
TEST_P(CudaBackend, IdsGoFromStepToStepAndReachTheHostLater) {
  ASSERT_TRUE(backend_->runs_behind());
  Device device(*backend_);
  const TensorView found = device.ints(std::vector<std::int32_t>{7, 0, -1});
  const std::vector<std::int32_t> later = {9, 9, 9};
  std::vector<std::int32_t> seen(2 * 600);
  const Buffer pinned = backend_->pin_host(std::as_writable_bytes(std::span(seen)));
  for (const int place : {0, 1}) {
    std::vector<std::int32_t> ids(600, 5);
    ids[0] = -1;
    ids[1] = -2;
    ids[599] = -3;
    const TensorView tokens = device.ints(ids);
    backend_->fill_in_ids(tokens, found);
    backend_->download_later(tokens.data, std::as_writable_bytes(std::span(seen).subspan(
                                              static_cast<std::size_t>(place) * 600, 600)));
    backend_->mark(place);
    backend_->upload(std::as_bytes(std::span(later)), found.data);
  }
  for (const int place : {0, 1}) {
    backend_->wait(place);
    const std::span<const std::int32_t> ids =
        std::span(seen).subspan(static_cast<std::size_t>(place) * 600, 600);
    EXPECT_EQ(ids[0], place == 0 ? 7 : 9);
    EXPECT_EQ(ids[1], place == 0 ? 0 : 9);
    EXPECT_EQ(ids[2], 5);
    EXPECT_EQ(ids[599], place == 0 ? 0 : 9) << "where nothing was found";
  }
}

// A step that would be kept, where nothing is left to keep it in: none of it runs the first time,
// all of it when it begins again, and so it stays.
TEST_P(CudaBackend, AStepThatThereIsNoMemoryToKeepIsLaunchedOpByOp) {
  Device device(*backend_);
  constexpr std::int64_t kDim = 64;
  Random random(12);
  const std::vector<std::byte> table = random_weight(DType::F16, 16 * kDim, random);
  const Weight* weight = device.weight(DType::F16, 16, kDim, table);
  const TensorView ids = device.ints(std::vector<std::int32_t>{3});
  const TensorView out = device.output(1, kDim, Layout::Tight);
  const SequenceRun run{.rows = 1};
  const auto step = [&] {
    int begun = 0;
    do {
      ++begun;
      const StepShape shape{.rows = 1, .sequences = 1, .runs = {&run, 1}, .owner = this};
      if (backend_->begin_step(shape)) continue;
      // As many kernels as a model has, so that they need memory.
      for (int i = 0; i < 2000; ++i)
        backend_->embed({.table = weight, .ids = ids, .out = out, .accumulate = i > 0});
    } while (!backend_->end_step());
    return begun;
  };
  EXPECT_EQ(step(), 1);  // seen once
  const std::vector<float> expected = device.read(out);
  std::vector<Buffer> all;
  for (std::int64_t bytes = backend_->free_bytes(); bytes >= 4096;) {
    Result<Buffer> some = backend_->allocate(bytes);
    if (some.ok()) {
      all.push_back(some.take());
    } else {
      bytes /= 2;
    }
  }
  const int begun = step();
  EXPECT_EQ(device.read(out), expected);
  EXPECT_EQ(step(), 1);
  EXPECT_EQ(device.read(out), expected);
  all.clear();
  if (begun == 1) GTEST_SKIP() << "the driver had memory for the graph all the same";
  EXPECT_EQ(begun, 2);
}

TEST_P(CudaBackend, RefusesStepsBeyondTheKernels) {
  EXPECT_TRUE(backend_->reserve({.rows = 65535, .inputs = 1, .context = 1}).ok());
  EXPECT_FALSE(backend_->reserve({.rows = 65536, .inputs = 1, .context = 1}).ok());
}

}  // namespace
}  // namespace llorch::compute::test
