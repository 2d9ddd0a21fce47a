#include "tokenizer/load.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "formats/metadata.h"
#include "support/test_paths.h"
#include "tokenizer/test_tokenizers.h"

namespace llorch::tokenizer {
namespace {

using Ids = std::vector<TokenId>;

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

Error load_error(const std::string& json) {
  Result<Tokenizer> tokenizer = from_tokenizer_json({.tokenizer_json = json});
  EXPECT_FALSE(tokenizer.ok());
  return tokenizer.ok() ? Error{} : tokenizer.error();
}

TEST(FromTokenizerJson, NamesWhatItDoesNotSupport) {
  const std::string good = test::byte_level_json();
  const struct {
    std::string_view from, to, named;
  } cases[] = {
      {R"("normalizer":null)", R"("normalizer":{"type":"Nmt"})", "\"Nmt\""},
      {R"("normalizer":null)",
       R"("normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Odd"}]})",
       "\"Odd\""},
      {R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true})",
       R"({"type":"UnicodeScripts"})", "UnicodeScripts"},
      {R"("post_processor":null)", R"("post_processor":{"type":"Strange"})", "Strange"},
      {R"("decoder":{"type":"ByteLevel"})", R"("decoder":{"type":"CTC"})", "CTC"},
      {R"("type":"BPE")", R"("type":"WordLevel")", "WordLevel"},
      {R"("type":"BPE")", R"("type":"BPE","dropout":0.1)", "dropout"},
      {R"("type":"BPE")", R"("type":"BPE","end_of_word_suffix":"</w>")", "end_of_word_suffix"},
  };
  ASSERT_TRUE(from_tokenizer_json({.tokenizer_json = good}).ok());
  for (const auto& c : cases) {
    const Error error = load_error(replaced(good, c.from, c.to));
    EXPECT_EQ(error.code, ErrorCode::Unsupported) << error.message;
    EXPECT_NE(error.message.find(c.named), std::string::npos) << error.message;
  }
}

TEST(FromTokenizerJson, NamesWhatIsWrong) {
  const std::string good = test::byte_level_json();
  const struct {
    std::string_view from, to, named;
  } cases[] = {
      {"\"h e\"", "\"h q q\"", "one space"},
      {"\"h e\"", "\"h qq\"", "not in the vocabulary"},
      {"\"he\":256", "\"he\":255", "two pieces have the id 255"},
      {"\"he\":256", "\"he\":-1", "has id -1"},
      {"\"he\":256", "\"he\":99999999", "99999999"},
      {"\"he\":256", "\"he\":2.5", "fraction"},
      {"\"he\":256", "\"\\ud800\":256", "surrogate"},
      {R"("id":261,)", R"("id":256,)", "<|end|>"},
      {R"("id":261,)", R"("id":-5,)", "expected an id"},
      {R"("model":)", R"("nothing":)", "no model"},
      {R"("post_processor":null)",
       R"("post_processor":{"type":"BertProcessing","sep":["x",9999],"cls":["y",1]})", "9999"},
  };
  for (const auto& c : cases) {
    const Error error = load_error(replaced(good, c.from, c.to));
    EXPECT_EQ(error.code, ErrorCode::Corrupt) << error.message;
    EXPECT_NE(error.message.find(c.named), std::string::npos) << error.message;
  }
  EXPECT_NE(load_error("").message.find("expected '{'"), std::string::npos);
  EXPECT_NE(load_error("{\"a\":\"\xFF\"}").message.find("not UTF-8"), std::string::npos);
  for (std::size_t size = 0; size < good.size(); size += 97) load_error(good.substr(0, size));
  load_error("{\"model\":" + std::string(100000, '['));
}

TEST(FromTokenizerJson, ReadsMergesAsPairsAndEscapedPieces) {
  std::string json = test::byte_level_json();
  json = replaced(json, R"("h e","l l","he ll")", R"(["h","e"],["l","l"],["he","\u006cl"])");
  EXPECT_EQ(test::load_json_text(json).encode(" hello").take(), (Ids{260}));
}

