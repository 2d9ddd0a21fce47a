// The reader against images that lie: every field in turn. Well-formed files are in
// gguf_writer_test, real ones in gguf_data_test.
#include "formats/gguf_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <memory>

#include "formats/gguf_test_image.h"

namespace llorch::formats {
namespace {

using ::testing::AllOf, ::testing::ElementsAre, ::testing::HasSubstr;

constexpr std::uint64_t kHuge = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint32_t kF32 = 0;
constexpr std::uint32_t kQ4K = 12;

// Expects an error of this code whose message holds `part`.
void expect_error(const TestImage& image, ErrorCode code, std::string_view part) {
  const auto file = parse_gguf(image.bytes());
  ASSERT_FALSE(file.ok()) << "accepted, expected: " << part;
  EXPECT_EQ(file.error().code, code) << file.error().message;
  EXPECT_THAT(file.error().message, HasSubstr(part));
}

// Keys of several types, an array of strings, two tensors.
TestImage small_image() {
  TestImage image(2, 5);
  image.text("general.architecture").u32(8).text("llama");
  image.text("n").u32(4).u32(7);
  image.text("flag").u32(7).u8(1);
  image.text("scores").u32(9).u32(6).u64(2).u32(0x3F800000).u32(0xBF800000);
  image.text("tokens").u32(9).u32(8).u64(2).text("a").text("bc");
  image.tensor("one", {4, 2}, kF32, 0);
  image.tensor("two", {8}, kF32, 32);
  image.data(64);
  return image;
}

TEST(ParseGguf, ANameStandsForThePathOfAnImage) {
  const TestImage image = small_image();
  const auto file = parse_gguf(image.bytes(), "builtin");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->path(), "builtin");
  EXPECT_EQ(file->file_bytes(), static_cast<std::int64_t>(image.bytes().size()));
  // Tensors are views of the image itself.
  const std::span<const std::byte> one = file->tensors()[0].bytes;
  EXPECT_GE(one.data(), image.bytes().data());
  EXPECT_LE(one.data() + one.size(), image.bytes().data() + image.bytes().size());
  const auto cut = parse_gguf(std::span(image.bytes()).first(20), "builtin");
  ASSERT_FALSE(cut.ok());
  EXPECT_THAT(cut.error().message, ::testing::StartsWith("builtin: "));
}

TEST(ParseGguf, ReadsKeysAndTensors) {
  const TestImage image = small_image();
  const auto file = parse_gguf(image.bytes());
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->format(), FileFormat::Gguf);
  EXPECT_EQ(file->metadata().text("general.architecture").take(), "llama");
  EXPECT_EQ(file->metadata().integer("n").take(), 7);
  EXPECT_TRUE(file->metadata().flag("flag").take());
  EXPECT_THAT(file->metadata().numbers("scores").take(), ElementsAre(1.0, -1.0));
  EXPECT_THAT(file->metadata().texts("tokens").take(), ElementsAre("a", "bc"));
  ASSERT_EQ(file->tensors().size(), 2U);
  const WeightTensor& one = file->tensors()[0];
  EXPECT_EQ(one.name, "one");
  EXPECT_EQ(one.shape, (tensor::Shape{2, 4}))
      << "the file says fastest first, we say slowest first";
  EXPECT_EQ(one.bytes.size(), 32U);
  EXPECT_EQ(one.bytes.data() + 32, file->tensors()[1].bytes.data());
  EXPECT_EQ(one.bytes[0], std::byte{0xAB});
}

TEST(ParseGguf, AcceptsVersion2AndAHeaderAlone) {
  EXPECT_TRUE(parse_gguf(TestImage(0, 0).bytes()).ok());
  EXPECT_TRUE(parse_gguf(TestImage(0, 0, 2).bytes()).ok());
}

// The original project confused 0x47475546 with 0x46554747: the file starts with the letters in
// reading order.
TEST(ParseGguf, MagicIsTheLettersInReadingOrder) {
  TestImage image(0, 0);
  std::uint32_t as_number = 0;
  std::memcpy(&as_number, image.bytes().data(), sizeof(as_number));
  EXPECT_EQ(as_number, 0x46554747U);
  EXPECT_TRUE(parse_gguf(image.bytes()).ok());
  std::vector<std::byte> swapped = image.bytes();
  std::reverse(swapped.begin(), swapped.begin() + 4);
  EXPECT_THAT(parse_gguf(swapped).error().message, HasSubstr("big-endian"));
}

