#include "contract/api_token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "support/test_paths.h"

namespace llorch::contract {
namespace {

using ::testing::HasSubstr, ::testing::Not;

TEST(ApiToken, ATokenIsPrintableAscii) {
  EXPECT_TRUE(check_api_token("").ok());
  EXPECT_TRUE(check_api_token("abcDEF123-._~+/=!").ok());
  for (const char* bad :
       {"abc\r\nX-Forged: 1", "abc\n", "a b", "a\tb", "a\x7f", "\x01", "caf\xC3\xA9"}) {
    const Status refused = check_api_token(bad);
    ASSERT_FALSE(refused.ok()) << bad;
    EXPECT_EQ(refused.error().code, ErrorCode::InvalidArgument);
    EXPECT_THAT(refused.error().message, Not(HasSubstr("abc"))) << "it is a secret";
  }
}

TEST(ApiToken, AFileWithTwoLinesIsRefused) {
  const test::TempDir folder;
  const auto file = folder.path() / "token";
  std::ofstream(file) << "0123456789abcdef\r\n";
  EXPECT_EQ(read_api_token(file).take(), "0123456789abcdef");
  std::ofstream(file) << "0123456789abcdef\r\nX-Forged: 1\r\n";
  const Result<std::string> refused = read_api_token(file);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr(file.string()));
  EXPECT_THAT(refused.error().message, HasSubstr("byte 16"));
}

}  // namespace
}  // namespace llorch::contract