// GGUF metadata as a file would have it.
class MetadataBuilder {
 public:
  void texts(std::string key, const std::vector<std::string>& values) {
    array(std::move(key), formats::ElementType::String, values.size(), formats::pack_texts(values));
  }
  template <class T>
  void numbers(const std::string& key, formats::ElementType type, const std::vector<T>& values) {
    std::vector<std::byte> bytes;
    for (const T value : values) append(bytes, value);
    array(key, type, values.size(), std::move(bytes));
  }
  void value(std::string key, formats::Value value) {
    ASSERT_TRUE(metadata.add(std::move(key), std::move(value)).ok());
  }
  formats::Metadata metadata;

 private:
  template <class T>
  static void append(std::vector<std::byte>& bytes, T value) {
    const std::size_t at = bytes.size();
    bytes.resize(at + sizeof value);
    std::memcpy(bytes.data() + at, &value, sizeof value);
  }
  void array(std::string key, formats::ElementType type, std::size_t count,
             std::vector<std::byte> bytes) {
    value(std::move(key), formats::ArrayView{type, count, metadata.adopt(std::move(bytes))});
  }
};

MetadataBuilder byte_level_gguf(const std::string& pre) {
  MetadataBuilder builder;
  std::vector<std::string> tokens;
  for (unsigned byte = 0; byte < 256; ++byte)
    append_utf8(tokens.emplace_back(), test::byte_to_char(byte));
  std::vector<std::int32_t> types(256, 1);
  for (const char* token : {"he", "ll", "hell", "hello"}) {
    tokens.emplace_back(token);
    types.push_back(1);
  }
  for (const auto& [token, type] :
       {std::pair{"<|im_end|>", 3}, std::pair{"<tool>", 4}, std::pair{"[PAD262]", 4}}) {
    tokens.emplace_back(token);
    types.push_back(type);
  }
  builder.value("tokenizer.ggml.model", std::string("gpt2"));
  builder.value("tokenizer.ggml.pre", pre);
  builder.texts("tokenizer.ggml.tokens", tokens);
  builder.numbers("tokenizer.ggml.token_type", formats::ElementType::I32, types);
  builder.texts("tokenizer.ggml.merges", {"h e", "l l", "he ll", "hell o"});
  builder.value("tokenizer.ggml.eos_token_id", std::uint64_t{5});
  builder.value("tokenizer.chat_template", std::string("T"));
  return builder;
}

TEST(FromGguf, ReadsByteLevelBpe) {
  const MetadataBuilder builder = byte_level_gguf("gpt-2");
  const Tokenizer tokenizer = from_gguf(builder.metadata).take();
  EXPECT_EQ(tokenizer.encode("hello\xC3\xA9").take(), (Ids{259, 0xC3, 0xA9}));
  EXPECT_EQ(tokenizer.encode("<|im_end|>", {.parse_special = true}).take(), (Ids{260}));
  EXPECT_GT(tokenizer.encode("<|im_end|>").take().size(), 1U);
  EXPECT_GT(tokenizer.encode("[PAD262]").take().size(),
            1U);  // filler is nothing that text can mean
  EXPECT_EQ(tokenizer.vocab_size(), 263);
  EXPECT_EQ(tokenizer.num_used_ids(), 262);
  EXPECT_TRUE(tokenizer.is_end(260));
  EXPECT_TRUE(tokenizer.is_end(5));
  EXPECT_EQ(*tokenizer.chat_template(), "T");
}

TEST(FromGguf, QuotesWhatIsNotUtf8) {
  const MetadataBuilder builder = byte_level_gguf("cut \xE4\xBD");
  EXPECT_EQ(from_gguf(builder.metadata).error().code, ErrorCode::Unsupported);
}

