#include "compute/quantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "compute/dequantize.h"
#include "support/test_paths.h"

namespace llorch::compute {
namespace {

using tensor::DType;
using testing::HasSubstr;

constexpr std::array kPlain = {DType::F16,  DType::BF16, DType::Q8_0, DType::Q4_0,
                               DType::Q4_1, DType::Q5_0, DType::Q5_1};
constexpr std::array kSearched = {DType::Q4_K, DType::Q5_K, DType::Q6_K};

constexpr std::array kWritten = {DType::F32,  DType::F16,  DType::BF16, DType::Q8_0,
                                 DType::Q4_0, DType::Q4_1, DType::Q5_0, DType::Q5_1,
                                 DType::Q4_K, DType::Q5_K, DType::Q6_K};

std::vector<std::byte> from_hex(std::string_view hex) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

std::vector<std::byte> golden_bytes(std::string_view section, std::string_view name) {
  const auto text =
      base::read_text_file(llorch::test::source_path("tests/golden/quant_blocks.json"), 1 << 20);
  CHECK(text.ok(), text.error().message);
  const json::Value value = json::parse(*text).take();
  const json::Object& object = value.as_object().at(section).as_object();
  return from_hex(json::view(object.at(name).as_string()));
}

std::vector<float> golden_values(std::string_view section) {
  const std::vector<std::byte> bytes = golden_bytes(section, "f32");
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

std::vector<std::byte> encode(DType dtype, std::span<const float> values) {
  std::vector<std::byte> blocks(static_cast<std::size_t>(
      tensor::storage_bytes(dtype, static_cast<std::int64_t>(values.size())).value()));
  const Status status = quantize(dtype, values, blocks);
  CHECK(status.ok(), status.error().message);
  return blocks;
}

std::vector<float> decode(DType dtype, std::span<const std::byte> blocks, std::size_t count) {
  std::vector<float> values(count);
  const Status status = dequantize(dtype, blocks, values);
  CHECK(status.ok(), status.error().message);
  return values;
}

std::vector<float> round_trip(DType dtype, std::span<const float> values) {
  return decode(dtype, encode(dtype, values), values.size());
}

double squared_error(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = double{a[i]} - double{b[i]};
    sum += difference * difference;
  }
  return sum;
}

std::vector<float> gaussian(std::size_t count, float deviation) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

TEST(Quantize, PlainTypesEqualTheReferenceByteForByte) {
  const std::vector<float> values = golden_values("plain");
  ASSERT_EQ(values.size() % 32, 0U);
  for (const DType dtype : kPlain) {
    const std::vector<std::byte> ours = encode(dtype, values);
    const std::vector<std::byte> expected = golden_bytes("plain", tensor::name(dtype));
    ASSERT_EQ(ours.size(), expected.size()) << tensor::name(dtype);
    const auto size =
        static_cast<std::size_t>(tensor::storage_bytes(dtype, 32).value());  // of 32 values
    for (std::size_t i = 0; i < ours.size(); ++i) {
      ASSERT_EQ(ours[i], expected[i])
          << tensor::name(dtype) << " row " << i / size << " byte " << i % size;
    }
  }
}

TEST(Quantize, SearchedTypesAreBetterThanTheReference) {
  const std::vector<float> values = golden_values("search");
  ASSERT_EQ(values.size() % 256, 0U);
  for (const DType dtype : kSearched) {
    const std::vector<float> ours = round_trip(dtype, values);
    const std::vector<float> theirs =
        decode(dtype, golden_bytes("search", tensor::name(dtype)), values.size());
    EXPECT_LT(squared_error(ours, values), 0.99 * squared_error(theirs, values))
        << tensor::name(dtype);
    // No kind of block is worse, up to the luck of a search.
    for (std::size_t i = 0; i < values.size(); i += 256) {
      const auto part = [i](const std::vector<float>& all) {
        return std::span(all).subspan(i, 256);
      };
      EXPECT_LE(squared_error(part(ours), part(values)),
                1.001 * squared_error(part(theirs), part(values)))
          << tensor::name(dtype) << " block " << i / 256;
    }
  }
}

// Root of the mean squared error over a Gaussian, in standard deviations: what the bits must give.
TEST(Quantize, ErrorOfAGaussianIsThatOfTheFormat) {
  const std::vector<float> values = gaussian(256 * 64, 0.03F);
  const auto error_of = [&](DType dtype) {
    return std::sqrt(squared_error(round_trip(dtype, values), values) / 16384) / 0.03;
  };
  EXPECT_LT(error_of(DType::Q4_K), 0.072);
  EXPECT_LT(error_of(DType::Q5_K), 0.036);
  EXPECT_LT(error_of(DType::Q6_K), 0.018);
  EXPECT_LT(error_of(DType::Q8_0), 0.0055);
  EXPECT_LT(error_of(DType::Q4_0), 0.10);
  EXPECT_LT(error_of(DType::Q6_K), error_of(DType::Q5_K));
  EXPECT_LT(error_of(DType::Q5_K), error_of(DType::Q4_K));
}

TEST(Quantize, WhatATypeHoldsExactlyComesBackExactly) {
  // Values that are blocks already: encoding what was decoded changes nothing that can be seen.
  const std::vector<float> values = gaussian(256 * 4, 1.0F);
  for (const DType dtype : {DType::F32, DType::F16, DType::BF16, DType::Q8_0, DType::Q4_0}) {
    const std::vector<float> once = round_trip(dtype, values);
    const std::vector<float> twice = round_trip(dtype, once);
    EXPECT_LE(squared_error(once, twice), dtype == DType::Q8_0 || dtype == DType::Q4_0 ? 1e-4 : 0.0)
        << tensor::name(dtype);
  }
}

TEST(Quantize, ZerosStayZeros) {
  const std::vector<float> zeros(512);
  for (const DType dtype : kWritten) EXPECT_EQ(round_trip(dtype, zeros), zeros);
}

TEST(Quantize, ConstantBlocksKeepTheirValue) {
  for (const float constant : {0.5F, -0.5F, 1e-3F, -123.0F}) {
    const std::vector<float> values(512, constant);
    for (const DType dtype : kWritten) {
      for (const float value : round_trip(dtype, values))
        ASSERT_NEAR(value, constant, std::abs(constant) * 0.005F) << tensor::name(dtype);
    }
  }
}

TEST(Quantize, OneHugeValueStaysAndTheRestOfTheBlockIsFinite) {
  for (const float huge : {1000.0F, -1000.0F}) {
    std::vector<float> values = gaussian(512, 0.02F);
    values[77] = huge;
    for (const DType dtype : kWritten) {
      const std::vector<float> back = round_trip(dtype, values);
      EXPECT_NEAR(back[77], huge, 8.0F) << tensor::name(dtype);
      // Other groups are not drowned: the second block has a scale of its own.
      EXPECT_LT(squared_error(std::span(back).subspan(256), std::span(values).subspan(256)),
                256 * 0.004 * 0.004)
          << tensor::name(dtype);
      for (const float value : back) ASSERT_TRUE(std::isfinite(value));
    }
  }
}

TEST(Quantize, SubnormalValuesComeBackSmall) {
  for (const float tiny : {1e-6F, 1e-8F, 1e-20F, 1e-38F, 1e-40F}) {
    const std::vector<float> values = gaussian(512, tiny);
    for (const DType dtype : kWritten) {
      for (const float value : round_trip(dtype, values))
        ASSERT_LE(std::abs(value), std::max(8 * tiny, 1e-6F)) << tensor::name(dtype);
    }
  }
}

// The step of a block is a half, whose smallest is 6e-8: the groups' multiples must carry the rest.
TEST(Quantize, SmallWeightsAreNotErased) {
  const std::vector<float> values = gaussian(512, 3e-6F);
  double energy = 0;
  for (const float value : values) energy += double{value} * double{value};
  for (const DType dtype : kSearched)
    EXPECT_LT(squared_error(round_trip(dtype, values), values), 0.05 * energy)
        << tensor::name(dtype);
}

TEST(Quantize, RefusesWhatIsNotANumberAndSaysWhere) {
  for (const DType dtype : kWritten) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
          -std::numeric_limits<float>::infinity()}) {
      std::vector<float> values(512, 0.25F);
      values[300] = bad;
      std::vector<std::byte> blocks(
          static_cast<std::size_t>(tensor::storage_bytes(dtype, 512).value()));
      const Status status = quantize(dtype, values, blocks);
      ASSERT_FALSE(status.ok()) << tensor::name(dtype);
      EXPECT_EQ(status.error().code, ErrorCode::InvalidArgument);
      EXPECT_THAT(status.error().message, HasSubstr("value 300 is"));
    }
  }
}

