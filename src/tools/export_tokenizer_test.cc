// Tokenizers written as GGUF keys and read back: the same ids, or a reason why not.
#include "tools/export_tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "base/file.h"
#include "base/json.h"
#include "support/test_paths.h"
#include "tokenizer/test_vectors.h"

namespace llorch::tools {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using tokenizer::EncodeOptions;
using tokenizer::from_gguf;
using tokenizer::from_tokenizer_json;
using tokenizer::HuggingFaceFiles;
using tokenizer::read_vectors;
using tokenizer::TestVector;
using tokenizer::TokenId;
using tokenizer::Tokenizer;

std::string read_golden(const std::string& name) {
  const auto path = test::source_path("tests/golden/tokenizer") / (name + ".tokenizer.json");
  return base::read_text_file(path, std::size_t{16} << 20).take();
}

Result<GgufExport> export_golden(const std::string& name,
                                 const ExportOptions& options = {"llama", 0}) {
  const std::string text = read_golden(name);
  return export_tokenizer(HuggingFaceFiles{.tokenizer_json = text}, options);
}

// The ids that the Rust library gives; where there are notes, only for texts that they do not speak
// of.
void expect_vectors(const GgufExport& exported, const std::vector<TestVector>& vectors) {
  const Tokenizer back = from_gguf(exported.metadata).take();
  int compared = 0;
  for (const TestVector& vector : vectors) {
    const bool has_special = std::any_of(vector.ids.begin(), vector.ids.end(),
                                         [&](TokenId id) { return back.is_special(id); });
    if (!exported.notes.empty() && (has_special || vector.text.starts_with(' '))) continue;
    ++compared;
    EXPECT_EQ(back.encode(vector.text, {.parse_special = true}).take(), vector.ids) << vector.text;
    EXPECT_EQ(back.encode(vector.text, {.add_special = true, .parse_special = true}).take(),
              vector.ids_with_special)
        << vector.text;
  }
  EXPECT_GT(compared, 25);
}

TEST(ExportGguf, ByteLevelTokenizersComeBackWithTheirIds) {
  const Result<GgufExport> exported = export_golden("byte_level");
  ASSERT_TRUE(exported.ok()) << exported.error().message;
  EXPECT_EQ(exported->metadata.text("tokenizer.ggml.model").value(), "gpt2");
  EXPECT_EQ(exported->metadata.text("tokenizer.ggml.pre").value(), "gpt-2");
  EXPECT_EQ(exported->metadata.text("general.architecture").value(), "llama");
  EXPECT_THAT(exported->notes, IsEmpty());
  const auto vectors = test::source_path("tests/golden/tokenizer/byte_level.vectors.jsonl");
  expect_vectors(*exported, read_vectors(vectors, ""));
}

// The chat tokenizer of the fixtures composes characters, which no GGUF name with its other rules
// does.
std::string plain_chat() {
  json::Value value = json::parse(read_golden("chat")).take();
  value.get_object()["normalizer"] = nullptr;
  json::Array kept;
  for (json::Value& token : value.get_object()["added_tokens"].get_array()) {
    if (token.get_object().at("content") == "keeper") continue;  // merges make it, too
    for (const char* option : {"lstrip", "rstrip", "single_word"})
      token.get_object()[option] = false;
    kept.push_back(token);
  }
  value.get_object()["added_tokens"] = kept;
  return json::serialize(value);
}

TEST(ExportGguf, FindsTheNameOfThePreTokenizer) {
  const std::string text = plain_chat();
  const HuggingFaceFiles files{.tokenizer_json = text};
  const Result<GgufExport> exported = export_tokenizer(files, {"llama", 0});
  ASSERT_TRUE(exported.ok()) << exported.error().message;
  EXPECT_EQ(exported->metadata.text("tokenizer.ggml.pre").value(), "llama3");
  const Tokenizer before = from_tokenizer_json(files).take();
  const Tokenizer after = from_gguf(exported->metadata).take();
  for (const TestVector& vector :
       read_vectors(test::source_path("tests/golden/tokenizer/chat.vectors.jsonl"), "")) {
    for (const bool special : {false, true}) {
      const EncodeOptions options{special, special};
      EXPECT_EQ(before.encode(vector.text, options).take(),
                after.encode(vector.text, options).take())
          << vector.text;
    }
  }
}

TEST(ExportGguf, FillsTheVocabularyUpToTheEmbedding) {
  const std::string text = plain_chat();
  const HuggingFaceFiles files{.tokenizer_json = text};
  const std::int32_t size = from_tokenizer_json(files).take().vocab_size();
  const Result<GgufExport> padded = export_tokenizer(files, {"llama", size + 7});
  ASSERT_TRUE(padded.ok()) << padded.error().message;
  const auto pieces = padded->metadata.texts("tokenizer.ggml.tokens").take();
  EXPECT_EQ(pieces.size(), static_cast<std::size_t>(size) + 7);
  EXPECT_EQ(pieces.back(), "[PAD" + std::to_string(size + 6) + "]");
  const Result<GgufExport> cut = export_tokenizer(files, {"llama", size - 1});
  ASSERT_FALSE(cut.ok());
  EXPECT_THAT(cut.error().message, HasSubstr("rows"));
}

TEST(ExportGguf, CarriesSpecialIdsEndsAndTemplates) {
  const std::string text = plain_chat();
  const Tokenizer bare = from_tokenizer_json({.tokenizer_json = text}).take();
  // Two ends that no name tells.
  const HuggingFaceFiles files{.tokenizer_json = text,
                               .tokenizer_config =
                                   R"({"chat_template": [{"name": "default", "template": "A"},
                                      {"name": "tool_use", "template": "B"}]})",
                               .generation_config = R"({"eos_token_id": [5, 9]})"};
  const Tokenizer before = from_tokenizer_json(files).take();
  const Result<GgufExport> exported = export_tokenizer(files, {"llama", 0});
  ASSERT_TRUE(exported.ok()) << exported.error().message;
  const Tokenizer after = from_gguf(exported->metadata).take();
  EXPECT_TRUE(after.is_end(5) && after.is_end(9));
  EXPECT_EQ(std::vector<TokenId>(before.end_ids().begin(), before.end_ids().end()),
            std::vector<TokenId>(after.end_ids().begin(), after.end_ids().end()));
  EXPECT_EQ(*after.chat_template(), "A");
  EXPECT_EQ(*after.chat_template("tool_use"), "B");
  const Result<GgufExport> many = export_tokenizer(
      {.tokenizer_json = text, .generation_config = R"({"eos_token_id": [5, 6, 7, 9]})"},
      {"llama", 0});
  ASSERT_FALSE(many.ok());
  EXPECT_THAT(many.error().message, HasSubstr("end tokens"));
}

