// Tokens that a device draws are those that the engine's sampler draws: the same numbers go in, the
// same id comes out. The reference backend stands for the device; conformance tests hold others to
// it.
#include <gtest/gtest.h>

#include <vector>

#include "compute/reference/reference_backend.h"
#include "compute/test_tensors.h"
#include "engine/random.h"
#include "engine/sampler.h"

namespace llorch::engine {
namespace {

using compute::test::Device;
using compute::test::Random;

TEST(Draw, OnADeviceEqualsTheSamplers) {
  const auto backend = compute::make_reference_backend({});
  for (const std::int64_t vocab : {1, 2, 63, 1500, 32000}) {
    Sampler sampler(static_cast<std::int32_t>(vocab));
    for (const float temperature : {0.0F, 1e-3F, 0.3F, 0.7F, 1.0F, 2.0F}) {
      constexpr std::int64_t kRows = 6;
      Random random(static_cast<std::uint64_t>(vocab));
      // From flat to peaked.
      std::vector<float> logits;
      for (std::int64_t row = 0; row < kRows; ++row) {
        for (std::int64_t i = 0; i < vocab; ++i)
          logits.push_back(random.number(4.0F) * static_cast<float>(row * row));
      }
      const SamplingParams params{.temperature = temperature, .seed = 77};
      std::vector<std::int32_t> draws;
      for (std::int32_t row = 0; row < kRows; ++row) {
        const std::uint64_t bits = draw_bits(params.seed, row + 1);
        draws.push_back(static_cast<std::int32_t>(bits & 0xFFFFFFFFU));
        draws.push_back(static_cast<std::int32_t>(bits >> 32));
      }
      Device device(*backend);
      const compute::TensorView out = device.ints(std::vector<std::int32_t>(kRows));
      backend->draw({.x = device.floats(logits, {kRows, vocab}),
                     .temperatures = device.floats(std::vector<float>(kRows, temperature), {kRows}),
                     .draws = device.ints(draws, {kRows, 2}),
                     .out = out});
      for (std::int32_t row = 0; row < kRows; ++row) {
        const auto expected = sampler.sample(
            {.logits = std::span(logits).subspan(static_cast<std::size_t>(row * vocab),
                                                 static_cast<std::size_t>(vocab)),
             .params = params,
             .position = row + 1});
        ASSERT_TRUE(expected.ok());
        EXPECT_EQ(static_cast<const std::int32_t*>(out.data)[row], expected->id)
            << vocab << " ids, temperature " << temperature << ", row " << row;
      }
    }
  }
}

}  // namespace
}  // namespace llorch::engine
