#include "base/digest.h"

#include <gtest/gtest.h>

#include <string>

namespace llorch::base {
namespace {

// Values of FIPS 180-4's examples.
TEST(Digest, AgreesWithThePublishedExamples) {
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  Digest long_one(DigestKind::Sha512);
  long_one.add("abc");
  EXPECT_EQ(long_one.finish_base64(),
            "3a81oZNherrMQXNJriBBMRLm+k6JqX6iCp7u5ktV05ohkpkqJ0/BqDa6PCOj/uu9RU1EI2Q86A4qmslPpUyknw"
            "==");
  Digest short_one(DigestKind::Sha1);
  short_one.add("abc");
  EXPECT_EQ(short_one.finish_hex(), "a9993e364706816aba3e25717850c26c9cd0d89d");
}

TEST(Digest, PiecesMakeTheSameHash) {
  const std::string text(1000, 'a');
  Digest pieces;
  for (std::size_t i = 0; i < text.size(); i += 7) pieces.add(text.substr(i, 7));
  EXPECT_EQ(pieces.finish_hex(), sha256_hex(text));
}

TEST(IsSameSecret, WantsEveryByteOfIt) {
  EXPECT_TRUE(is_same_secret("0123456789abcdef", "0123456789abcdef"));
  for (const char* bad : {"", "0123456789abcde", "0123456789abcdeF", "0123456789abcdef0",
                          "0123456789abcdef0123456789abcdef"}) {
    EXPECT_FALSE(is_same_secret(bad, "0123456789abcdef")) << bad;
  }
  EXPECT_FALSE(is_same_secret("", "")) << "no secret opens nothing";
  EXPECT_FALSE(is_same_secret("a", ""));
}

}  // namespace
}  // namespace llorch::base