TEST(FromGguf, NamesAnUnknownPreTokenizerAndModel) {
  const MetadataBuilder builder = byte_level_gguf("from-the-future");
  const Error error = from_gguf(builder.metadata).error();
  EXPECT_EQ(error.code, ErrorCode::Unsupported);
  EXPECT_NE(error.message.find("from-the-future"), std::string::npos) << error.message;
  MetadataBuilder other;
  other.value("tokenizer.ggml.model", std::string("rwkv"));
  other.texts("tokenizer.ggml.tokens", {"a"});
  EXPECT_NE(from_gguf(other.metadata).error().message.find("rwkv"), std::string::npos);
  EXPECT_FALSE(from_gguf(formats::Metadata()).ok());
}

std::vector<std::string> spm_pieces() {
  return {"<unk>", "<s>",    "</s>",   "<0x0A>", "▁", "a", "b",  "ab",
          "▁ab",   "<0xC3>", "<0xA9>", "</",     "s", ">", "s>", "</s"};
}

TEST(FromGguf, ReadsSentencePieceAndNeverMergesIntoControlPieces) {
  MetadataBuilder builder;
  builder.value("tokenizer.ggml.model", std::string("llama"));
  builder.texts("tokenizer.ggml.tokens", spm_pieces());
  std::vector<float> scores(spm_pieces().size(), -1.0F);
  builder.numbers("tokenizer.ggml.scores", formats::ElementType::F32, scores);
  builder.numbers<std::int32_t>("tokenizer.ggml.token_type", formats::ElementType::I32,
                                {2, 3, 3, 6, 1, 1, 1, 1, 1, 6, 6, 1, 1, 1, 1, 1});
  builder.value("tokenizer.ggml.bos_token_id", std::uint64_t{1});
  builder.value("tokenizer.ggml.unknown_token_id", std::uint64_t{0});
  const Tokenizer tokenizer = from_gguf(builder.metadata).take();
  EXPECT_EQ(tokenizer.encode("ab ab\né", {.add_special = true}).take(), (Ids{1, 8, 8, 3, 9, 10}));
  const Ids forged = tokenizer.encode("</s>").take();
  EXPECT_EQ(std::count(forged.begin(), forged.end(), 2), 0);
  EXPECT_EQ(tokenizer.decode(forged), "</s>");
}

// The model of a committed tokenizer.json, and what the Rust library says about it.
json::Value golden_model(std::string_view name) {
  const auto path =
      llorch::test::source_path(fmt::format("tests/golden/tokenizer/{}.tokenizer.json", name));
  const std::string text = base::read_text_file(path, 1 << 20).take();
  return json::parse(text).take().get_object().at("model");
}

// Encodes every vector whose text `is_taken` takes; the number of those.
template <class Predicate>
int expect_golden_ids(const Tokenizer& tokenizer, std::string_view name, Predicate is_taken) {
  std::ifstream file(
      llorch::test::source_path(fmt::format("tests/golden/tokenizer/{}.vectors.jsonl", name)));
  int count = 0;
  for (std::string line; std::getline(file, line);) {
    const json::Value vector = json::parse(line).take();
    const std::string text(json::view(vector.get_object().at("text").get_string()));
    if (!is_taken(text)) continue;
    ++count;
    Ids expected;
    for (const json::Value& id : vector.get_object().at("ids_with_special").get_array())
      expected.push_back(static_cast<TokenId>(id.get_int64()));
    EXPECT_EQ(tokenizer.encode(text, {.add_special = true, .parse_special = true}).take(), expected)
        << text;
  }
  return count;
}

