#include "base/base64.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <utility>

namespace llorch::base {
namespace {

TEST(Base64Test, WritesThePublishedVectors) {
  constexpr std::array<std::pair<const char*, const char*>, 7> kVectors = {
      {{"", ""},
       {"f", "Zg=="},
       {"fo", "Zm8="},
       {"foo", "Zm9v"},
       {"foob", "Zm9vYg=="},
       {"fooba", "Zm9vYmE="},
       {"foobar", "Zm9vYmFy"}}};
  for (const auto& [bytes, text] : kVectors) {
    EXPECT_EQ(to_base64(bytes), text);
    EXPECT_EQ(from_base64(text), bytes);
  }
}

TEST(Base64Test, TheUrlAlphabetHasNoPaddingAndNothingThatAShellKnows) {
  EXPECT_EQ(to_base64("\xfb\xef\xff\xfe", Base64::Url), "--___g");
  EXPECT_EQ(from_base64("--___g", Base64::Url), "\xfb\xef\xff\xfe");
  EXPECT_EQ(to_base64("\xfb\xef\xff\xfe"), "++///g==");
}

TEST(Base64Test, EveryByteComesBack) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  for (std::size_t length = 0; length <= bytes.size(); ++length) {
    const std::string part = bytes.substr(0, length);
    EXPECT_EQ(from_base64(to_base64(part)), part);
    EXPECT_EQ(from_base64(to_base64(part, Base64::Url), Base64::Url), part);
  }
}

TEST(Base64Test, RefusesEverythingThatItDoesNotWriteItself) {
  for (const char* text : {"Zg", "Zg=", "Zg===", "Z===", "Zh==", "Zm9=", "Zm9v\n", "Zm 9", "Zm9-"})
    EXPECT_FALSE(from_base64(text)) << text;
  for (const char* text : {"Z", "Zg==", "Zh", "Zm9vY", "Zm9+", "Zm\n9"})
    EXPECT_FALSE(from_base64(text, Base64::Url)) << text;
}

}  // namespace
}  // namespace llorch::base