TEST(ParseGguf, SaysWhyItRefusesOtherVersionsAndFormats) {
  expect_error(TestImage(0, 0, 1), ErrorCode::Unsupported, "version 1");
  expect_error(TestImage(0, 0, 0), ErrorCode::Unsupported, "version 0");
  expect_error(TestImage(0, 0, 4), ErrorCode::Unsupported, "version 4");
  expect_error(TestImage(0, 0, 0x03000000), ErrorCode::Unsupported, "big-endian");
  const std::string_view zip = "PK\x03\x04 and so on";
  EXPECT_THAT(parse_gguf(std::as_bytes(std::span(zip))).error().message,
              AllOf(HasSubstr("not a GGUF file"), HasSubstr("PK")));
  const std::string_view ggml = "lmgg....";
  EXPECT_THAT(parse_gguf(std::as_bytes(std::span(ggml))).error().message, HasSubstr("before GGUF"));
}

TEST(ParseGguf, EveryTruncationIsAnError) {
  const std::vector<std::byte> whole = small_image().bytes();
  ASSERT_TRUE(parse_gguf(whole).ok());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    // An allocation of exactly this size, so that a sanitizer sees a read one byte past the end.
    const auto part = std::make_unique<std::byte[]>(size);
    std::copy_n(whole.begin(), size, part.get());
    const auto file = parse_gguf({part.get(), size});
    ASSERT_FALSE(file.ok()) << "accepted with " << size << " of " << whole.size() << " bytes";
    EXPECT_FALSE(file.error().message.empty());
  }
}

TEST(ParseGguf, EveryFlippedByteIsReadOrRefused) {
  const std::vector<std::byte> whole = small_image().bytes();
  int refused = 0;
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const std::byte flip : {std::byte{0xFF}, std::byte{0x01}, std::byte{0x80}}) {
      std::vector<std::byte> flipped = whole;
      flipped[at] ^= flip;
      const auto file = parse_gguf(flipped);
      if (!file.ok()) {
        ++refused;
        continue;
      }
      for (const WeightTensor& tensor : file->tensors()) {
        ASSERT_GE(tensor.bytes.data(), flipped.data());
        ASSERT_LE(tensor.bytes.data() + tensor.bytes.size(), flipped.data() + flipped.size());
      }
      for (const auto& [key, value] : file->metadata().entries()) {
        if (std::holds_alternative<ArrayView>(value)) (void)file->metadata().texts(key).ok();
      }
    }
  }
  EXPECT_GT(refused, 100);
}

