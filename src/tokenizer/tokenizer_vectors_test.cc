// Our own small tokenizers, one of each kind, against what the Rust tokenizers say about them; and
// where there is real data, the real ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "support/test_paths.h"
#include "tokenizer/load.h"
#include "tokenizer/streaming_decoder.h"
#include "tokenizer/test_vectors.h"

namespace llorch::tokenizer {
namespace {

void expect_agreement(const Tokenizer& tokenizer, const std::vector<TestVector>& vectors) {
  ASSERT_GT(vectors.size(), 30U);
  for (const TestVector& vector : vectors) {
    SCOPED_TRACE(vector.text.substr(0, 200));
    EXPECT_EQ(tokenizer.encode(vector.text, {.parse_special = true}).take(), vector.ids);
    EXPECT_EQ(tokenizer.encode(vector.text, {.add_special = true, .parse_special = true}).take(),
              vector.ids_with_special);
    EXPECT_EQ(tokenizer.decode(vector.ids, {.keep_special = true}), vector.decoded);
    StreamingDecoder decoder(tokenizer, {.keep_special = true});
    std::string streamed;
    for (const TokenId id : vector.ids) streamed += decoder.decode_next(id);
    EXPECT_EQ(streamed + decoder.flush(), vector.decoded);
  }
}

class OwnTokenizer : public testing::TestWithParam<const char*> {};

TEST_P(OwnTokenizer, AgreesWithTheRustLibrary) {
  const std::filesystem::path folder = test::source_path("tests/golden/tokenizer");
  const std::string name = GetParam();
  Result<Tokenizer> tokenizer = load_tokenizer(folder / (name + ".tokenizer.json"));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  expect_agreement(tokenizer.value(), read_vectors(folder / (name + ".vectors.jsonl")));
}

INSTANTIATE_TEST_SUITE_P(Golden, OwnTokenizer,
                         testing::Values("byte_level", "chat", "splits", "sentencepiece",
                                         "metaspace", "unigram", "wordpiece"),
                         [](const auto& instance) { return std::string(instance.param); });

class RealTokenizer : public testing::TestWithParam<const char*> {};

TEST_P(RealTokenizer, AgreesWithTheRustLibrary) {
  const auto vectors = test::data_path("golden/tokenizer_vectors.jsonl");
  if (!vectors) GTEST_SKIP() << "no golden/tokenizer_vectors.jsonl in the test data";
  const std::string name = std::string("tokenizers/") + GetParam() + "/tokenizer.json";
  const auto path = test::data_path(name);
  if (!path) GTEST_SKIP() << "no " << name << " in the test data";
  Result<Tokenizer> tokenizer = load_tokenizer(*path);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  expect_agreement(tokenizer.value(), read_vectors(*vectors, name));
}

INSTANTIATE_TEST_SUITE_P(Data, RealTokenizer,
                         testing::Values("gpt2", "llama3_1", "mistral_7b_v0_3", "qwen2_5",
                                         "smollm2", "tinyllama_llama2"),
                         [](const auto& instance) { return std::string(instance.param); });

class GgufVocabulary : public testing::TestWithParam<const char*> {};

TEST_P(GgufVocabulary, AgreesWithThePublishedIds) {
  const std::string name = std::string("vocab/ggml-vocab-") + GetParam() + ".gguf";
  const auto path = test::data_path(name);
  const auto input = test::data_path(name + ".inp");
  const auto output = test::data_path(name + ".out");
  if (!path || !input || !output)
    GTEST_SKIP() << "no " << name << " with .inp and .out in the test data";
  Result<Tokenizer> tokenizer = load_tokenizer(*path);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const std::string texts = base::read_text_file(*input, 1 << 20).take();
  std::ifstream expected(*output);
  constexpr std::string_view kBorder = "\n__ggml_vocab_test__\n";
  std::size_t count = 0;
  for (std::size_t begin = 0; begin <= texts.size(); ++count) {
    const std::size_t end = std::min(texts.find(kBorder, begin), texts.size());
    const std::string text = texts.substr(begin, end - begin);
    begin = end == texts.size() ? texts.size() + 1 : end + kBorder.size();
    std::string line;
    std::getline(expected, line);
    std::istringstream numbers(line);
    const std::vector<TokenId> ids{std::istream_iterator<TokenId>(numbers),
                                   std::istream_iterator<TokenId>()};
    EXPECT_EQ(tokenizer->encode(text).take(), ids) << text;
  }
  EXPECT_GT(count, 40U);
}

INSTANTIATE_TEST_SUITE_P(Data, GgufVocabulary,
                         testing::Values("gpt-2", "llama-spm", "phi-3", "qwen2"),
                         [](const auto& instance) {
                           std::string name = instance.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace llorch::tokenizer