// A vocabulary as SentencePiece trains it and transformers writes it: every way to make a piece is
// a merge, best first.
struct SpmFixture {
  std::vector<std::string> words = {"▁t", "he", "▁the", "▁▁", "▁a", "an", "▁an", "in", "ing"};
  json::Object file;

  explicit SpmFixture(bool drops_a_merge = false) {
    json::Object vocab;
    json::Array added, merges;
    std::vector<std::string> pieces = {"<unk>", "<s>", "</s>"};
    for (int byte = 0; byte < 256; ++byte) {
      char piece[8];
      std::snprintf(piece, sizeof piece, "<0x%02X>", static_cast<unsigned>(byte));
      pieces.emplace_back(piece);
    }
    pieces.insert(pieces.end(), words.begin(), words.end());
    for (const char* letter : {"▁", "t", "h", "e", "a", "n", "i", "g"}) pieces.emplace_back(letter);
    for (std::size_t id = 0; id < pieces.size(); ++id) vocab[pieces[id]] = id;
    for (std::size_t id = 0; id < 3; ++id)
      added.push_back(json::Object{{"id", id}, {"content", pieces[id]}, {"special", true}});
    for (const std::string& word : words) {
      for (std::size_t border = 1; border < word.size(); ++border) {
        const std::string left = word.substr(0, border), right = word.substr(border);
        if (!vocab.contains(left) || !vocab.contains(right)) continue;
        if (drops_a_merge && word == "▁the" && left == "▁t") continue;
        merges.push_back(json::Array{json::Value(left), json::Value(right)});
      }
    }
    file["added_tokens"] = added;
    file["normalizer"] = json::parse(R"({"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "▁"},
        {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]})")
                             .take();
    file["decoder"] = json::parse(R"({"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        {"type": "ByteFallback"}, {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})")
                          .take();
    file["post_processor"] = json::parse(R"({"type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
        "special_tokens": {"<s>": {"ids": [1]}}})")
                                 .take();
    file["model"] =
        json::Object{{"type", "BPE"},         {"unk_token", "<unk>"}, {"fuse_unk", true},
                     {"byte_fallback", true}, {"vocab", vocab},       {"merges", merges}};
  }
  std::string text() const { return json::serialize(file); }
};

