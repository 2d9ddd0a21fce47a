#include "tokenizer/normalize.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace llorch::tokenizer {
namespace {

using Kind = NormalizeStep::Kind;

std::string normalized(Kind kind, std::string_view text) {
  NormalizeStep step;
  step.kind = kind;
  EncodeBudget budget(text.size());
  return Normalizer({step}).apply(text, budget).take();
}

TEST(Normalizer, Composes) {
  EXPECT_EQ(normalized(Kind::Nfc, "e\xCC\x81"), "é");
  EXPECT_EQ(normalized(Kind::Nfc, "abc e\xCC\x81 a\xCC\xA7\xCC\x81z"), "abc é á\xCC\xA7z");
  EXPECT_EQ(normalized(Kind::Nfc, "\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8"), "각");
  EXPECT_EQ(normalized(Kind::Nfc, "\xE2\x84\xAB"), "Å");
  EXPECT_EQ(normalized(Kind::Nfc, "Ａ½"), "Ａ½");
  EXPECT_EQ(normalized(Kind::Nfkc, "Ａ½ﬁ"), "A1⁄2fi");
  EXPECT_EQ(normalized(Kind::Nfd, "é"), "e\xCC\x81");
  EXPECT_EQ(normalized(Kind::Nfc, ""), "");
}

TEST(Normalizer, LeavesMarksAloneThatCameAfterUnicode9) {
  const std::string late = "\xE0\xA3\x93\xE0\xA3\xA3";  // U+08D3 (220) U+08E3 (220), then one below
  EXPECT_EQ(normalized(Kind::Nfc, "\xCC\x81\xE0\xA3\x93\xCC\xA3"), "\xCC\x81\xE0\xA3\x93\xCC\xA3");
  EXPECT_EQ(normalized(Kind::Nfc, "\xCC\x81\xCC\xA3"),
            "\xCC\xA3\xCC\x81");  // the same with old marks is reordered
  EXPECT_EQ(normalized(Kind::Nfc, late), late);
}

TEST(Normalizer, DoesAsBertDoes) {
  EXPECT_EQ(normalized(Kind::CleanText, std::string("a\0b\tc\xEF\xBF\xBD\xC2\xAD"
                                                    "d\xC2\xA0",
                                                    13)),
            "ab cd ");
  EXPECT_EQ(normalized(Kind::SpaceChinese, "a你b"), "a 你 b");
  EXPECT_EQ(normalized(Kind::Lowercase, "ÀİΣ"), "ài\xCC\x87σ");
  EXPECT_EQ(normalized(Kind::StripAccents, "e\xCC\x81"), "e");
  EXPECT_EQ(normalized(Kind::CollapseSpaces, "  a   b "), "a b");
}

// A double array for one rule, "Ａ" (EF BC A1) → "a".
TEST(Charsmap, ReplacesTheLongestMatch) {
  std::vector<std::uint32_t> units(512);
  const auto offset = [](std::uint32_t value) { return value << 10; };
  // Unit 0 is the root with offset 256; each child is at (offset ^ byte) and its own offset is
  // chosen free.
  units[0] = offset(256);
  const std::size_t first = 256 ^ 0xEF;
  units[first] = 0xEF | offset(static_cast<std::uint32_t>(first ^ 8));  // children at 8 ^ byte
  const std::size_t second = 8 ^ 0xBC;
  units[second] = 0xBC | offset(static_cast<std::uint32_t>(second ^ 300));
  const std::size_t third = 300 ^ 0xA1;
  units[third] = 0xA1 | 0x100 | offset(static_cast<std::uint32_t>(third ^ 2));
  units[2] = 0x80000000U | 1;  // the leaf: the replacement starts at byte 1
  std::string bytes(4 + units.size() * 4, '\0');
  const auto size = static_cast<std::uint32_t>(units.size() * 4);
  std::memcpy(bytes.data(), &size, 4);
  std::memcpy(bytes.data() + 4, units.data(), size);
  bytes += std::string("\0a\0", 3);
  const Charsmap charsmap = Charsmap::parse(bytes).take();
  EXPECT_EQ(charsmap.apply("xＡＢ", 100), "xaＢ");
  for (std::size_t cut = 0; cut < 20; ++cut)
    EXPECT_FALSE(Charsmap::parse(bytes.substr(0, cut)).ok());
}

// Marks in the wrong order: sorted as before, in time that follows the length.
TEST(Normalizer, ManyMarksInTheWrongOrderTakeNoTime) {
  std::string marks, low, high;
  for (int i = 0; i < 250'000; ++i) {
    marks += "\u0300\u0323";
    low += "\u0323";
    high += "\u0300";
  }
  EXPECT_EQ(normalized(Kind::Nfd, "x" + marks), "x" + low + high);
  // ạ̀: the dot below joins the letter, the grave stays.
  EXPECT_EQ(normalized(Kind::Nfc, "a\u0300\u0323"), "\u1EA1\u0300");
}

// A file's replacements can double the text thirty times, or put a novel for each letter.
TEST(Normalizer, TextsThatGrowWithoutEndAreRefused) {
  NormalizeStep doubling;
  doubling.kind = NormalizeStep::Kind::Replace;
  doubling.pattern = "a";
  doubling.content = "aa";
  EncodeBudget budget(10);
  const Result<std::string> doubled =
      Normalizer(std::vector<NormalizeStep>(32, doubling)).apply("aaaaaaaaaa", budget);
  ASSERT_FALSE(doubled.ok());
  EXPECT_NE(doubled.error().message.find("too large"), std::string::npos)
      << doubled.error().message;
  doubling.content = std::string(1U << 20, 'b');
  EncodeBudget second(1000);
  EXPECT_FALSE(Normalizer({doubling}).apply(std::string(1000, 'a'), second).ok());
}

}  // namespace
}  // namespace llorch::tokenizer
