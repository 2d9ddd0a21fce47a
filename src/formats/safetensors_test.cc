// The SafeTensors reader, its writer and the shard index they share with PyTorch.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "formats/safetensors_reader.h"
#include "formats/test_safetensors.h"
#include "support/test_paths.h"

namespace llorch::formats {
namespace {

using tensor::DType;
using ::testing::HasSubstr;

std::string image_of(const std::string& header, std::size_t data_bytes) {
  const std::uint64_t length = header.size();
  std::string image(sizeof length, '\0');
  std::memcpy(image.data(), &length, sizeof length);
  image += header;
  for (std::size_t i = 0; i < data_bytes; ++i) image += static_cast<char>(i);
  return image;
}

std::string message_of(const std::string& header, std::size_t data_bytes) {
  const std::string image = image_of(header, data_bytes);
  const Result<WeightFile> weights = parse_safetensors(std::as_bytes(std::span(image)));
  return weights.ok() ? "accepted" : weights.error().message;
}

TEST(SafeTensorsReader, ViewsTensorsInDataOrder) {
  const std::string image = image_of(
      R"({"late":{"dtype":"U8","shape":[2,2],"data_offsets":[8,12]},"none":{"dtype":"F32","shape":[0],"data_offsets":[8,8]},)"
      R"("scalar":{"dtype":"F64","shape":[],"data_offsets":[0,8]},"__metadata__":{"format":"pt"}}  )",
      12);
  const Result<WeightFile> weights = parse_safetensors(std::as_bytes(std::span(image)));
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  ASSERT_EQ(weights->tensors().size(), 3U);
  EXPECT_EQ(weights->tensors()[0].name, "scalar");
  EXPECT_EQ(weights->tensors()[0].shape.rank(), 0);
  EXPECT_EQ(weights->find("none")->bytes.size(), 0U);
  const WeightTensor* late = weights->find("late");
  ASSERT_NE(late, nullptr);
  EXPECT_EQ(late->shape, (tensor::Shape{2, 2}));
  EXPECT_EQ(late->bytes[0], std::byte{8});
  EXPECT_EQ(weights->metadata().text("safetensors.format").value(), "pt");
}

TEST(SafeTensorsReader, KnowsEveryDType) {
  for (const auto& [name, dtype, bytes] : {std::tuple{"F64", DType::F64, 8},
                                           {"F32", DType::F32, 4},
                                           {"F16", DType::F16, 2},
                                           {"BF16", DType::BF16, 2},
                                           {"F8_E4M3", DType::F8E4M3, 1},
                                           {"F8_E5M2", DType::F8E5M2, 1},
                                           {"I8", DType::I8, 1},
                                           {"I16", DType::I16, 2},
                                           {"I32", DType::I32, 4},
                                           {"I64", DType::I64, 8},
                                           {"U8", DType::U8, 1},
                                           {"U16", DType::U16, 2},
                                           {"U32", DType::U32, 4},
                                           {"U64", DType::U64, 8},
                                           {"BOOL", DType::Bool, 1}}) {
    const std::string image =
        image_of(fmt::format(R"({{"t":{{"dtype":"{}","shape":[3],"data_offsets":[0,{}]}}}})", name,
                             3 * bytes),
                 3 * static_cast<std::size_t>(bytes));
    const Result<WeightFile> weights = parse_safetensors(std::as_bytes(std::span(image)));
    ASSERT_TRUE(weights.ok()) << weights.error().message;
    EXPECT_EQ(weights->tensors()[0].dtype, dtype) << name;
  }
}

TEST(SafeTensorsReader, NamesTheTensorAndTheMistake) {
  EXPECT_THAT(message_of(R"({"my.w":{"dtype":"Q4_0","shape":[32],"data_offsets":[0,18]}})", 18),
              AllOf(HasSubstr("\"my.w\""), HasSubstr("unknown dtype \"Q4_0\"")));
  EXPECT_THAT(message_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,3]}})", 3),
              HasSubstr("needs 2 bytes"));
  EXPECT_THAT(
      message_of(
          R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
          3),
      HasSubstr("\"b\" begins at 1, expected 2"));
  EXPECT_THAT(
      message_of(
          R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})",
          5),
      HasSubstr("\"b\" begins at 3, expected 2"));
  EXPECT_THAT(message_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 3),
              HasSubstr("the file has 3"));
  EXPECT_THAT(
      message_of(
          R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"a":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
          4),
      HasSubstr("\"a\" occurs twice"));
  EXPECT_THAT(
      message_of(R"({"a":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}})", 0),
      HasSubstr("more than 2^63"));
  EXPECT_THAT(message_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}})", 1),
              HasSubstr("exactly"));
  EXPECT_THAT(message_of(" {}", 0), HasSubstr("begin with '{'"));
  EXPECT_THAT(message_of(R"({"__metadata__":{"n":1}})", 0), HasSubstr("expected a string"));
}

TEST(SafeTensorsReader, RefusesHeadersBeyondTheFormatsLimit) {
  std::string image = image_of("{}", 0);
  const std::uint64_t length = 100'000'001;
  std::memcpy(image.data(), &length, sizeof length);
  EXPECT_THAT(parse_safetensors(std::as_bytes(std::span(image))).error().message,
              HasSubstr("the format allows"));
}

