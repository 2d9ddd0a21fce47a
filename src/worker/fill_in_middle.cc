#include "worker/fill_in_middle.h"

#include <array>
#include <string_view>

namespace llorch::worker {
namespace {

struct Names {
  std::string_view prefix;
  std::string_view suffix;
  std::string_view middle;  // empty: none
  bool suffix_first = false;
};

// Qwen coder and Granite; StarCoder; Code Llama; CodeGemma is as Qwen; DeepSeek coder; Codestral.
constexpr std::array kNames = {
    Names{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},
    Names{"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},
    Names{"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},
    Names{"▁<PRE>", "▁<SUF>", "▁<MID>"},
    Names{"<PRE>", "<SUF>", "<MID>"},
    Names{"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},
    Names{"[PREFIX]", "[SUFFIX]", "", true},
};

// GGUF's keys: those of today, and those of files made before them.
struct Keys {
  const char* prefix;
  const char* suffix;
  const char* middle;
};
constexpr std::array kKeys = {
    Keys{"tokenizer.ggml.fim_pre_token_id", "tokenizer.ggml.fim_suf_token_id",
         "tokenizer.ggml.fim_mid_token_id"},
    Keys{"tokenizer.ggml.prefix_token_id", "tokenizer.ggml.suffix_token_id",
         "tokenizer.ggml.middle_token_id"},
};

// An id that the vocabulary has.
std::optional<tokenizer::TokenId> id_of(const formats::Metadata& metadata, const char* key,
                                        const tokenizer::Tokenizer& tokenizer) {
  if (!metadata.contains(key)) return std::nullopt;
  const Result<std::int64_t> id = metadata.integer(key);
  if (!id.ok() || *id < 0 || *id >= tokenizer.vocab_size()) return std::nullopt;
  return static_cast<tokenizer::TokenId>(*id);
}

}  // namespace

std::optional<FillTokens> find_fill_tokens(const formats::Metadata& metadata,
                                           const tokenizer::Tokenizer& tokenizer) {
  for (const Keys& keys : kKeys) {
    const auto prefix = id_of(metadata, keys.prefix, tokenizer);
    const auto suffix = id_of(metadata, keys.suffix, tokenizer);
    const auto middle = id_of(metadata, keys.middle, tokenizer);
    // Without a middle the order of the texts is the vocabulary's secret: its names may tell.
    if (prefix && suffix && middle)
      return FillTokens{.prefix = *prefix, .suffix = *suffix, .middle = middle};
  }
  for (const Names& names : kNames) {
    const auto prefix = tokenizer.find_piece(names.prefix);
    const auto suffix = tokenizer.find_piece(names.suffix);
    if (!prefix || !suffix) continue;
    FillTokens tokens{.prefix = *prefix, .suffix = *suffix, .suffix_first = names.suffix_first};
    if (!names.middle.empty()) tokens.middle = tokenizer.find_piece(names.middle);
    if (names.middle.empty() || tokens.middle) return tokens;
  }
  return std::nullopt;
}

std::vector<tokenizer::TokenId> fill_prompt(const FillTokens& tokens,
                                            std::span<const tokenizer::TokenId> begin,
                                            std::span<const tokenizer::TokenId> before,
                                            std::span<const tokenizer::TokenId> after) {
  std::vector<tokenizer::TokenId> out(begin.begin(), begin.end());
  const auto add = [&](tokenizer::TokenId token, std::span<const tokenizer::TokenId> text) {
    out.push_back(token);
    out.insert(out.end(), text.begin(), text.end());
  };
  if (tokens.suffix_first) add(tokens.suffix, after);
  add(tokens.prefix, before);
  if (!tokens.suffix_first) add(tokens.suffix, after);
  if (tokens.middle) out.push_back(*tokens.middle);
  return out;
}

}  // namespace llorch::worker
