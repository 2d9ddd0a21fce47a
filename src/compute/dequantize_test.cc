#include "compute/dequantize.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "support/test_paths.h"

namespace llorch::compute {
namespace {

using tensor::DType;

// A golden file: one flat object per type.
json::Object read_golden(const std::filesystem::path& path) {
  const auto text = base::read_text_file(path, 1 << 20);
  CHECK(text.ok(), text.error().message);
  auto value = json::parse(*text);
  CHECK(value.ok() && value->is_object(), "a golden file is a JSON object");
  return std::move(value->as_object());
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

TEST(Dequantize, EqualsTheIndependentDecodersBitForBit) {
  json::Object golden = read_golden(llorch::test::source_path("tests/golden/dequant_blocks.json"));
  for (auto& [name, vector] :
       read_golden(llorch::test::source_path("tests/golden/codebook_blocks.json"))) {
    golden[name] = std::move(vector);
  }
  for (const tensor::DTypeInfo& type : tensor::all_dtypes()) {
    if (!can_dequantize(type.dtype)) continue;
    ASSERT_TRUE(golden.contains(type.name)) << "the fixture lacks " << type.name;
    const json::Object& vector = golden.at(type.name).as_object();
    const auto blocks = from_hex(json::view(vector.at("blocks").as_string()));
    const auto expected_bytes = from_hex(json::view(vector.at("f32").as_string()));
    std::vector<float> expected(expected_bytes.size() / sizeof(float));
    ASSERT_FALSE(expected.empty());
    std::memcpy(expected.data(), expected_bytes.data(), expected_bytes.size());
    expect_same_bits(type.dtype, blocks, expected);
  }
}

TEST(Dequantize, EqualsValuesOfRealModelsBitForBit) {
  const auto path = llorch::test::data_path("golden/dequant_vectors.json");
  if (!path) GTEST_SKIP() << "golden/dequant_vectors.json is absent";
  const json::Object golden = read_golden(*path);
  int num_types = 0;
  for (const tensor::DTypeInfo& type : tensor::all_dtypes()) {
    if (!golden.contains(type.name) || !can_dequantize(type.dtype)) continue;
    const json::Object& vector = golden.at(type.name).as_object();
    std::vector<float> expected;
    for (const json::Value& value : vector.at("f32").as_array()) {
      expected.push_back(static_cast<float>(value.to_number<double>()));
    }
    ASSERT_FALSE(expected.empty());
    expect_same_bits(type.dtype, from_base64(json::view(vector.at("raw_b64").as_string())),
                     expected);
    ++num_types;
  }
  EXPECT_EQ(num_types, 18);
}

TEST(Dequantize, NamesTheTypeItCannotDecode) {
  std::vector<std::byte> block(292);
  std::vector<float> out(256);
  const Status status = dequantize(DType::Q8_K, block, out);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::Unsupported);
  EXPECT_EQ(status.error().message, "not supported: Q8_K");
  EXPECT_FALSE(can_dequantize(DType::Q8_K));
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
