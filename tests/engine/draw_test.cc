// Tokens that a device draws are those that the engine's sampler draws: the same numbers go in, the
// same id comes out. The reference backend stands for the device; conformance tests hold others to
// it.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
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

// Flat and peaked rows, rows with ties and with what may not be chosen.
std::vector<float> some_logits(Random& random, std::int64_t vocab, int kind) {
  std::vector<float> logits;
  for (std::int64_t i = 0; i < vocab; ++i) {
    const float number = random.number(4.0F);
    switch (kind) {
      case 0:
        logits.push_back(2.5F);
        break;
      case 1:
        logits.push_back(static_cast<float>(static_cast<int>(number)));
        break;
      case 2:
        logits.push_back(i % 3 == 1 && i > 1 ? -std::numeric_limits<float>::infinity()
                                             : 3 * number);
        break;
      default:
        logits.push_back(number * number * number);
    }
  }
  return logits;
}

TEST(Choose, OnADeviceEqualsTheSamplers) {
  const auto backend = compute::make_reference_backend({});
  int compared = 0;
  for (const std::int64_t vocab : {1, 2, 63, 1500, 9000}) {
    Sampler sampler(static_cast<std::int32_t>(vocab));
    Random random(static_cast<std::uint64_t>(vocab) + 5);
    for (const std::int64_t top_k : {0, 1, 7, 2000}) {
      for (const float top_p : {1.0F, 0.9F, 0.5F, 0.0F}) {
        for (const float min_p : {0.0F, 0.05F, 1.0F}) {
          for (int kind = 0; kind < 4; ++kind) {
            const std::vector<float> logits = some_logits(random, vocab, kind);
            const SamplingParams params{.temperature = kind == 3 ? 0.4F : 1.1F,
                                        .top_k = top_k,
                                        .top_p = top_p,
                                        .min_p = min_p,
                                        .seed = 77};
            const std::uint64_t draw = draw_bits(params.seed, ++compared);
            const auto least =
                static_cast<std::uint64_t>(std::ldexp(static_cast<double>(min_p), 40));
            const compute::ChoiceRule rule{
                .temperature = params.temperature,
                .top_k = top_k < vocab ? static_cast<std::int32_t>(top_k) : 0,
                .has_top_p = top_p < 1 ? 1 : 0,
                .top_p =
                    top_p < 1 ? static_cast<std::uint32_t>(static_cast<double>(top_p) * 0x1p32) : 0,
                .draw = {static_cast<std::uint32_t>(draw), static_cast<std::uint32_t>(draw >> 32)},
                .least = {static_cast<std::uint32_t>(least),
                          static_cast<std::uint32_t>(least >> 32)}};
            const auto words = std::bit_cast<std::array<std::int32_t, compute::kChoiceWords>>(rule);
            Device device(*backend);
            const compute::TensorView out = device.ints(std::vector<std::int32_t>(1));
            backend->choose({.x = device.floats(logits, {1, vocab}),
                             .rules = device.ints(words, {1, compute::kChoiceWords}),
                             .out = out});
            const auto expected =
                sampler.sample({.logits = logits, .params = params, .position = compared});
            ASSERT_TRUE(expected.ok());
            ASSERT_EQ(*static_cast<const std::int32_t*>(out.data), expected->id)
                << vocab << " ids, top-k " << top_k << ", top-p " << top_p << ", min-p " << min_p
                << ", kind " << kind;
          }
        }
      }
    }
  }
  EXPECT_EQ(compared, 960);
}

}  // namespace
}  // namespace llorch::engine