TEST(Quantize, RefusesWhatTheTypeCannotReach) {
  for (const float huge : {1e10F, -1e10F, std::numeric_limits<float>::max()}) {
    for (const DType dtype : kWritten) {
      if (dtype == DType::F32 || dtype == DType::BF16) continue;
      std::vector<float> values(512, 0.25F);
      values[300] = huge;
      values[301] = -huge / 2;
      std::vector<std::byte> blocks(
          static_cast<std::size_t>(tensor::storage_bytes(dtype, 512).value()));
      const Status status = quantize(dtype, values, blocks);
      ASSERT_FALSE(status.ok()) << tensor::name(dtype) << " " << huge;
      EXPECT_THAT(status.error().message, HasSubstr("value 300 is"));
      EXPECT_THAT(status.error().message, HasSubstr(std::string(tensor::name(dtype))));
    }
  }
}

TEST(Quantize, RefusesOtherTypesAndSizes) {
  const std::vector<float> values(64);
  std::vector<std::byte> bytes(36);
  EXPECT_TRUE(quantize(DType::Q4_0, values, bytes).ok());
  EXPECT_FALSE(quantize(DType::Q4_0, values, std::span(bytes).first(35)).ok());
  EXPECT_FALSE(quantize(DType::Q4_0, std::span(values).first(63), bytes).ok());
  EXPECT_FALSE(quantize(DType::Q4_K, values, bytes).ok());
  EXPECT_TRUE(quantize(DType::Q4_0, {}, {}).ok());
  EXPECT_EQ(quantize(DType::IQ2_XXS, values, bytes).error().code, ErrorCode::Unsupported);
}

}  // namespace
}  // namespace llorch::compute