TEST(ExportGguf, SentencePieceTokenizersComeBackWithTheirIds) {
  const std::string text = SpmFixture().text();
  const HuggingFaceFiles files{.tokenizer_json = text};
  const Result<GgufExport> exported = export_tokenizer(files, {"llama", 0});
  ASSERT_TRUE(exported.ok()) << exported.error().message;
  EXPECT_EQ(exported->metadata.text("tokenizer.ggml.model").value(), "llama");
  EXPECT_THAT(exported->notes, IsEmpty());
  const Tokenizer before = from_tokenizer_json(files).take();
  const Tokenizer after = from_gguf(exported->metadata).take();
  EXPECT_EQ(after.bos(), 1);
  EXPECT_EQ(after.unknown(), 0);
  for (const char* sample :
       {"the thing an ant in the tan", "  the", "an éèê", "<s>the</s>", "hehehe ining"}) {
    EXPECT_EQ(before.encode(sample, {true, true}).take(), after.encode(sample, {true, true}).take())
        << sample;
  }
}

TEST(ExportGguf, RefusesMergesThatNoScoresStandFor) {
  const std::string incomplete = SpmFixture(/*drops_a_merge=*/true).text();
  const Result<GgufExport> exported =
      export_tokenizer({.tokenizer_json = incomplete}, {"llama", 0});
  ASSERT_FALSE(exported.ok());
  EXPECT_EQ(exported.error().code, ErrorCode::Unsupported);
  EXPECT_THAT(exported.error().message, HasSubstr("\"▁the\""));
}

TEST(ExportGguf, SaysWhatGgufCannotHold) {
  const std::pair<const char*, const char*> cases[] = {
      {"chat", "pre-tokenizer"}, {"splits", "pre_tokenizer"}, {"sentencepiece", "merges"},
      {"metaspace", "merges"},   {"unigram", "NFKC"},         {"wordpiece", "WordPiece"}};
  for (const auto& [name, reason] : cases) {
    const Result<GgufExport> exported = export_golden(name);
    ASSERT_FALSE(exported.ok()) << name;
    EXPECT_EQ(exported.error().code, ErrorCode::Unsupported) << name;
    EXPECT_THAT(exported.error().message, HasSubstr(reason)) << name;
  }
}

TEST(ExportGguf, RefusesOptionsOfAddedTokens) {
  for (const char* option : {"lstrip", "rstrip", "single_word"}) {
    json::Value value = json::parse(plain_chat()).take();
    value.get_object()["added_tokens"].get_array()[0].get_object()[option] = true;
    const std::string text = json::serialize(value);
    const Result<GgufExport> exported = export_tokenizer({.tokenizer_json = text}, {"llama", 0});
    ASSERT_FALSE(exported.ok()) << option;
    EXPECT_THAT(exported.error().message, HasSubstr(option));
  }
}

class RealExport : public testing::TestWithParam<const char*> {};

TEST_P(RealExport, ComesBackWithTheIdsOfTheRustLibrary) {
  const auto folder = test::data_path(std::string("tokenizers/") + GetParam());
  const auto vectors = test::data_path("golden/tokenizer_vectors.jsonl");
  if (!folder || !vectors) GTEST_SKIP() << "tokenizers/" << GetParam() << " is absent";
  const Result<GgufExport> exported = export_tokenizer(*folder, {"llama", 0});
  ASSERT_TRUE(exported.ok()) << exported.error().message;
  expect_vectors(*exported, read_vectors(*vectors, std::string("tokenizers/") + GetParam() +
                                                       "/tokenizer.json"));
}

INSTANTIATE_TEST_SUITE_P(SharedData, RealExport,
                         testing::Values("gpt2", "llama3_1", "qwen2_5", "smollm2",
                                         "tinyllama_llama2", "mistral_7b_v0_3"),
                         [](const auto& instance) { return std::string(instance.param); });

}  // namespace
}  // namespace llorch::tools
