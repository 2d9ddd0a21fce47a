#include "formats/json_metadata.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/file.h"
#include "support/test_paths.h"

namespace llorch::formats {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr;

TEST(JsonMetadata, FlattensObjectsToDottedKeys) {
  Metadata metadata;
  const Status added = add_json_metadata(
      R"({"hidden_size":64,"rope_scaling":{"type":"yarn","factor":2.5,"inner":{"on":true}},"gone":null,"big":18446744073709551615})",
      "config", metadata);
  ASSERT_TRUE(added.ok()) << added.error().message;
  EXPECT_EQ(metadata.size(), 5U);
  EXPECT_EQ(metadata.integer("config.hidden_size").value(), 64);
  EXPECT_EQ(metadata.text("config.rope_scaling.type").value(), "yarn");
  EXPECT_EQ(metadata.number("config.rope_scaling.factor").value(), 2.5);
  EXPECT_EQ(metadata.flag("config.rope_scaling.inner.on").value(), true);
  EXPECT_FALSE(metadata.contains("config.gone"));
  EXPECT_TRUE(metadata.is_null("config.gone"));
  EXPECT_FALSE(metadata.is_null("config.never_there"));
  EXPECT_FALSE(metadata.is_null("config.hidden_size"));
}

TEST(JsonMetadata, PacksArraysOfOneKind) {
  Metadata metadata;
  ASSERT_TRUE(
      add_json_metadata(
          R"({"eos":[1,-2],"f":[1,2.5],"s":["a","","é"],"b":[true,false],"none":[],"u":[1,18446744073709551615]})",
          "c", metadata)
          .ok());
  // Spans point into the metadata object also after it moved.
  const Metadata moved = std::move(metadata);
  EXPECT_THAT(moved.integers("c.eos").value(), ElementsAre(1, -2));
  EXPECT_THAT(moved.numbers("c.f").value(), ElementsAre(1.0, 2.5));
  EXPECT_THAT(moved.texts("c.s").value(), ElementsAre("a", "", "é"));
  EXPECT_TRUE(moved.integers("c.none").value().empty());
  const auto* flags = std::get_if<ArrayView>(moved.find("c.b"));
  ASSERT_NE(flags, nullptr);
  EXPECT_EQ(flags->type, ElementType::Bool);
  EXPECT_THAT(flags->bytes, ElementsAre(std::byte{1}, std::byte{0}));
  EXPECT_EQ(std::get_if<ArrayView>(moved.find("c.u"))->type, ElementType::U64);
}

TEST(JsonMetadata, FlattensOtherArraysByPosition) {
  Metadata metadata;
  ASSERT_TRUE(add_json_metadata(R"({"x":[{"y":1},"s",[2,3]]})", "c", metadata).ok());
  EXPECT_EQ(metadata.integer("c.x.0.y").value(), 1);
  EXPECT_EQ(metadata.text("c.x.1").value(), "s");
  EXPECT_THAT(metadata.integers("c.x.2").value(), ElementsAre(2, 3));
}

TEST(JsonMetadata, RefusesWhatIsNotOneObject) {
  const auto message_of = [](const std::string& text) {
    Metadata metadata;
    const Status added = add_json_metadata(text, "c", metadata);
    return added.ok() ? "accepted" : added.error().message;
  };
  EXPECT_THAT(message_of("[1]"), HasSubstr("found an array"));
  EXPECT_THAT(message_of("{\"a\":\"\xff\"}"), HasSubstr("line 1"));
  EXPECT_THAT(message_of(R"({"a":{"b":1},"a.b":2})"), HasSubstr("c.a.b"));
  EXPECT_THAT(message_of("{\"" + std::string(2000, 'k') + "\":1}"),
              HasSubstr("a key of 2002 bytes"));
}

TEST(JsonMetadata, NamesTheFile) {
  const test::TempDir dir;
  ASSERT_TRUE(base::write_file_atomically(dir / "config.json", "{").ok());
  Metadata metadata;
  EXPECT_THAT(read_json_metadata(dir / "config.json", "config", metadata).error().message,
              HasSubstr("config.json"));
  std::filesystem::resize_file(dir / "config.json", (16U << 20) + 1);
  EXPECT_EQ(read_json_metadata(dir / "config.json", "config", metadata).error().code,
            ErrorCode::TooLarge);
}

}  // namespace
}  // namespace llorch::formats