TEST(FromGguf, ReadsWordPiece) {
  const json::Value model = golden_model("wordpiece");
  const json::Object& vocab = model.get_object().at("vocab").get_object();
  std::vector<std::string> tokens(vocab.size());
  std::vector<std::int32_t> types(vocab.size(), 1);
  for (const auto& [key, id] : vocab) {
    const std::string_view piece = json::view(key);
    const auto index = static_cast<std::size_t>(id.get_int64());
    const bool is_special = piece.starts_with('[') && piece.size() > 1;
    if (is_special) types[index] = 3;
    tokens[index] = is_special                ? std::string(piece)
                    : piece.starts_with("##") ? std::string(piece.substr(2))
                                              : "▁" + std::string(piece);
  }
  MetadataBuilder builder;
  builder.value("tokenizer.ggml.model", std::string("bert"));
  builder.texts("tokenizer.ggml.tokens", tokens);
  builder.numbers("tokenizer.ggml.token_type", formats::ElementType::I32, types);
  builder.value("tokenizer.ggml.unknown_token_id", std::uint64_t{1});
  builder.value("tokenizer.ggml.cls_token_id", std::uint64_t{2});
  builder.value("tokenizer.ggml.seperator_token_id", std::uint64_t{3});
  const Tokenizer tokenizer = from_gguf(builder.metadata).take();
  // The format cannot say that [MASK] takes the space in front of it.
  const auto has_no_mask = [](const std::string& text) {
    return text.find("[MASK]") == std::string::npos;
  };
  EXPECT_GT(expect_golden_ids(tokenizer, "wordpiece", has_no_mask), 200);
}

TEST(FromGguf, ReadsUnigram) {
  const json::Value model = golden_model("unigram");
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<std::int32_t> types;
  for (const json::Value& entry : model.get_object().at("vocab").get_array()) {
    const json::Array& pair = entry.get_array();
    tokens.emplace_back(json::view(pair[0].get_string()));
    scores.push_back(pair[1].to_number<float>());
    types.push_back(types.size() < 2 ? 3 : types.size() == 2 ? 2 : 1);
  }
  MetadataBuilder builder;
  builder.value("tokenizer.ggml.model", std::string("t5"));
  builder.texts("tokenizer.ggml.tokens", tokens);
  builder.numbers("tokenizer.ggml.scores", formats::ElementType::F32, scores);
  builder.numbers("tokenizer.ggml.token_type", formats::ElementType::I32, types);
  builder.value("tokenizer.ggml.unknown_token_id", std::uint64_t{2});
  builder.value("tokenizer.ggml.eos_token_id", std::uint64_t{1});
  builder.value("tokenizer.ggml.add_eos_token", true);
  builder.value("tokenizer.ggml.remove_extra_whitespaces", true);
  const Tokenizer tokenizer = from_gguf(builder.metadata).take();
  // Without its table of characters the file says nothing of other white space or of NFKC.
  const auto is_printable_ascii = [](const std::string& text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
  };
  EXPECT_GT(expect_golden_ids(tokenizer, "unigram", is_printable_ascii), 60);
}

TEST(FromGguf, RefusesCountsThatDoNotMatch) {
  MetadataBuilder builder;
  builder.value("tokenizer.ggml.model", std::string("llama"));
  builder.texts("tokenizer.ggml.tokens", spm_pieces());
  builder.numbers<float>("tokenizer.ggml.scores", formats::ElementType::F32, {0.0F});
  EXPECT_EQ(from_gguf(builder.metadata).error().code, ErrorCode::Corrupt);
}

void append_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7)
    out += static_cast<char>(static_cast<std::uint8_t>(value | 0x80));
  out += static_cast<char>(static_cast<std::uint8_t>(value));
}

void append_bytes(std::string& out, unsigned field, std::string_view bytes) {
  append_varint(out, field << 3 | 2);
  append_varint(out, bytes.size());
  out += bytes;
}

void append_number(std::string& out, unsigned field, std::uint64_t value) {
  append_varint(out, field << 3);
  append_varint(out, value);
}

