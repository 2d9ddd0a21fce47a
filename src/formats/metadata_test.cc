#include "formats/metadata.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

namespace llorch::formats {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr, ::testing::IsEmpty;

template <class T>
ArrayView array_in(Metadata& metadata, ElementType type, const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {type, values.size(), metadata.adopt({bytes.begin(), bytes.end()})};
}

ArrayView texts_in(Metadata& metadata, const std::vector<std::string>& texts) {
  return {ElementType::String, texts.size(), metadata.adopt(pack_texts(texts))};
}

TEST(ElementType, NamesAndSizesFollowTheEnum) {
  EXPECT_EQ(name(ElementType::U8), "u8");
  EXPECT_EQ(name(ElementType::String), "string");
  EXPECT_EQ(name(ElementType::F64), "f64");
  EXPECT_EQ(element_bytes(ElementType::I16), 2U);
  EXPECT_EQ(element_bytes(ElementType::Bool), 1U);
  EXPECT_EQ(element_bytes(ElementType::Array), 0U);
  EXPECT_EQ(element_bytes(ElementType::U64), 8U);
}

TEST(Metadata, RefusesAKeyTwiceAndKeepsTheFirst) {
  Metadata metadata;
  ASSERT_TRUE(metadata.add("a", std::uint64_t{1}).ok());
  const Status again = metadata.add("a", std::uint64_t{2});
  ASSERT_FALSE(again.ok());
  EXPECT_THAT(again.error().message, HasSubstr("\"a\" appears twice"));
  EXPECT_EQ(metadata.integer("a").take(), 1);
  EXPECT_EQ(metadata.size(), 1U);
}

TEST(Metadata, AbsentKeyIsNamedWithWhatWasExpected) {
  const Metadata metadata;
  const auto absent = metadata.integer("llama.block_count");
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code, ErrorCode::NotFound);
  EXPECT_THAT(absent.error().message, HasSubstr("llama.block_count"));
  EXPECT_THAT(absent.error().message, HasSubstr("expected an integer"));
  EXPECT_FALSE(metadata.texts("x").ok());
  EXPECT_FALSE(metadata.flag("x").ok());
}

TEST(Metadata, WrongTypeNamesKeyExpectedAndFound) {
  Metadata metadata;
  ASSERT_TRUE(metadata.add("n", std::string("eight")).ok());
  const auto wrong = metadata.integer("n");
  ASSERT_FALSE(wrong.ok());
  EXPECT_EQ(wrong.error().code, ErrorCode::Corrupt);
  EXPECT_EQ(wrong.error().message, "key \"n\": expected an integer, found the string \"eight\"");
  EXPECT_FALSE(metadata.number("n").ok());
  EXPECT_FALSE(metadata.flag("n").ok());
  EXPECT_FALSE(metadata.integers("n").ok());
}

TEST(Metadata, IntegersMayBeSignedOrUnsignedWithinInt64) {
  Metadata metadata;
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  ASSERT_TRUE(metadata.add("signed", std::int64_t{-5}).ok());
  ASSERT_TRUE(metadata.add("max", static_cast<std::uint64_t>(kMax)).ok());
  ASSERT_TRUE(metadata.add("over", static_cast<std::uint64_t>(kMax) + 1).ok());
  ASSERT_TRUE(metadata.add("fraction", 1.5).ok());
  ASSERT_TRUE(metadata.add("flag", true).ok());
  EXPECT_EQ(metadata.integer("signed").take(), -5);
  EXPECT_EQ(metadata.integer("max").take(), kMax);
  EXPECT_THAT(metadata.integer("over").error().message, HasSubstr("9223372036854775808"));
  EXPECT_FALSE(metadata.integer("fraction").ok());
  EXPECT_FALSE(metadata.integer("flag").ok());
}

TEST(Metadata, NumbersMayBeStoredAsIntegers) {
  Metadata metadata;
  ASSERT_TRUE(metadata.add("f", 1e-5).ok());
  ASSERT_TRUE(metadata.add("i", std::int64_t{-3}).ok());
  ASSERT_TRUE(metadata.add("u", std::uint64_t{7}).ok());
  EXPECT_EQ(metadata.number("f").take(), 1e-5);
  EXPECT_EQ(metadata.number("i").take(), -3.0);
  EXPECT_EQ(metadata.number("u").take(), 7.0);
}

TEST(Metadata, FallbackIsForAbsentKeysOnly) {
  Metadata metadata;
  ASSERT_TRUE(metadata.add("s", std::string("x")).ok());
  ASSERT_TRUE(metadata.add("b", true).ok());
  EXPECT_EQ(metadata.integer_or("none", 4).take(), 4);
  EXPECT_EQ(metadata.number_or("none", 0.5).take(), 0.5);
  EXPECT_EQ(metadata.flag_or("none", true).take(), true);
  EXPECT_EQ(metadata.flag_or("b", false).take(), true);
  EXPECT_FALSE(metadata.integer_or("s", 4).ok());
  EXPECT_FALSE(metadata.number_or("s", 4).ok());
  EXPECT_FALSE(metadata.flag_or("s", true).ok());
}

