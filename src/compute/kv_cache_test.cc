// What write_kv leaves in a cache.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "compute/test_backends.h"
#include "compute/test_tensors.h"
#include "tensor/half.h"

namespace llorch::compute::test {
namespace {

class KvCache : public WithBackend {
 protected:
  KvCache() : WithBackend({.rows = 64, .inputs = 512, .context = 1536}) {}
};

INSTANTIATE_TEST_SUITE_P(Every, KvCache, testing::ValuesIn(backends_under_test()), label_of);

TEST_P(KvCache, HoldsNanWhereAQuantisedOneCannotHoldWhatIsWritten) {
  Device device(*backend_);
  std::vector<float> keys(64, 0.5F);
  keys[40] = std::numeric_limits<float>::infinity();
  std::vector<float> values(64, 1.0F);
  values[3] = 3e38F;  // finite, but its scale is no half
  const std::vector<std::int32_t> zero = {0};
  const KvLayer cache = {device.zeros(DType::Q8_0, {1, 1, 4, 64}),
                         device.zeros(DType::Q8_0, {1, 1, 4, 64})};
  backend_->write_kv({.keys = device.floats(keys, {1, 1, 64}),
                      .values = device.floats(values, {1, 1, 64}),
                      .slots = device.ints(zero),
                      .cache = cache});
  std::vector<std::byte> block(34);
  const auto scale_at = [&](const TensorView& view, std::int64_t index) {
    backend_->download(static_cast<const std::byte*>(view.data) + index * 34, block);
    std::uint16_t bits = 0;
    std::memcpy(&bits, block.data(), sizeof(bits));
    return tensor::half_to_float(bits);
  };
  EXPECT_TRUE(std::isfinite(scale_at(cache.keys, 0)));
  EXPECT_TRUE(std::isnan(scale_at(cache.keys, 1)));
  EXPECT_TRUE(std::isnan(scale_at(cache.values, 0)));
  EXPECT_TRUE(std::isfinite(scale_at(cache.values, 1)));
}

TEST_P(KvCache, HoldsRowsAsTheReferenceDoes) {
  for (const DType dtype : {DType::F32, DType::F16, DType::Q8_0}) {
    const auto stored = [&](Backend& backend) {
      Device device(backend);
      Random random(3);
      const std::int64_t head_dim = dtype == DType::Q8_0 ? 64 : 6;
      const std::int64_t width = 2 * head_dim;
      const KvLayer cache = {device.zeros(dtype, {3, 2, 4, head_dim}),
                             device.zeros(dtype, {3, 2, 4, head_dim})};
      const std::vector<std::int32_t> slots = {11, 0, 6};
      backend.write_kv(
          {.keys = device.matrix(random.numbers(3 * width), 3, width, Layout::ColumnRange)
                       .split_heads(2),
           .values = device.matrix(random.numbers(3 * width), 3, width, Layout::ColumnRange)
                         .split_heads(2),
           .slots = device.ints(slots),
           .cache = cache});
      std::vector<std::byte> bytes(
          static_cast<std::size_t>(tensor::storage_bytes(dtype, cache.keys.elements()).value()));
      std::vector<std::byte> all;
      for (const TensorView& view : {cache.keys, cache.values}) {
        backend.download(view.data, bytes);
        all.insert(all.end(), bytes.begin(), bytes.end());
      }
      return all;
    };
    EXPECT_EQ(stored(*backend_), stored(*reference_));
  }
}

}  // namespace
}  // namespace llorch::compute::test