std::string spm_model(unsigned model_type) {
  const std::vector<unsigned> types = {2, 3, 3, 6, 1, 1, 1, 1, 1, 6, 6, 1, 1, 1, 1, 1};
  std::string model;
  for (std::size_t i = 0; i < types.size(); ++i) {
    std::string piece;
    append_bytes(piece, 1, spm_pieces()[i]);
    append_varint(piece, 2 << 3 | 5);
    const auto bits = std::bit_cast<std::uint32_t>(-static_cast<float>(i));
    for (unsigned shift = 0; shift < 32; shift += 8)
      piece += static_cast<char>(static_cast<std::uint8_t>(bits >> shift));
    if (types[i] != 1) append_number(piece, 3, types[i]);
    append_bytes(model, 1, piece);
  }
  std::string trainer;
  append_number(trainer, 3, model_type);
  append_number(trainer, 35, 1);
  append_bytes(model, 2, trainer);
  std::string normalizer;
  append_number(normalizer, 4, 0);
  append_bytes(model, 3, normalizer);
  return model;
}

TEST(FromSentencePiece, ReadsBpeAndUnigram) {
  for (const unsigned type : {1U, 2U}) {
    const Tokenizer tokenizer = from_sentencepiece(spm_model(type)).take();
    EXPECT_EQ(tokenizer.encode("ab ab\né").take(), (Ids{8, 8, 3, 9, 10})) << type;
    EXPECT_EQ(tokenizer.decode(Ids{8, 8, 3, 9, 10}), "ab ab\né");
    EXPECT_EQ(tokenizer.bos(), 1);
    EXPECT_EQ(tokenizer.eos(), 2);
  }
}

TEST(FromSentencePiece, RefusesOtherModelsAndBrokenFiles) {
  EXPECT_EQ(from_sentencepiece(spm_model(3)).error().code, ErrorCode::Unsupported);
  const std::string model = spm_model(2);
  for (std::size_t size = 0; size < model.size(); ++size) {
    // Cut between two pieces it is a smaller model; anywhere else an error. Never a crash.
    const Result<Tokenizer> cut = from_sentencepiece(model.substr(0, size));
    if (!cut.ok()) {
      EXPECT_FALSE(cut.error().message.empty());
    }
  }
  EXPECT_EQ(from_sentencepiece("").error().code, ErrorCode::Corrupt);
}

TEST(LoadTokenizer, LooksBesideTheModelThenAboveAndSaysWhere) {
  const llorch::test::TempDir folder;
  std::filesystem::create_directories(folder / "model/weights");
  const std::filesystem::path weights = folder / "model/weights/model.safetensors";
  ASSERT_TRUE(base::write_file_atomically(weights, "x").ok());
  const Error error = load_tokenizer(weights).error();
  EXPECT_EQ(error.code, ErrorCode::NotFound);
  EXPECT_NE(error.message.find((folder / "model/weights/tokenizer.json").string()),
            std::string::npos)
      << error.message;
  EXPECT_NE(error.message.find((folder / "model/tokenizer.json").string()), std::string::npos)
      << error.message;

  ASSERT_TRUE(
      base::write_file_atomically(folder / "model/tokenizer.json", test::byte_level_json()).ok());
  EXPECT_TRUE(load_tokenizer(weights).ok());
  EXPECT_TRUE(load_tokenizer(folder / "model").ok());
  ASSERT_TRUE(
      base::write_file_atomically(folder / "model/weights/tokenizer.model", spm_model(2)).ok());
  EXPECT_EQ(load_tokenizer(weights)->vocab_size(), 16);  // what is beside comes first
  EXPECT_EQ(load_tokenizer(folder / "none").error().code, ErrorCode::NotFound);
}

TEST(LoadTokenizer, NamesTheFileInErrors) {
  const llorch::test::TempDir folder;
  ASSERT_TRUE(base::write_file_atomically(folder / "tokenizer.json", "{").ok());
  const Error error = load_tokenizer(folder.path()).error();
  EXPECT_NE(error.message.find((folder / "tokenizer.json").string()), std::string::npos)
      << error.message;
}

}  // namespace
}  // namespace llorch::tokenizer
