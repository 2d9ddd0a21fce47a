// GGUF metadata → Tokenizer.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "formats/metadata.h"
#include "tokenizer/bpe.h"
#include "tokenizer/gguf_pre.h"
#include "tokenizer/load.h"
#include "tokenizer/load_parts.h"
#include "tokenizer/unicode.h"
#include "tokenizer/wordpiece.h"

namespace llorch::tokenizer {
namespace {

using formats::Metadata;

Error corrupt(std::string message) {
  return {ErrorCode::Corrupt, "GGUF tokenizer: " + std::move(message)};
}
Error unsupported(std::string message) {
  return {ErrorCode::Unsupported, "GGUF tokenizer: " + std::move(message)};
}

struct GgufVocab {
  std::vector<std::string_view> pieces;
  std::vector<PieceType> types;
};

Result<GgufVocab> read_vocab(const Metadata& metadata) {
  GgufVocab vocab;
  Result<std::vector<std::string_view>> pieces = metadata.texts("tokenizer.ggml.tokens");
  if (!pieces.ok()) return pieces.error();
  vocab.pieces = pieces.take();
  if (Status status = check_pieces(vocab.pieces); !status.ok()) return status.error();
  vocab.types.assign(vocab.pieces.size(), PieceType::Normal);
  if (!metadata.contains("tokenizer.ggml.token_type")) return vocab;
  Result<std::vector<std::int64_t>> types = metadata.integers("tokenizer.ggml.token_type");
  if (!types.ok()) return types.error();
  if (types->size() != vocab.pieces.size()) {
    return corrupt(
        fmt::format("{} tokens, but {} token types", vocab.pieces.size(), types->size()));
  }
  for (std::size_t id = 0; id < types->size(); ++id) {
    const std::int64_t type = types.value()[id];
    if (type < 0 || type > 6)
      return corrupt(fmt::format("token {} has the type {}; expected 0 to 6", id, type));
    vocab.types[id] = type == 0 ? PieceType::Normal : static_cast<PieceType>(type);
    if (is_filler(vocab.pieces[id], static_cast<TokenId>(id))) vocab.types[id] = PieceType::Unused;
  }
  return vocab;
}

Status read_id(const Metadata& metadata, std::string_view key, TokenId& id) {
  Result<std::int64_t> value = metadata.integer_or(key, -1);
  if (!value.ok()) return value.error();
  // Some converters write the largest unsigned number for "none".
  if (value.value() < 0 || value.value() == UINT32_MAX) return ok_status();
  if (value.value() >= static_cast<std::int64_t>(kMaxVocabSize)) {
    return corrupt(fmt::format("{} is {}, which no vocabulary has", key, value.value()));
  }
  id = static_cast<TokenId>(value.value());
  return ok_status();
}

Status read_ids(const Metadata& metadata, TokenizerParts& parts) {
  TokenId eot = kNoToken, eom = kNoToken;
  const std::pair<std::string_view, TokenId*> ids[] = {
      {"tokenizer.ggml.bos_token_id", &parts.bos},
      {"tokenizer.ggml.eos_token_id", &parts.eos},
      {"tokenizer.ggml.unknown_token_id", &parts.unknown},
      {"tokenizer.ggml.padding_token_id", &parts.padding},
      {"tokenizer.ggml.eot_token_id", &eot},
      {"tokenizer.ggml.eom_token_id", &eom},
  };
  for (const auto& [key, id] : ids) {
    if (Status status = read_id(metadata, key, *id); !status.ok()) return status;
  }
  for (const TokenId id : {eot, eom}) {
    if (id != kNoToken) parts.ends.push_back(id);
  }
  return ok_status();
}

Status read_affixes(const Metadata& metadata, bool adds_bos, TokenizerParts& parts) {
  Result<bool> add_bos = metadata.flag_or("tokenizer.ggml.add_bos_token", adds_bos);
  if (!add_bos.ok()) return add_bos.error();
  Result<bool> add_eos = metadata.flag_or("tokenizer.ggml.add_eos_token", false);
  if (!add_eos.ok()) return add_eos.error();
  if (add_bos.value() && parts.bos != kNoToken) parts.prefix.push_back(parts.bos);
  if (add_eos.value() && parts.eos != kNoToken) parts.suffix.push_back(parts.eos);
  return ok_status();
}

Status read_templates(const Metadata& metadata, TokenizerParts& parts) {
  constexpr std::string_view kKey = "tokenizer.chat_template";
  for (const auto& [key, value] : metadata.entries()) {
    const auto* text = std::get_if<std::string>(&value);
    if (text == nullptr || !key.starts_with(kKey)) continue;
    if (key == kKey) {
      parts.chat_templates.emplace_back("default", *text);
    } else if (key.size() > kKey.size() + 1 && key[kKey.size()] == '.') {
      parts.chat_templates.emplace_back(key.substr(kKey.size() + 1), *text);
    }
  }
  return ok_status();
}

// Phi-3's special tokens take the white space behind them, which GGUF does not say.
void strip_like_phi3(const Metadata& metadata, TokenizerParts& parts) {
  Result<std::string_view> architecture = metadata.text("general.architecture");
  if (!architecture.ok() || architecture.value() != "phi3") return;
  for (AddedToken& token : parts.added) {
    token.strips_right =
        token.content != "<unk>" && token.content != "<s>" && token.content != "<|endoftext|>";
  }
}

Status make_from_spm(const Metadata& metadata, const GgufVocab& vocab, bool is_unigram,
                     TokenizerParts& parts) {
  SpmVocab source;
  source.pieces = vocab.pieces;
  source.types = vocab.types;
  source.is_unigram = is_unigram;
  Result<std::vector<double>> scores = metadata.numbers("tokenizer.ggml.scores");
  if (!scores.ok()) return scores.error();
  source.scores.reserve(scores->size());
  for (const double score : scores.value()) source.scores.push_back(static_cast<float>(score));
  source.has_byte_fallback =
      std::find(vocab.types.begin(), vocab.types.end(), PieceType::Byte) != vocab.types.end();
  Result<bool> prefix = metadata.flag_or("tokenizer.ggml.add_space_prefix", true);
  if (!prefix.ok()) return prefix.error();
  source.adds_space_prefix = prefix.value();
  Result<bool> collapses = metadata.flag_or("tokenizer.ggml.remove_extra_whitespaces", false);
  if (!collapses.ok()) return collapses.error();
  source.collapses_spaces = collapses.value();
  std::string charsmap;
  if (const formats::Value* value = metadata.find("tokenizer.ggml.precompiled_charsmap");
      value != nullptr) {
    const auto* array = std::get_if<formats::ArrayView>(value);
    if (array == nullptr || formats::element_bytes(array->type) != 1) {
      return corrupt("tokenizer.ggml.precompiled_charsmap: expected an array of bytes");
    }
    source.charsmap = {reinterpret_cast<const char*>(array->bytes.data()), array->bytes.size()};
  }
  if (Status status = make_spm(source, parts); !status.ok()) return status;
  strip_like_phi3(metadata, parts);
  return read_affixes(metadata, /*adds_bos=*/!is_unigram, parts);
}

struct BytePieces {
  std::string arena;
  std::vector<std::string_view> pieces;
  std::vector<std::uint8_t> is_listed;
};

BytePieces read_byte_pieces(const GgufVocab& vocab, std::vector<AddedToken>& added) {
  BytePieces out;
  std::size_t bytes = 0;
  for (const std::string_view piece : vocab.pieces) bytes += piece.size();
  out.arena.reserve(bytes);
  out.pieces.reserve(vocab.pieces.size());
  out.is_listed.reserve(vocab.pieces.size());
  std::string buffer;
  for (std::size_t id = 0; id < vocab.pieces.size(); ++id) {
    const std::string_view written = vocab.pieces[id];
    const PieceType type = vocab.types[id];
    const bool is_added =
        type == PieceType::Control || type == PieceType::UserDefined || type == PieceType::Unknown;
    if (is_added && !written.empty()) {
      AddedToken token;
      token.id = static_cast<TokenId>(id);
      token.content = written;
      token.is_special = type != PieceType::UserDefined;
      added.push_back(std::move(token));
    }
    const std::size_t begin = out.arena.size();
    const bool is_bytes = bytes_from_chars(written, buffer);
    out.arena += is_bytes ? std::string_view(buffer) : written;
    out.pieces.push_back(std::string_view(out.arena).substr(begin));
    out.is_listed.push_back(is_bytes && !is_added && type != PieceType::Unused);
  }
  return out;
}

Result<std::vector<Merge>> read_merges(const Metadata& metadata, const Vocab& vocab) {
  Result<std::vector<std::string_view>> texts = metadata.texts("tokenizer.ggml.merges");
  if (!texts.ok()) return texts.error();
  std::vector<Merge> merges;
  merges.reserve(texts->size());
  std::string left, right;
  for (const std::string_view text : texts.value()) {
    // A piece may itself be a space in other writings, so the border is the first one behind a
    // character.
    const std::size_t space = text.find(' ', 1);
    if (space == std::string_view::npos || find_invalid_utf8(text) != text.size() ||
        !bytes_from_chars(text.substr(0, space), left) ||
        !bytes_from_chars(text.substr(space + 1), right)) {
      return corrupt(
          fmt::format("merge {} ({}) is not two byte-level pieces with a space between them",
                      merges.size(), base::quoted(text)));
    }
    const Merge merge{vocab.id_of(left), vocab.id_of(right), vocab.id_of(left.append(right)),
                      static_cast<std::uint32_t>(merges.size())};
    if (merge.left == kNoToken || merge.right == kNoToken || merge.result == kNoToken) {
      return corrupt(fmt::format("merge {} ({}) names a piece that is not in the vocabulary",
                                 merges.size(), base::quoted(text)));
    }
    merges.push_back(merge);
  }
  return merges;
}

Status make_from_bpe(const Metadata& metadata, const GgufVocab& vocab, TokenizerParts& parts) {
  Result<std::string_view> name = metadata.text("tokenizer.ggml.pre");
  if (!name.ok())
    return name.error().in("GGUF tokenizer: byte-level BPE needs its pre-tokenizer's name");
  const GgufPre* pre = find_gguf_pre(name.value());
  if (pre == nullptr) {
    return unsupported(
        fmt::format("the pre-tokenizer {} (tokenizer.ggml.pre); use the model's tokenizer.json",
                    base::quoted(name.value())));
  }
  std::vector<SplitRule> rules;
  for (const std::string_view expression : pre->expressions) {
    Result<SplitRule> rule = make_expression_rule(expression);
    if (!rule.ok()) return rule.error();
    rules.push_back(rule.take());
  }
  parts.pre_tokenizer = PreTokenizer(std::move(rules));
  if (pre->composes) parts.normalizer = Normalizer(std::vector<NormalizeStep>(1));
  const BytePieces pieces = read_byte_pieces(vocab, parts.added);
  parts.vocab = std::make_unique<Vocab>(pieces.pieces, pieces.is_listed);
  Result<std::vector<Merge>> merges = read_merges(metadata, *parts.vocab);
  if (!merges.ok()) return merges.error();
  BpeOptions options;
  options.byte_level = true;
  options.ignore_merges = pre->ignore_merges;
  parts.model = std::make_unique<Bpe>(*parts.vocab, merges.value(), std::move(options));
  parts.decode.style = DecodeRules::Style::ByteLevel;
  return read_affixes(metadata, pre->adds_bos, parts);
}

// GGUF writes WordPiece the other way round: "▁" in front of pieces that start a word, nothing in
// front of the others.
Status make_from_wordpiece(const Metadata& metadata, const GgufVocab& vocab,
                           TokenizerParts& parts) {
  std::vector<std::string> written(vocab.pieces.size());
  std::vector<std::string_view> pieces(vocab.pieces.size());
  constexpr std::string_view kMark = "▁";
  for (std::size_t id = 0; id < pieces.size(); ++id) {
    const std::string_view piece = vocab.pieces[id];
    const bool is_special =
        vocab.types[id] != PieceType::Normal || (piece.starts_with('[') && piece.ends_with(']'));
    if (is_special) {
      written[id] = piece;
      AddedToken token;
      token.id = static_cast<TokenId>(id);
      token.content = piece;
      token.is_special = true;
      if (vocab.types[id] == PieceType::Control || vocab.types[id] == PieceType::Unknown)
        parts.added.push_back(std::move(token));
    } else if (piece.starts_with(kMark)) {
      written[id] = piece.substr(kMark.size());
    } else {
      written[id] = "##" + std::string(piece);
    }
    pieces[id] = written[id];
  }
  parts.vocab = std::make_unique<Vocab>(pieces, std::span<const std::uint8_t>());
  WordPieceOptions options;
  options.unknown = parts.unknown;
  parts.model = std::make_unique<WordPiece>(*parts.vocab, std::move(options));
  using Step = NormalizeStep::Kind;
  std::vector<NormalizeStep> steps;
  for (const Step kind :
       {Step::CleanText, Step::SpaceChinese, Step::Nfd, Step::StripAccents, Step::Lowercase}) {
    steps.emplace_back().kind = kind;
  }
  parts.normalizer = Normalizer(std::move(steps));
  SplitRule spaces, punctuation;
  spaces.kind = SplitRule::Kind::Whitespace;
  spaces.behavior = SplitBehavior::Removed;
  punctuation.kind = SplitRule::Kind::Punctuation;
  parts.pre_tokenizer = PreTokenizer({std::move(spaces), std::move(punctuation)});
  parts.decode.style = DecodeRules::Style::WordPiece;
  parts.decode.mark = "##";
  parts.decode.cleans_up = true;
  TokenId cls = parts.bos, sep = kNoToken;
  if (Status status = read_id(metadata, "tokenizer.ggml.cls_token_id", cls); !status.ok())
    return status;
  // The misspelling is the format's.
  if (Status status = read_id(metadata, "tokenizer.ggml.seperator_token_id", sep); !status.ok())
    return status;
  if (cls != kNoToken) parts.prefix.push_back(cls);
  if (sep != kNoToken) parts.suffix.push_back(sep);
  return ok_status();
}

}  // namespace

Result<Tokenizer> from_gguf(const Metadata& metadata) {
  Result<std::string_view> model = metadata.text("tokenizer.ggml.model");
  if (!model.ok()) return model.error().in("GGUF tokenizer");
  Result<GgufVocab> vocab = read_vocab(metadata);
  if (!vocab.ok()) return vocab.error();
  auto parts = std::make_unique<TokenizerParts>();
  if (Status status = read_ids(metadata, *parts); !status.ok()) return status.error();
  Status made = ok_status();
  if (model.value() == "gpt2") {
    made = make_from_bpe(metadata, vocab.value(), *parts);
  } else if (model.value() == "llama") {
    made = make_from_spm(metadata, vocab.value(), /*is_unigram=*/false, *parts);
  } else if (model.value() == "t5") {
    made = make_from_spm(metadata, vocab.value(), /*is_unigram=*/true, *parts);
  } else if (model.value() == "bert") {
    made = make_from_wordpiece(metadata, vocab.value(), *parts);
  } else {
    return unsupported(
        fmt::format("the model {} (tokenizer.ggml.model)", base::quoted(model.value())));
  }
  if (!made.ok()) return made.error();
  if (Status status = read_templates(metadata, *parts); !status.ok()) return status.error();
  return finish(std::move(parts));
}

}  // namespace llorch::tokenizer
