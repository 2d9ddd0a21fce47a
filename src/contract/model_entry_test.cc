#include "contract/model_entry.h"

#include <gtest/gtest.h>

#include <string>

#include "contract/test_model_entry.h"

namespace llorch::contract {
namespace {

using test::full_entry;

Result<ModelEntry> parse(std::string_view text) {
  const Result<json::Value> value = json::parse(text);
  EXPECT_TRUE(value.ok()) << text;
  return parse_model_entry(*value, "models[3]");
}

TEST(ModelEntryJson, BothWays) {
  const ModelEntry entry = full_entry();
  const Result<ModelEntry> read = parse_model_entry(json::Value(to_json(entry)), "entry");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, entry);

  ModelEntry bare;
  bare.id = "x";
  const Result<ModelEntry> bare_read = parse_model_entry(json::Value(to_json(bare)), "entry");
  ASSERT_TRUE(bare_read.ok()) << bare_read.error().message;
  EXPECT_EQ(*bare_read, bare);
}

TEST(ModelEntryJson, HasTheContractsFieldsAlways) {
  ModelEntry bare;
  bare.id = "x";
  const json::Object object = to_json(bare);
  for (const char* field : {"id", "name", "path", "format", "size_gb", "architecture", "downloaded",
                            "backends", "metadata"}) {
    EXPECT_TRUE(object.contains(field)) << field;
  }
  EXPECT_TRUE(object.at("metadata").as_object().contains("repo"));
  EXPECT_FALSE(object.contains("revision"));
  EXPECT_FALSE(object.at("metadata").as_object().contains("license"));
}

TEST(ModelEntryJson, GigabytesAreDecimalAndRounded) {
  const json::Object object = to_json(full_entry());
  EXPECT_EQ(json::serialize(object.at("size_gb")), "0.669");
  EXPECT_EQ(object.at("size_bytes").as_int64(), 668'788'096);
}

TEST(ModelEntryJson, AStrangersEntryIsRead) {
  const Result<ModelEntry> read = parse(
      R"({"id":"phi3","name":"Phi 3","path":".test-models/phi3","format":"safetensors","size_gb":2.4,
          "architecture":"phi3","downloaded":true,"backends":["cpu","metal"],
          "metadata":{"repo":"microsoft/Phi-3","context_length":4096,"vocab_size":null}})");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->size_bytes, 2'400'000'000);
  EXPECT_EQ(read->repo, "microsoft/Phi-3");
  EXPECT_EQ(read->context_length, 4096);
  EXPECT_EQ(read->vocab_size, std::nullopt);
  EXPECT_EQ(read->backends, (std::vector<std::string>{"cpu", "metal"}));
}

TEST(ModelEntryJson, TheExactSizeWins) {
  const Result<ModelEntry> read = parse(R"({"id":"a","size_gb":1.0,"size_bytes":999999999})");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->size_bytes, 999'999'999);
}

TEST(ModelEntryJson, ANewerProgramsFieldsSurvive) {
  const Result<ModelEntry> read =
      parse(R"({"id":"a","pinned":[1,{"x":2}],"metadata":{"repo":"","speed":1.5}})");
  ASSERT_TRUE(read.ok()) << read.error().message;
  const json::Object again = to_json(*read);
  EXPECT_EQ(json::serialize(again.at("pinned")), R"([1,{"x":2}])");
  EXPECT_EQ(json::serialize(again.at("metadata").as_object().at("speed")), "1.5");
}

TEST(ModelEntryJson, ErrorsNameTheEntryAndTheField) {
  struct Case {
    std::string_view text;
    std::string_view expected;
  };
  for (const Case& c : {
           Case{R"([])", "expected an object"},
           Case{R"({})", "id is missing"},
           Case{R"({"id":"../x"})", "\"../x\""},
           Case{R"({"id":"a","downloaded":"yes"})", "downloaded"},
           Case{R"({"id":"a","size_gb":-1})", "size_gb"},
           Case{R"({"id":"a","size_gb":1e300})", "size_gb"},
           Case{R"({"id":"a","size_bytes":-1})", "size_bytes"},
           Case{R"({"id":"a","metadata":{"vocab_size":"many"}})", "metadata.vocab_size"},
           Case{R"({"id":"a","metadata":7})", "metadata"},
           Case{R"({"id":"a","files":[7]})", "files[0]"},
           Case{R"({"id":"a","files":[{"path":"../../etc/passwd"}]})", "below the model's folder"},
           Case{R"({"id":"a","files":[{"path":"/etc/passwd"}]})", "below the model's folder"},
           Case{R"({"id":"a","files":[{"path":"a","size":-5}]})", "negative"},
           Case{R"({"id":"a","files":[{"path":"a","size":1},{"path":"b","sha256":"12"}]})",
                "files[1]"},
       }) {
    const Result<ModelEntry> read = parse(c.text);
    ASSERT_FALSE(read.ok()) << c.text;
    EXPECT_EQ(read.error().code, ErrorCode::Corrupt);
    EXPECT_TRUE(read.error().message.starts_with("models[3]: ")) << read.error().message;
    EXPECT_NE(read.error().message.find(c.expected), std::string::npos) << read.error().message;
  }
}

TEST(ModelId, IsWhatMayBeAFolderAndAnArgument) {
  for (const char* id :
       {"a", "7b", "tinyllama", "qwen2.5-0.5b_Q4.K", "A..b", "tinyllama:safetensors", "a:1.b"})
    EXPECT_TRUE(is_model_id(id)) << id;
  EXPECT_TRUE(is_model_id(std::string(128, 'x')));
  for (const char* id : {"", ".", "..", "-x", "_x", "a/b", "a b", "a;b", "a\n", "ä", "$(x)", ":a",
                         "a:", "a::b", "a:b:c", "a:.b", "hf:a", "npm:a", "file:a"})
    EXPECT_FALSE(is_model_id(id)) << id;
  EXPECT_FALSE(is_model_id(std::string(129, 'x')));
}

TEST(RelativeFilePath, StaysBelowItsFolder) {
  for (const char* path : {"a", "a/b.gguf", ".gitattributes", "..a", "a..b/c", "ä.bin", "a b"})
    EXPECT_TRUE(is_relative_file_path(path)) << path;
  for (const char* path : {"", "/", "/a", "a/", "a//b", ".", "..", "a/..", "../a", "a/../b", "./a",
                           "a\\b", "a\nb", "\xff"})
    EXPECT_FALSE(is_relative_file_path(path)) << path;
}

}  // namespace
}  // namespace llorch::contract