TEST(ParseGguf, AbsurdCountsAreRefusedBeforeAllocating) {
  for (const std::uint64_t count : {std::uint64_t{1} << 32, std::uint64_t{1} << 63, kHuge}) {
    expect_error(TestImage(count, 0), ErrorCode::Corrupt, "tensors announced");
    expect_error(TestImage(0, count), ErrorCode::Corrupt, "keys announced");
    expect_error(TestImage(0, 1).text("k").u32(8).u64(count).raw("x"), ErrorCode::Corrupt,
                 "key \"k\"");
    expect_error(TestImage(0, 1).text("k").u32(9).u32(6).u64(count), ErrorCode::Corrupt,
                 "f32 announced");
    expect_error(TestImage(0, 1).text("k").u32(9).u32(8).u64(count), ErrorCode::Corrupt,
                 "string announced");
    expect_error(TestImage(0, 1).text("k").u32(9).u32(8).u64(1).u64(count), ErrorCode::Corrupt,
                 "ends after");
    expect_error(TestImage(0, 1).u64(count).raw("0123456789"), ErrorCode::Corrupt, "a key");
    expect_error(TestImage(1, 0).u64(count).data(64), ErrorCode::Corrupt, "a tensor name");
  }
  TestImage many(70'000, 0);
  many.data(70'000 * 64);
  expect_error(many, ErrorCode::Unsupported, "more than the 65536 supported");
}

TEST(ParseGguf, RefusesUnknownTypesAndNestedArrays) {
  expect_error(TestImage(0, 1).text("k").u32(13).u64(0), ErrorCode::Corrupt, "value type 13");
  expect_error(TestImage(0, 1).text("k").u32(9).u32(0xFFFFFFFF).u64(0), ErrorCode::Corrupt,
               "value type 4294967295");
  TestImage nested(0, 1);
  nested.text("k").u32(9);
  for (int depth = 0; depth < 20'000; ++depth) nested.u32(9).u64(1);
  expect_error(nested, ErrorCode::Unsupported, "arrays of arrays");
}

TEST(ParseGguf, RefusesFlagsThatAreNeitherTrueNorFalse) {
  expect_error(TestImage(0, 1).text("key").u32(7).u8(2), ErrorCode::Corrupt, "a bool holds 2");
  expect_error(TestImage(0, 1).text("k").u32(9).u32(7).u64(2).u8(1).u8(255), ErrorCode::Corrupt,
               "a bool holds 255");
}

TEST(ParseGguf, KeysAreUniqueUtf8AndNotEmpty) {
  const auto with_key = [](std::string_view key) {
    return TestImage(0, 1).text(key).u32(4).u32(1);
  };
  EXPECT_TRUE(parse_gguf(with_key("schlüssel.鍵.🔑").bytes()).ok());
  EXPECT_TRUE(parse_gguf(with_key(std::string(65535, 'k')).bytes()).ok());
  expect_error(with_key(""), ErrorCode::Corrupt, "empty key");
  expect_error(with_key(std::string(65536, 'k')), ErrorCode::Corrupt, "65536 bytes");
  for (const std::string_view bad : {"\xff", "a\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                     "\xe2\x82", "\xe0\x80\x80", "\xf0\x80\x80\x80", "\x80"}) {
    expect_error(with_key(bad), ErrorCode::Corrupt, "not valid UTF-8");
  }
  expect_error(TestImage(0, 2).text("k").u32(4).u32(1).text("k").u32(4).u32(2), ErrorCode::Corrupt,
               "\"k\" appears twice");
}

// Token texts may be raw bytes of a byte-level vocabulary: values are handed on as they are.
TEST(ParseGguf, StringValuesMayBeAnyBytes) {
  const auto image =
      TestImage(0, 2).text("a").u32(8).text("\xff\xfe").text("b").u32(9).u32(8).u64(1).text("\x80");
  const auto file = parse_gguf(image.bytes());
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->metadata().text("a").take(), "\xff\xfe");
  EXPECT_THAT(file->metadata().texts("b").take(), ElementsAre("\x80"));
}

TEST(ParseGguf, TensorNamesAreUniqueAndUpTo64Bytes) {
  const auto with_name = [](std::string_view name) {
    return TestImage(1, 0).tensor(name, {8}, kF32, 0).data(32);
  };
  EXPECT_TRUE(parse_gguf(with_name(std::string(64, 'n')).bytes()).ok());
  expect_error(with_name(std::string(65, 'n')), ErrorCode::Corrupt, "65 bytes");
  expect_error(with_name(""), ErrorCode::Corrupt, "empty tensor name");
  expect_error(with_name("\xff"), ErrorCode::Corrupt, "not valid UTF-8");
  expect_error(TestImage(2, 0).tensor("t", {8}, kF32, 0).tensor("t", {8}, kF32, 32).data(64),
               ErrorCode::Corrupt, "\"t\" appears twice");
}

TEST(ParseGguf, TensorTypesUnknownOrRemovedAreNamed) {
  for (const std::uint32_t type : {4U, 5U, 31U, 36U, 99U, 0x80000000U, 0xFFFFFFFFU}) {
    expect_error(TestImage(1, 0).tensor("odd.weight", {256}, type, 0).data(4096),
                 ErrorCode::Unsupported,
                 "tensor \"odd.weight\": tensor type " + std::to_string(type));
  }
}

TEST(ParseGguf, ShapesAreCheckedBeforeTheirProductIsUsed) {
  const auto with_dims = [](const std::vector<std::uint64_t>& dims, std::uint32_t type) {
    return TestImage(1, 0).tensor("t", dims, type, 0).data(4096);
  };
  EXPECT_TRUE(parse_gguf(with_dims({8, 1, 1, 1}, kF32).bytes()).ok());
  EXPECT_EQ(parse_gguf(with_dims({8, 1, 1, 1}, kF32).bytes())->tensors()[0].shape.rank(), 4);
  EXPECT_TRUE(parse_gguf(with_dims({8, 0}, kF32).bytes()).ok()) << "an empty tensor";
  expect_error(with_dims({}, kF32), ErrorCode::Corrupt, "0 dimensions");
  expect_error(with_dims({1, 1, 1, 1, 1}, kF32), ErrorCode::Corrupt, "5 dimensions");
  expect_error(with_dims({kHuge}, kF32), ErrorCode::Corrupt, "negative dimension");
  expect_error(with_dims({1ULL << 32, 1ULL << 32}, kF32), ErrorCode::Corrupt, "2^63");
  expect_error(with_dims({1ULL << 62}, kF32), ErrorCode::Corrupt, "2^63 bytes");
  expect_error(with_dims({0, 1ULL << 62, 1ULL << 62}, kF32), ErrorCode::Corrupt, "2^63");
  expect_error(with_dims({128, 2}, kQ4K), ErrorCode::Corrupt, "not whole blocks of Q4_K");
  expect_error(with_dims({1ULL << 40}, kF32), ErrorCode::Corrupt, "incomplete download");
}

TEST(ParseGguf, OffsetsAreAlignedInRangeAndApart) {
  const auto with_offset = [](std::uint64_t offset) {
    return TestImage(1, 0).tensor("t", {8}, kF32, offset).data(64);
  };
  EXPECT_TRUE(parse_gguf(with_offset(0).bytes()).ok());
  EXPECT_TRUE(parse_gguf(with_offset(32).bytes()).ok()) << "a gap is odd but harmless";
  expect_error(with_offset(4), ErrorCode::Corrupt, "not a multiple of the alignment 32");
  for (const std::uint64_t offset : {std::uint64_t{64}, std::uint64_t{1} << 63, kHuge - 31}) {
    expect_error(with_offset(offset), ErrorCode::Corrupt, "incomplete download");
  }
  const auto two = [](std::uint64_t first, std::uint64_t second) {
    return TestImage(2, 0).tensor("a", {16}, kF32, first).tensor("b", {8}, kF32, second).data(96);
  };
  EXPECT_TRUE(parse_gguf(two(0, 64).bytes()).ok());
  EXPECT_TRUE(parse_gguf(two(32, 0).bytes()).ok()) << "out of order, not overlapping";
  expect_error(two(0, 32), ErrorCode::Corrupt, "\"a\" and \"b\" share bytes");
  expect_error(two(32, 32), ErrorCode::Corrupt, "share bytes");
  expect_error(two(32, 64), ErrorCode::Corrupt, "share bytes");
}

TEST(ParseGguf, AlignmentIsAPowerOfTwo) {
  const auto aligned = [](std::uint32_t alignment, std::uint64_t offset) {
    return TestImage(1, 1)
        .text("general.alignment")
        .u32(4)
        .u32(alignment)
        .tensor("t", {8}, kF32, offset)
        .data(4096, std::has_single_bit(alignment) && alignment <= 4096 ? alignment : 1);
  };
  for (const std::uint32_t good : {1U, 2U, 64U, 4096U}) {
    const TestImage image = aligned(good, 0);
    const auto file = parse_gguf(image.bytes());
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(file->tensors()[0].bytes[0], std::byte{0xAB}) << good;
  }
  for (const std::uint32_t bad : {0U, 3U, 31U, 0xFFFFFFFFU}) {
    expect_error(aligned(bad, 0), ErrorCode::Corrupt, "not a power of two");
  }
  expect_error(aligned(1U << 31, 0), ErrorCode::Corrupt, "incomplete download");
  expect_error(aligned(64, 32), ErrorCode::Corrupt, "not a multiple of the alignment 64");
  expect_error(TestImage(0, 1).text("general.alignment").u32(8).text("32"), ErrorCode::Corrupt,
               "expected an integer");
}

}  // namespace
}  // namespace llorch::formats
