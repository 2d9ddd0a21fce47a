#include "base/utf8.h"

#include <gtest/gtest.h>

namespace llorch::base {
namespace {

TEST(Utf8, AcceptsEveryBoundary) {
  for (const char* text :
       {"", "a", "\x7f", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
        "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "a\xe2\x82\xac z"}) {
    EXPECT_TRUE(is_valid_utf8(text)) << text;
    EXPECT_EQ(to_valid_utf8(text), text);
  }
}

TEST(Utf8, RefusesIllFormedSequences) {
  for (const char* text : {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80",
                           "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff",
                           "\xc3", "\xe2\x82", "\xf0\x9f\x98", "\xe2\x28\xa1", "\xe2\x82\x28"}) {
    EXPECT_FALSE(is_valid_utf8(text));
    EXPECT_TRUE(is_valid_utf8(to_valid_utf8(text)));
  }
}

TEST(Utf8, ReplacesOnlyTheIllFormedBytes) {
  EXPECT_EQ(to_valid_utf8("a\xff"
                          "b\xe2\x82\xac"),
            "a\xef\xbf\xbd"
            "b\xe2\x82\xac");
  EXPECT_EQ(to_valid_utf8("\xe2\x82"), "\xef\xbf\xbd\xef\xbf\xbd");
}

TEST(Utf8, CountsScalarValuesNotBytes) {
  EXPECT_EQ(count_scalars(""), 0U);
  EXPECT_EQ(count_scalars("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"), 4U);
}

TEST(Utf8, HtmlShowsTheTextItself) {
  EXPECT_EQ(escape_html("a<b> & \"c\" 'd' ü"), "a&lt;b&gt; &amp; &#34;c&#34; &#39;d&#39; ü");
}

TEST(Utf8, QuotesAnythingAsValidText) {
  EXPECT_EQ(base::quoted("plain ü"), "\"plain ü\"");
  EXPECT_EQ(base::quoted("a\"b\\c\n"), "\"a\\\"b\\\\c\\x0a\"");
  EXPECT_EQ(base::quoted(std::string_view("\xf4[", 2)),
            "\"\\xf4[\"");  // a cut sequence, which fmt 9's {:?} aborts on
  EXPECT_EQ(base::quoted("\xe2\x82"), "\"\\xe2\\x82\"");
  const std::string cut = base::quoted(std::string(1000, 'x'));
  EXPECT_EQ(cut, "\"" + std::string(kQuotedBytesMax, 'x') + "…\"");
  for (int first = 0; first < 256; ++first) {
    for (int second = 0; second < 256; ++second) {
      const char bytes[] = {static_cast<char>(first), static_cast<char>(second)};
      ASSERT_TRUE(is_valid_utf8(base::quoted({bytes, 2}))) << first << " " << second;
    }
  }
}

}  // namespace
}  // namespace llorch::base