TEST(SafeTensorsReader, JudgesTheMalformedFilesAsTheirManifestDoes) {
  const auto folder = test::data_path("fuzz");
  if (!folder) GTEST_SKIP() << "no real data: fuzz";
  const json::Value manifest =
      json::parse(base::read_text_file(*folder / "manifest.json", 1 << 20).value()).take();
  int judged = 0;
  for (const json::Value& row : manifest.get_array()) {
    const std::string file(json::view(row.at("file").get_string()));
    if (!file.starts_with("safetensors/")) continue;
    const std::string_view expect = json::view(row.at("expect").get_string());
    const Result<WeightFile> weights = read_safetensors(*folder / file);
    ++judged;
    if (expect == "accept") {
      EXPECT_TRUE(weights.ok()) << file << ": " << weights.error().message;
    } else if (expect == "reject") {
      EXPECT_FALSE(weights.ok()) << file;
    }
  }
  EXPECT_EQ(judged, 36);
}

WeightTensor make_tensor(std::string name, DType dtype, tensor::Shape shape,
                         std::span<const std::byte> bytes, std::vector<std::int64_t> strides = {}) {
  return {std::move(name), dtype, shape, bytes, std::move(strides)};
}

TEST(SafeTensorsReader, ReadsEveryShapeAndStride) {
  std::vector<std::byte> data(64);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i);
  const std::span<const std::byte> all = data;
  const std::vector<WeightTensor> tensors = {
      make_tensor("bytes \"q\" é", DType::U8, {3}, all.first(3)),
      make_tensor("half", DType::F16, {2, 2}, all.first(8)),
      make_tensor("transposed", DType::U16, {2, 3}, all.first(12), {1, 2}),
      make_tensor("scalar", DType::F64, {}, all.first(8)),
      make_tensor("empty", DType::BF16, {0, 5}, {}),
  };
  const test::TempDir dir;
  write_safetensors(dir / "t.safetensors", tensors, {{"format", "pt"}, {"note", "a\nb"}});
  const Result<WeightFile> weights = read_safetensors(dir / "t.safetensors");
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  ASSERT_EQ(weights->tensors().size(), tensors.size());
  for (const WeightTensor& expected : tensors) {
    const WeightTensor* found = weights->find(expected.name);
    ASSERT_NE(found, nullptr) << expected.name;
    EXPECT_EQ(found->dtype, expected.dtype);
    EXPECT_EQ(found->shape, expected.shape);
    EXPECT_EQ(gather_contiguous(*found), gather_contiguous(expected)) << expected.name;
    // Widest first behind a padded header: every tensor is aligned to its element.
    const auto width = static_cast<std::uintptr_t>(tensor::info(found->dtype).block_bytes);
    if (found->bytes.empty()) continue;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(found->bytes.data()) % width, 0U);
  }
  EXPECT_EQ(weights->metadata().text("safetensors.note").value(), "a\nb");
}

// A folder with two shards, "a" in the first and "b" in the second, and an index to be filled in.
class ShardedSafeTensors : public ::testing::Test {
 protected:
  ShardedSafeTensors() {
    static constexpr std::byte kByte{7};
    for (const char* name : {"a", "b"}) {
      const std::vector<WeightTensor> tensors = {
          make_tensor(name, DType::U8, {1}, std::span(&kByte, 1))};
      write_safetensors(dir_ / (std::string(name) + ".safetensors"), tensors, {{"format", "pt"}});
    }
  }
  Result<WeightFile> read(const std::string& weight_map) {
    EXPECT_TRUE(
        base::write_file_atomically(
            dir_ / "index.json", R"({"metadata":{"total_size":2},"weight_map":)" + weight_map + "}")
            .ok());
    return read_safetensors_index(dir_ / "index.json");
  }
  std::string message_of(const std::string& weight_map) {
    const Result<WeightFile> weights = read(weight_map);
    return weights.ok() ? "accepted" : weights.error().message;
  }
  test::TempDir dir_;
};

TEST_F(ShardedSafeTensors, JoinsTheShards) {
  const Result<WeightFile> weights = read(R"({"b":"b.safetensors","a":"a.safetensors"})");
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  EXPECT_EQ(weights->tensors().size(), 2U);
  EXPECT_EQ(weights->files().size(), 2U);
  EXPECT_NE(weights->find("b"), nullptr);
  EXPECT_EQ(weights->metadata().text("safetensors.format").value(), "pt");
}

TEST_F(ShardedSafeTensors, NamesEveryDisagreement) {
  EXPECT_THAT(message_of(R"({"a":"a.safetensors","c":"a.safetensors"})"),
              HasSubstr("\"c\" is not in shard"));
  EXPECT_THAT(message_of(R"({"x":"b.safetensors"})"), HasSubstr("holds tensor \"b\""));
  EXPECT_THAT(message_of(R"({"a":"gone.safetensors"})"), HasSubstr("gone.safetensors"));
  EXPECT_THAT(message_of(R"({"a":"../a.safetensors"})"), HasSubstr("not a plain file name"));
  EXPECT_THAT(message_of(R"({"a":"/etc/passwd"})"), HasSubstr("not a plain file name"));
  EXPECT_THAT(message_of(R"({"a":".."})"), HasSubstr("not a plain file name"));
  EXPECT_THAT(message_of(R"({"a":"a.safetensors\u0000x"})"), HasSubstr("not a plain file name"));
  EXPECT_THAT(message_of(R"({"a":7})"), HasSubstr("found an integer"));
  EXPECT_THAT(message_of("{}"), HasSubstr("empty"));
  EXPECT_THAT(message_of("[]"), HasSubstr("weight_map"));
}

}  // namespace
}  // namespace llorch::formats
