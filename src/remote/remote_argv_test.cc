#include "remote/remote_argv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/base64.h"

namespace llorch::remote {
namespace {

using ::testing::HasSubstr;

std::string encoded(std::string_view json) {
  return base::to_base64(json, base::Base64::Url);
}

TEST(RemoteArgv, IsOneWordThatNoShellReads) {
  const RemoteCommand command{{"llorch-pool", "models", "; rm -rf /", "$(id)", "a\nb", " ", "-x",
                               "", "'\"\\!`", "naïve → 日本"},
                              {"LLORCH_HOME=/a b", "EMPTY="}};
  const Result<std::string> text = encode_remote(command);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(
      text->find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"),
      std::string::npos);
  EXPECT_TRUE(text->starts_with("W1")) << "never an option: a JSON array begins like this";
  const Result<RemoteCommand> decoded = decode_remote(*text);
  ASSERT_TRUE(decoded.ok()) << decoded.error().message;
  EXPECT_EQ(*decoded, command);
}

TEST(RemoteArgv, RefusesWhatCannotArriveAsItIs) {
  EXPECT_FALSE(encode_remote({{}, {}}).ok());
  EXPECT_FALSE(encode_remote({{""}, {}}).ok());
  EXPECT_FALSE(encode_remote({{"a", std::string("b\0c", 3)}, {}}).ok());
  EXPECT_THAT(encode_remote({{"a", "b\xff"}, {}}).error().message, HasSubstr("is not UTF-8"));
  for (const char* variable : {"", "NAME", "=value", "A B=c", "A;B=c"})
    EXPECT_THAT(encode_remote({{"a"}, {variable}}).error().message, HasSubstr("NAME=value"));
}

TEST(RemoteArgv, RefusesALineThatNoLinuxTakes) {
  const std::string fits(85'000, 'x');
  ASSERT_TRUE(encode_remote({{"a", fits}, {}}).ok());
  const Result<std::string> text = encode_remote({{"a", fits + fits}, {}});
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().code, ErrorCode::TooLarge);
  EXPECT_THAT(text.error().message, HasSubstr("file over there"));
}

TEST(RemoteArgv, DecodesNothingButItsOwnForm) {
  for (const char* json :
       {"", "{}", "[]", "[[\"a\"]]", "[\"a\",[]]", "[[\"a\"],{}]", "[[],[]]", "[[\"\"],[]]",
        "[[1],[]]", "[[\"a\"],[\"b\"]]", "[[\"a\"],[],[]]", "[[\"a\\u0000\"],[]]", "[[\"a\"],[]"})
    EXPECT_FALSE(decode_remote(encoded(json)).ok()) << json;
  EXPECT_FALSE(decode_remote("W1siYSJdLFtdXQ==").ok()) << "padding";
  EXPECT_FALSE(decode_remote("no;way").ok());
  EXPECT_FALSE(decode_remote(std::string(kMaxEncodedBytes + 4, 'A')).ok());
  EXPECT_TRUE(decode_remote(encoded("[[\"a\"],[]]")).ok());
}

}  // namespace
}  // namespace llorch::remote