TEST(Metadata, IntegerArraysOfEveryWidth) {
  Metadata metadata;
  const auto expect = [&metadata](const std::string& key, ArrayView array, std::int64_t a,
                                  std::int64_t b) {
    ASSERT_TRUE(metadata.add(key, array).ok());
    EXPECT_THAT(metadata.integers(key).take(), ElementsAre(a, b)) << key;
  };
  expect("u8", array_in<std::uint8_t>(metadata, ElementType::U8, {1, 255}), 1, 255);
  expect("i8", array_in<std::int8_t>(metadata, ElementType::I8, {-1, 127}), -1, 127);
  expect("u16", array_in<std::uint16_t>(metadata, ElementType::U16, {1, 65535}), 1, 65535);
  expect("i16", array_in<std::int16_t>(metadata, ElementType::I16, {-2, 3}), -2, 3);
  expect("u32", array_in<std::uint32_t>(metadata, ElementType::U32, {1, 4294967295U}), 1,
         4294967295);
  expect("i32", array_in<std::int32_t>(metadata, ElementType::I32, {-7, 8}), -7, 8);
  expect("u64", array_in<std::uint64_t>(metadata, ElementType::U64, {1, 2}), 1, 2);
  expect("i64", array_in<std::int64_t>(metadata, ElementType::I64, {-9, 9}), -9, 9);
  expect("bool", array_in<std::uint8_t>(metadata, ElementType::Bool, {1, 0}), 1, 0);
  ASSERT_TRUE(
      metadata.add("over", array_in<std::uint64_t>(metadata, ElementType::U64, {1, 1ULL << 63}))
          .ok());
  EXPECT_THAT(metadata.integers("over").error().message, HasSubstr("below 2^63"));
  ASSERT_TRUE(metadata.add("f", array_in<float>(metadata, ElementType::F32, {1, 2})).ok());
  EXPECT_THAT(metadata.integers("f").error().message, HasSubstr("an array of 2 f32"));
}

TEST(Metadata, NumberArraysOfFloatsAndIntegers) {
  Metadata metadata;
  ASSERT_TRUE(metadata.add("f32", array_in<float>(metadata, ElementType::F32, {0.5F, -2})).ok());
  ASSERT_TRUE(metadata.add("f64", array_in<double>(metadata, ElementType::F64, {0.1})).ok());
  ASSERT_TRUE(metadata.add("i32", array_in<std::int32_t>(metadata, ElementType::I32, {-4})).ok());
  ASSERT_TRUE(
      metadata.add("u64", array_in<std::uint64_t>(metadata, ElementType::U64, {1ULL << 63})).ok());
  ASSERT_TRUE(metadata.add("bool", array_in<std::uint8_t>(metadata, ElementType::Bool, {1})).ok());
  EXPECT_THAT(metadata.numbers("f32").take(), ElementsAre(0.5, -2.0));
  EXPECT_THAT(metadata.numbers("f64").take(), ElementsAre(0.1));
  EXPECT_THAT(metadata.numbers("i32").take(), ElementsAre(-4.0));
  EXPECT_THAT(metadata.numbers("u64").take(), ElementsAre(9223372036854775808.0));
  EXPECT_FALSE(metadata.numbers("bool").ok());
}

TEST(Metadata, TextsAreViewsOfTheStoredBytesAndSurviveAMove) {
  Metadata metadata;
  const ArrayView array = texts_in(metadata, {"hello", "", std::string("a\0b", 3)});
  ASSERT_TRUE(metadata.add("tokens", array).ok());
  const Metadata moved = std::move(metadata);
  const auto texts = moved.texts("tokens").take();
  EXPECT_THAT(texts, ElementsAre("hello", "", std::string_view("a\0b", 3)));
  EXPECT_EQ(static_cast<const void*>(texts[0].data()), array.bytes.data() + sizeof(std::uint64_t));
  EXPECT_FALSE(moved.integers("tokens").ok());
  EXPECT_FALSE(moved.numbers("tokens").ok());
}

TEST(Metadata, AnEmptyArrayIsAnArrayOfAnything) {
  Metadata metadata;
  ASSERT_TRUE(metadata.add("empty", ArrayView{ElementType::F32, 0, {}}).ok());
  EXPECT_THAT(metadata.texts("empty").take(), IsEmpty());
  EXPECT_THAT(metadata.integers("empty").take(), IsEmpty());
  EXPECT_THAT(metadata.numbers("empty").take(), IsEmpty());
}

}  // namespace
}  // namespace llorch::formats
