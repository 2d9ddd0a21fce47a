#include "formats/pytorch_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "formats/safetensors_reader.h"
#include "support/test_paths.h"

namespace llorch::formats {
namespace {

using ::testing::HasSubstr;

// The elements in row-major order, whatever their type among those the handmade files use.
std::vector<double> numbers_of(const WeightTensor& tensor) {
  const std::vector<std::byte> bytes = gather_contiguous(tensor);
  const auto width = static_cast<std::size_t>(tensor::info(tensor.dtype).block_bytes);
  std::vector<double> numbers;
  for (std::size_t at = 0; at < bytes.size(); at += width) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, bytes.data() + at, width);
    numbers.push_back(tensor.dtype == tensor::DType::F32 ? double{std::bit_cast<float>(bits)}
                                                         : static_cast<double>(bits));
  }
  return numbers;
}

void expect_tensor(const WeightFile& weights, std::string_view name, const json::Array& expected) {
  const WeightTensor* tensor = weights.find(name);
  ASSERT_NE(tensor, nullptr) << name;
  EXPECT_EQ(tensor::name(tensor->dtype), json::view(expected[0].get_string()));
  std::vector<std::int64_t> dims;
  for (const json::Value& dim : expected[1].get_array()) dims.push_back(dim.get_int64());
  EXPECT_EQ(std::vector<std::int64_t>(tensor->shape.dims().begin(), tensor->shape.dims().end()),
            dims)
      << name;
  std::vector<double> numbers;
  for (const json::Value& number : expected[2].get_array())
    numbers.push_back(number.to_number<double>());
  EXPECT_EQ(numbers_of(*tensor), numbers) << name;
}

TEST(PyTorchReader, JudgesTheHandmadeFilesAsTheirManifestDoes) {
  const std::filesystem::path folder = test::source_path("tests/golden/pytorch/handmade");
  const json::Value manifest =
      json::parse(base::read_text_file(folder / "manifest.json", 1 << 20).value()).take();
  int accepted = 0;
  int rejected = 0;
  for (const json::Value& row : manifest.get_array()) {
    const std::string file(json::view(row.at("file").get_string()));
    SCOPED_TRACE(file);
    const Result<WeightFile> weights = read_pytorch(folder / file);
    if (json::view(row.at("expect").get_string()) == "reject") {
      ++rejected;
      ASSERT_FALSE(weights.ok());
      EXPECT_THAT(weights.error().message,
                  HasSubstr(std::string(json::view(row.at("message").get_string()))));
      continue;
    }
    ++accepted;
    ASSERT_TRUE(weights.ok()) << weights.error().message;
    const json::Object& tensors = row.at("tensors").get_object();
    EXPECT_EQ(weights->tensors().size(), tensors.size());
    for (const auto& tensor : tensors) {
      expect_tensor(*weights, json::view(tensor.key()), tensor.value().get_array());
    }
  }
  EXPECT_GE(accepted, 10);
  EXPECT_GE(rejected, 40);
}

void expect_same(const WeightFile& found, const WeightFile& expected,
                 const std::string& prefix = "") {
  EXPECT_EQ(found.tensors().size(), expected.tensors().size());
  for (const WeightTensor& tensor : expected.tensors()) {
    const WeightTensor* other = found.find(prefix + tensor.name);
    ASSERT_NE(other, nullptr) << tensor.name;
    EXPECT_EQ(other->dtype, tensor.dtype) << tensor.name;
    EXPECT_EQ(other->shape, tensor.shape) << tensor.name;
    EXPECT_EQ(gather_contiguous(*other), gather_contiguous(tensor)) << tensor.name;
  }
}

TEST(PyTorchReader, ReadsWhatTorchSaves) {
  const std::filesystem::path folder = test::source_path("tests/golden/pytorch");
  const Result<WeightFile> expected = read_safetensors(folder / "torch_expected.safetensors");
  ASSERT_TRUE(expected.ok()) << expected.error().message;
  const Result<WeightFile> plain = read_pytorch(folder / "torch_save.pt");
  ASSERT_TRUE(plain.ok()) << plain.error().message;
  expect_same(*plain, *expected);
  const Result<WeightFile> nested = read_pytorch(folder / "torch_nested.pt");
  ASSERT_TRUE(nested.ok()) << nested.error().message;
  expect_same(*nested, *expected, "model.");

  EXPECT_TRUE(plain->find("plain")->strides.empty());
  EXPECT_FALSE(plain->find("transposed")->strides.empty());
  EXPECT_EQ(plain->find("tied_a")->bytes.data(), plain->find("tied_b")->bytes.data())
      << "tied weights stay one";
}

TEST(PyTorchReader, RefusesForeignObjectsAndTheOldFormat) {
  const std::filesystem::path folder = test::source_path("tests/golden/pytorch");
  EXPECT_THAT(read_pytorch(folder / "torch_refused.pt").error().message,
              HasSubstr("\"fractions.Fraction\": refused"));
  EXPECT_THAT(read_pytorch(folder / "torch_legacy.pt").error().message, HasSubstr("save it again"));
}

TEST(PyTorchReader, JoinsShards) {
  const std::filesystem::path folder = test::source_path("tests/golden/gpt2_tiny");
  const Result<WeightFile> sharded =
      read_pytorch_index(folder / "sharded_pytorch/pytorch_model.bin.index.json");
  ASSERT_TRUE(sharded.ok()) << sharded.error().message;
  EXPECT_EQ(sharded->files().size(), 2U);
  const Result<WeightFile> whole = read_safetensors(folder / "model.safetensors");
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  expect_same(*sharded, *whole);
}

TEST(PyTorchReader, KeepsTiedWeightsOfARealModelTied) {
  const Result<WeightFile> weights =
      read_pytorch(test::source_path("tests/golden/gpt2_tiny/pytorch/pytorch_model.bin"));
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  const WeightTensor* head = weights->find("lm_head.weight");
  const WeightTensor* embedding = weights->find("transformer.wte.weight");
  ASSERT_TRUE(head != nullptr && embedding != nullptr);
  EXPECT_EQ(head->bytes.data(), embedding->bytes.data());
}

TEST(PyTorchReader, TensorsAreViewsOfTheMappedFile) {
  const Result<WeightFile> weights =
      read_pytorch(test::source_path("tests/golden/pytorch/torch_save.pt"));
  ASSERT_TRUE(weights.ok()) << weights.error().message;
  const std::span<const std::byte> mapped = weights->files()[0]->bytes();
  for (const WeightTensor& tensor : weights->tensors()) {
    if (tensor.bytes.empty()) continue;
    EXPECT_GE(tensor.bytes.data(), mapped.data());
    EXPECT_LE(tensor.bytes.data() + tensor.bytes.size(), mapped.data() + mapped.size());
  }
}

}  // namespace
}  // namespace llorch::formats
