#include "formats/weight_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <numeric>

#include "support/test_paths.h"

namespace llorch::formats {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr, ::testing::IsEmpty;

WeightTensor named(std::string name) {
  WeightTensor tensor;
  tensor.name = std::move(name);
  return tensor;
}

TEST(WeightFile, KeepsTensorsInOrderAndFindsThemByName) {
  WeightFile file(FileFormat::Gguf, "m.gguf");
  ASSERT_TRUE(file.add_tensor(named("b")).ok());
  ASSERT_TRUE(file.add_tensor(named("a")).ok());
  const Status again = file.add_tensor(named("b"));
  ASSERT_FALSE(again.ok());
  EXPECT_THAT(again.error().message, HasSubstr("\"b\" appears twice"));
  ASSERT_EQ(file.tensors().size(), 2U);
  EXPECT_EQ(file.tensors()[0].name, "b");
  EXPECT_EQ(file.find("a"), &file.tensors()[1]);
  EXPECT_EQ(file.find("c"), nullptr);
}

TEST(WeightFile, CountsTheBytesOfAllItsFiles) {
  const test::TempDir dir;
  std::ofstream(dir / "1") << "12345";
  std::ofstream(dir / "2") << "678";
  WeightFile file(FileFormat::SafeTensors, dir.path());
  file.keep(base::MappedFile::open(dir / "1").take());
  file.keep(base::MappedFile::open(dir / "2").take());
  EXPECT_EQ(file.file_bytes(), 8);
  EXPECT_EQ(file.files().size(), 2U);
}

class GatherContiguous : public ::testing::Test {
 protected:
  GatherContiguous() { std::iota(elements_.begin(), elements_.end(), std::int16_t{0}); }

  std::vector<int> gather(tensor::Shape shape, std::vector<std::int64_t> strides) const {
    const std::vector<std::byte> bytes = gather_contiguous(
        {"t", tensor::DType::I16, shape, std::as_bytes(std::span(elements_)), std::move(strides)});
    std::vector<int> out;
    for (std::size_t i = 0; i + 1 < bytes.size(); i += 2) {
      out.push_back(std::to_integer<int>(bytes[i]) | std::to_integer<int>(bytes[i + 1]) << 8);
    }
    return out;
  }

  std::vector<std::int16_t> elements_ = std::vector<std::int16_t>(6);
};

TEST_F(GatherContiguous, CopiesContiguousBytes) {
  EXPECT_THAT(gather({2, 3}, {}), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST_F(GatherContiguous, FollowsStrides) {
  EXPECT_THAT(gather({3, 2}, {1, 3}), ElementsAre(0, 3, 1, 4, 2, 5)) << "transposed";
  EXPECT_THAT(gather({2, 2}, {3, 2}), ElementsAre(0, 2, 3, 5)) << "every second column";
  EXPECT_THAT(gather({2, 2}, {0, 1}), ElementsAre(0, 1, 0, 1)) << "a repeated row";
  EXPECT_THAT(gather({2, 0}, {1, 1}), IsEmpty());
}

}  // namespace
}  // namespace llorch::formats
