#include "compute/dequantize.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "support/test_paths.h"

namespace llorch::compute {
namespace {

using tensor::DType;

// The text between `open` and `close` after "key" in the object of `type`; empty when the type is
// not there. Enough of JSON for the two golden files, which have one flat object per type.
std::string_view field(std::string_view json, std::string_view type, std::string_view key,
                       char open, char close) {
  const std::string object = "\"" + std::string(type) + "\": {";
  std::size_t at = json.find(object);
  if (at == std::string_view::npos) return {};
  at = json.find("\"" + std::string(key) + "\":", at + object.size());
  const std::size_t begin = json.find(open, at + key.size() + 3) + 1;
  return json.substr(begin, json.find(close, begin) - begin);
}

std::vector<std::byte> from_hex(std::string_view hex) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

std::vector<std::byte> from_base64(std::string_view text) {
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::vector<std::byte> bytes;
  std::uint32_t bits = 0;
  int num_bits = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<std::uint32_t>(kAlphabet.find(c));
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    bytes.push_back(static_cast<std::byte>(bits >> num_bits & 0xFFU));
  }
  return bytes;
}

std::vector<float> from_decimals(std::string_view list) {
  std::vector<float> values;
  const std::string text(list);
  const char* at = text.c_str();
  while (*at != '\0') {
    char* end = nullptr;
    values.push_back(std::strtof(at, &end));
    if (end == at) return {};
    at = end;
    while (*at == ',' || *at == ' ' || *at == '\n') ++at;
  }
  return values;
}

void expect_same_bits(DType dtype, std::span<const std::byte> blocks,
                      std::span<const float> expected) {
  std::vector<float> values(expected.size());
  const Status status = dequantize(dtype, blocks, values);
  ASSERT_TRUE(status.ok()) << status.error().message;
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(std::bit_cast<std::uint32_t>(values[i]), std::bit_cast<std::uint32_t>(expected[i]))
        << tensor::name(dtype) << " value " << i << ": " << values[i] << ", expected "
        << expected[i];
  }
}

TEST(Dequantize, EqualsTheIndependentDecoderBitForBit) {
  const auto json =
      base::read_text_file(test::source_path("tests/golden/dequant_blocks.json"), 1 << 20);
  ASSERT_TRUE(json.ok());
  for (const tensor::DTypeInfo& type : tensor::all_dtypes()) {
    if (!can_dequantize(type.dtype)) continue;
    const auto blocks = from_hex(field(*json, type.name, "blocks", '"', '"'));
    const auto expected_bytes = from_hex(field(*json, type.name, "f32", '"', '"'));
    ASSERT_FALSE(blocks.empty()) << "the fixture lacks " << type.name;
    std::vector<float> expected(expected_bytes.size() / sizeof(float));
    std::memcpy(expected.data(), expected_bytes.data(), expected_bytes.size());
    expect_same_bits(type.dtype, blocks, expected);
  }
}

TEST(Dequantize, EqualsValuesOfRealModelsBitForBit) {
  const auto path = test::data_path("golden/dequant_vectors.json");
  if (!path) GTEST_SKIP() << "golden/dequant_vectors.json is absent";
  const auto json = base::read_text_file(*path, 1 << 20);
  ASSERT_TRUE(json.ok());
  int num_types = 0;
  for (const tensor::DTypeInfo& type : tensor::all_dtypes()) {
    const auto blocks = from_base64(field(*json, type.name, "raw_b64", '"', '"'));
    const auto expected = from_decimals(field(*json, type.name, "f32", '[', ']'));
    if (blocks.empty() || !can_dequantize(type.dtype)) continue;
    ASSERT_FALSE(expected.empty());
    expect_same_bits(type.dtype, blocks, expected);
    ++num_types;
  }
  EXPECT_EQ(num_types, 16);
}

TEST(Dequantize, NamesTheTypeItCannotDecode) {
  std::vector<std::byte> block(66);
  std::vector<float> out(256);
  const Status status = dequantize(DType::IQ2_XXS, block, out);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::Unsupported);
  EXPECT_EQ(status.error().message, "not supported: IQ2_XXS");
  EXPECT_FALSE(can_dequantize(DType::IQ2_XXS));
}

TEST(Dequantize, RefusesSizesThatDoNotFitTogether) {
  std::vector<std::byte> bytes(36);
  std::vector<float> out(64);
  EXPECT_TRUE(dequantize(DType::Q4_0, bytes, out).ok());
  EXPECT_FALSE(dequantize(DType::Q4_0, std::span(bytes).first(35), out).ok());
  EXPECT_FALSE(dequantize(DType::Q4_0, bytes, std::span(out).first(63)).ok());
  EXPECT_FALSE(dequantize(DType::Q4_0, bytes, std::span(out).first(32)).ok());
  EXPECT_TRUE(dequantize(DType::Q4_0, {}, {}).ok());
}

}  // namespace
}  // namespace llorch::compute
