#include "compute/sizing.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "base/host_limits.h"
#include "compute/cpu/cpu_backend.h"
#include "compute/cpu/kernels.h"
#include "compute/cpu/packed.h"

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
  WeightSource table = source_of(bytes, 64, 32);
  table.use = WeightUse::LookUp;
  const Result<Weight> in_place = backend->load_weight(table);
  ASSERT_TRUE(in_place.ok());
  EXPECT_EQ(in_place->data, bytes.data());
  EXPECT_EQ(backend->bytes(), 64 * 32 * 4);
  ASSERT_TRUE(backend->load_weight(table).ok());
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

// Tiles are of 16 rows, and some types take a little more in them than in the file.
TEST(SizingBackend, CountsTilesAsTheCpuBackendMakesThem) {
  using enum tensor::DType;
  const auto real = make_backend("cpu", {.threads = 1}).take();
  for (const tensor::DType dtype : {F32, F16, BF16, Q8_0, Q4_0, Q5_0, Q4_K, Q5_K, Q6_K, Q3_K, Q2_K,
                                    IQ2_XXS, IQ1_M, NVFP4, MXFP4}) {
    for (const std::int64_t rows : {1, 16, 500}) {
      const std::vector<std::byte> bytes(
          static_cast<std::size_t>(tensor::storage_bytes(dtype, rows * 512).value()));
      WeightSource source = source_of(bytes, rows, 512);
      source.dtype = dtype;
      const auto backend = make_sizing_backend("cpu", {.threads = 1}).take();
      ASSERT_TRUE(backend->load_weight(source).ok());
      EXPECT_EQ(backend->bytes(), real->load_weight(source)->storage.bytes())
          << tensor::name(dtype) << " x " << rows;
    }
  }
}

TEST(SizingBackend, ScratchFollowsThreadsAndLimits) {
  const auto scratch = [](int threads, std::int64_t inputs, std::int64_t head_dim) {
    const auto backend = make_sizing_backend("cpu", {.threads = threads}).take();
    EXPECT_TRUE(backend->reserve({.rows = 64, .inputs = inputs, .head_dim = head_dim}).ok());
    return backend->bytes();
  };
  // What is not each thread's own is there once.
  const std::int64_t shared = 2 * scratch(1, 1024, 0) - scratch(2, 1024, 0);
  const bool has_bf16 = cpu_forms("", {}).has_bf16;
  EXPECT_EQ(shared, 64 * 1024 * (has_bf16 ? 4 : 2));
  EXPECT_EQ(scratch(3, 1024, 0) - shared, 3 * (scratch(1, 1024, 0) - shared));
  EXPECT_GT(scratch(1, 1024, 256), scratch(1, 1024, 64));
  EXPECT_EQ(scratch(0, 1024, 0) - shared, base::usable_cores() * (scratch(1, 1024, 0) - shared));
  const auto backend = make_sizing_backend("cpu").take();
  EXPECT_FALSE(backend->reserve({.rows = 1, .inputs = -1}).ok());
}

// Half of the floats' room as blocks, and once more as BF16 where the instruction set multiplies
// those, unless another form was asked for.
TEST(SizingBackend, CountsTheRoomForAPreparedInput) {
  for (const Isa& isa : available_isas()) {
    SCOPED_TRACE(isa.name);
    const auto bytes = [&](std::optional<InputForm> input, std::int64_t rows) {
      const auto backend =
          make_sizing_backend("cpu", {.threads = 2, .isa = isa.name, .input = input}).take();
      EXPECT_TRUE(backend->reserve({.rows = rows, .inputs = 1000}).ok());
      return backend->bytes();
    };
    const auto of_a_row = [&](std::optional<InputForm> input) {
      return (bytes(input, 64) - bytes(input, 32)) / 32;
    };
    const std::int64_t bf16 = isa.packed->round != nullptr ? 1024 * 2 : 0;
    EXPECT_EQ(of_a_row({}), 1000 * 2 + bf16);
    EXPECT_EQ(of_a_row(InputForm::F32), 0);
    EXPECT_EQ(of_a_row(InputForm::F16), 1000 * 4);
    EXPECT_EQ(of_a_row(InputForm::BF16), 1000 * 4 + bf16);
    EXPECT_EQ(of_a_row(InputForm::Int8), 1000 * 6);
  }
}

// Runners keep room for what they tell a device that chooses tokens.
TEST(SizingBackend, ChoosesTokensWhereTheDeviceDoes) {
  const auto cpu = make_sizing_backend("cpu").take();
  EXPECT_FALSE(cpu->can_draw() || cpu->can_choose() || cpu->can_edit());
  const auto gpu = make_sizing_backend("cuda:0").take();
  EXPECT_TRUE(gpu->can_draw() && gpu->can_choose() && gpu->can_edit());
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
}

// The input of a product in 16 bits, twice; 64 MiB where contexts are long; what is left is small.
TEST(SizingBackend, CountsTheWorkspaceOfAGpu) {
  const auto bytes = [](const StepLimits& limits) {
    const auto backend = make_sizing_backend("cuda:0").take();
    EXPECT_TRUE(backend->reserve(limits).ok());
    return backend->bytes();
  };
  const std::int64_t narrow = bytes({.rows = 1024, .inputs = 1024, .context = 4096});
  EXPECT_EQ(bytes({.rows = 1024, .inputs = 4096, .context = 4096}) - narrow,
            2 * 2 * 1024 * (4096 - 1024));
  EXPECT_GT(narrow, 64 << 20);
  EXPECT_LT(narrow, 90 << 20);
  EXPECT_LT(bytes({.rows = 64, .inputs = 1024, .context = 1024}), 8 << 20);
}

// What is multiplied is in whole tiles; a table that is both is there twice, halves once.
TEST(SizingBackend, CountsTheTilesOfAGpu) {
  constexpr std::int64_t kRows = 1024;
  constexpr std::int64_t kCols = 4096;
  const auto mebibytes = [](tensor::DType dtype, WeightUse use) {
    const tensor::DTypeInfo& type = tensor::info(dtype);
    const std::vector<std::byte> memory(
        static_cast<std::size_t>(kRows * kCols / type.block_elems * type.block_bytes));
    WeightSource source = source_of(memory, kRows, kCols);
    source.dtype = dtype;
    source.use = use;
    const auto backend = make_sizing_backend("cuda:0").take();
    EXPECT_TRUE(backend->load_weight(source).ok());
    return backend->bytes() >> 20;
  };
  // 4 Mi numbers, 4,096 tiles.
  EXPECT_EQ(mebibytes(tensor::DType::F16, WeightUse::Multiply), 8);
  EXPECT_EQ(mebibytes(tensor::DType::F16, WeightUse::Both), 8);
  EXPECT_EQ(mebibytes(tensor::DType::BF16, WeightUse::Both), 16);
  EXPECT_EQ(mebibytes(tensor::DType::Q4_K, WeightUse::Multiply), 4) << "2.5 in pieces of 2";
  EXPECT_EQ(mebibytes(tensor::DType::Q4_K, WeightUse::Both), 6) << "2.5 and 2.25";
  EXPECT_EQ(mebibytes(tensor::DType::Q2_K, WeightUse::Multiply), 2) << "as it is: 1.3";
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
