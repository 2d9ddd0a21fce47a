#include "tools/tokenizer_draft.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/utf8.h"
#include "tokenizer/gguf_pre.h"
#include "tokenizer/hf_components.h"
#include "tokenizer/json_file.h"
#include "tokenizer/pretokenize.h"

namespace llorch::tools {
namespace {

using tokenizer::AddedToken;
using tokenizer::flag_of;
using tokenizer::JsonFile;
using tokenizer::PieceType;
using tokenizer::text_of;
using tokenizer::VocabEntry;

// The parts of a Sequence, or the value itself; the loader has checked the form.
std::vector<const json::Object*> flatten(const json::Value& value, std::string_view list) {
  std::vector<const json::Object*> parts;
  if (!value.is_object()) return parts;
  const json::Object& object = value.get_object();
  if (text_of(object, "type") != "Sequence") return {&object};
  const auto* members = object.if_contains({list.data(), list.size()});
  if (members == nullptr || !members->is_array()) return parts;
  for (const json::Value& member : members->get_array()) {
    for (const json::Object* part : flatten(member, list)) parts.push_back(part);
  }
  return parts;
}

// "pattern": {"Regex": …} or {"String": …}; empty when there is none of this kind.
std::string pattern_of(const json::Object& object, std::string_view kind) {
  const auto* pattern = object.if_contains("pattern");
  return pattern != nullptr && pattern->is_object() ? text_of(pattern->get_object(), kind)
                                                    : std::string();
}

bool flag_or_true(const json::Object& object, std::string_view key) {
  return !object.contains({key.data(), key.size()}) || flag_of(object, key);
}

struct ByteLevelRules {
  std::vector<std::string> expressions;
  bool composes = false;
};

Result<ByteLevelRules> read_byte_level_rules(const JsonFile& file) {
  ByteLevelRules rules;
  for (const json::Object* part : flatten(file.member("normalizer"), "normalizers")) {
    const std::string type = text_of(*part, "type");
    if (type != "NFC" || rules.composes)
      return inexpressible(fmt::format("its normalizer {}", base::quoted(type)));
    rules.composes = true;
  }
  for (const json::Object* part : flatten(file.member("pre_tokenizer"), "pretokenizers")) {
    const std::string type = text_of(*part, "type");
    const std::string expression = pattern_of(*part, "Regex");
    if (type == "Split" && !expression.empty() && !flag_of(*part, "invert") &&
        text_of(*part, "behavior") == "Isolated") {
      rules.expressions.push_back(expression);
    } else if (type == "Digits") {
      rules.expressions.emplace_back(flag_of(*part, "individual_digits") ? R"(\p{N})"
                                                                         : R"(\p{N}+)");
    } else if (type == "ByteLevel") {
      if (flag_or_true(*part, "add_prefix_space"))
        return inexpressible("ByteLevel with add_prefix_space");
      if (flag_or_true(*part, "use_regex"))
        rules.expressions.emplace_back(tokenizer::kGpt2Expression);
    } else {
      return inexpressible(fmt::format("its pre_tokenizer {}", base::quoted(type)));
    }
  }
  return rules;
}

bool is_byte_level(const JsonFile& file) {
  const auto parts = flatten(file.member("pre_tokenizer"), "pretokenizers");
  return std::any_of(parts.begin(), parts.end(), [](const json::Object* part) {
    return text_of(*part, "type") == "ByteLevel";
  });
}

// ---- Pieces

bool is_byte_piece(std::string_view piece) {
  return piece.size() == 6 && piece.starts_with("<0x") && piece[5] == '>';
}

// Phi-3's special tokens take the white space behind them, which readers of GGUF know by the
// architecture.
bool reader_strips_right(std::string_view content, std::string_view architecture) {
  return architecture == "phi3" && content != "<unk>" && content != "<s>" &&
         content != "<|endoftext|>";
}

Status check_added(const AddedToken& token, std::string_view architecture) {
  const auto refuse = [&](std::string_view option) {
    return inexpressible(
        fmt::format("the added token {} has \"{}\"", base::quoted(token.content), option));
  };
  if (token.single_word) return refuse("single_word");
  if (token.strips_left) return refuse("lstrip");
  if (token.strips_right && !reader_strips_right(token.content, architecture))
    return refuse("rstrip");
  return ok_status();
}

// Every id up to the rows of the embedding has an entry; those without a piece are named as other
// writers do.
Status resize_pieces(std::size_t count, const ExportOptions& options, TokenizerDraft& draft) {
  const auto rows = static_cast<std::size_t>(options.vocab_size);
  if (rows != 0 && count > rows) {
    return inexpressible(
        fmt::format("it has {} ids, but the model's token embedding only {} rows", count, rows));
  }
  draft.pieces.resize(rows == 0 ? count : rows);
  draft.types.assign(draft.pieces.size(), PieceType::Unused);
  return ok_status();
}

void name_fillers(TokenizerDraft& draft) {
  for (std::size_t id = 0; id < draft.pieces.size(); ++id) {
    if (draft.pieces[id].empty()) draft.pieces[id] = fmt::format("[PAD{}]", id);
  }
}

Status draft_pieces(const JsonFile& file, const Tokenizer& source, const ExportOptions& options,
                    TokenizerDraft& draft) {
  Status resized = resize_pieces(static_cast<std::size_t>(source.vocab_size()), options, draft);
  if (!resized.ok()) return resized;
  for (const VocabEntry& entry : file.vocab) {
    const auto id = static_cast<std::size_t>(entry.id);
    draft.pieces[id] = entry.piece;
    draft.types[id] =
        draft.is_spm && is_byte_piece(entry.piece) ? PieceType::Byte : PieceType::Normal;
  }
  Result<std::vector<AddedToken>> added = tokenizer::read_added_tokens(file.member("added_tokens"));
  if (!added.ok()) return added.error();
  for (const AddedToken& token : added.value()) {
    if (Status sound = check_added(token, options.architecture); !sound.ok()) return sound;
    const auto id = static_cast<std::size_t>(token.id);
    draft.pieces[id] = token.content;
    draft.types[id] = token.is_special ? PieceType::Control : PieceType::UserDefined;
    if (draft.is_spm && source.unknown() == token.id) draft.types[id] = PieceType::Unknown;
  }
  name_fillers(draft);
  return ok_status();
}

// ---- The three kinds

Status draft_byte_level(const JsonFile& file, TokenizerDraft& draft) {
  Result<ByteLevelRules> rules = read_byte_level_rules(file);
  if (!rules.ok()) return rules.error();
  tokenizer::GgufPre wanted;
  wanted.expressions.assign(rules->expressions.begin(), rules->expressions.end());
  wanted.composes = rules->composes;
  wanted.ignore_merges = flag_of(file.model, "ignore_merges");
  draft.model = "gpt2";
  draft.pre = tokenizer::find_gguf_pre_name(wanted);
  if (draft.pre.empty()) {
    std::string shown;
    for (const std::string& expression : rules->expressions)
      shown += fmt::format(" {}", base::quoted(expression));
    return inexpressible(fmt::format(
        "no name of a pre-tokenizer (tokenizer.ggml.pre) stands for its rules:{}{}{}", shown,
        rules->composes ? " with NFC" : "", wanted.ignore_merges ? " with ignore_merges" : ""));
  }
  draft.merges.reserve(file.merges.size());
  for (const auto& [left, right] : file.merges)
    draft.merges.push_back(fmt::format("{} {}", left, right));
  return ok_status();
}

// SentencePiece's rules for spaces, as a tokenizer.json writes them: by a normalizer or by
// Metaspace.
Status read_space_rules(const JsonFile& file, TokenizerDraft& draft) {
  bool replaces = false, prepends = false;
  for (const json::Object* part : flatten(file.member("normalizer"), "normalizers")) {
    const std::string type = text_of(*part, "type");
    if (type == "Prepend" && text_of(*part, "prepend") == kSpaceMark && !replaces) {
      prepends = true;
    } else if (type == "Replace" && pattern_of(*part, "String") == " " &&
               text_of(*part, "content") == kSpaceMark) {
      replaces = true;
    } else if (type == "Precompiled" && draft.model == "t5" && !replaces && !prepends) {
      Result<std::string> charsmap =
          tokenizer::decode_base64(text_of(*part, "precompiled_charsmap"));
      if (!charsmap.ok()) return charsmap.error();
      draft.charsmap = charsmap.take();
    } else {
      return inexpressible(fmt::format("its normalizer {}", base::quoted(type)));
    }
  }
  for (const json::Object* part : flatten(file.member("pre_tokenizer"), "pretokenizers")) {
    const std::string type = text_of(*part, "type");
    if (type == "Metaspace" && !replaces &&
        (!part->contains("replacement") || text_of(*part, "replacement") == kSpaceMark)) {
      const std::string scheme = text_of(*part, "prepend_scheme");
      prepends = scheme.empty() ? flag_or_true(*part, "add_prefix_space") : scheme != "never";
      draft.spares_leading_space = prepends;
      replaces = true;
    } else if (type == "WhitespaceSplit" && draft.model == "t5" && !replaces) {
      draft.collapses_spaces = true;
    } else if (type == "Split" && replaces && pattern_of(*part, "String") == " ") {
      // After the replacement there is no space left to split at.
    } else {
      return inexpressible(fmt::format("its pre_tokenizer {}", base::quoted(type)));
    }
  }
  if (!replaces) return inexpressible("spaces are not written as \"▁\"");
  draft.adds_space_prefix = prepends;
  return ok_status();
}

struct PairHash {
  std::size_t operator()(const std::pair<std::string_view, std::string_view>& pair) const {
    return tokenizer::hash_bytes(pair.first) * 31 + tokenizer::hash_bytes(pair.second);
  }
};
using PairSet = std::unordered_set<std::pair<std::string_view, std::string_view>, PairHash>;

// With scores, any two neighbours that make a piece merge: the list must have all of these pairs.
Status check_merges_complete(const TokenizerDraft& draft, const PairSet& merges) {
  std::unordered_set<std::string_view> normal;
  for (std::size_t id = 0; id < draft.pieces.size(); ++id) {
    if (draft.types[id] == PieceType::Normal) normal.insert(draft.pieces[id]);
  }
  for (const std::string_view piece : normal) {
    for (std::size_t border = 1; border < piece.size(); ++border) {
      const std::string_view left = piece.substr(0, border), right = piece.substr(border);
      if (!normal.contains(left) || !normal.contains(right) || merges.contains({left, right}))
        continue;
      return inexpressible(fmt::format(
          "{} is a piece, but its merges do not make it from {} and {}, as scores would",
          base::quoted(piece), base::quoted(left), base::quoted(right)));
    }
  }
  return ok_status();
}

// SentencePiece merges by the score of what comes out; a list of merges that is ordered by that is
// the same.
Status score_by_merges(const JsonFile& file, TokenizerDraft& draft) {
  PairSet pairs;
  std::unordered_map<std::string, std::size_t> order;  // of the piece's first merge
  std::string joined, last;
  for (const auto& [left, right] : file.merges) {
    pairs.emplace(left, right);
    joined.assign(left).append(right);
    if (joined == last) continue;
    if (!order.emplace(joined, order.size()).second) {
      return inexpressible(
          fmt::format("its merges are not in the order of scores: {} is made in two places",
                      base::quoted(joined)));
    }
    last = joined;
  }
  if (Status complete = check_merges_complete(draft, pairs); !complete.ok()) return complete;
  draft.scores.assign(draft.pieces.size(), 0);
  for (std::size_t id = 0; id < draft.pieces.size(); ++id) {
    if (draft.types[id] != PieceType::Normal) continue;
    const auto found = order.find(draft.pieces[id]);
    draft.scores[id] = -static_cast<float>(found == order.end() ? order.size() : found->second);
  }
  return ok_status();
}

Status draft_spm(const JsonFile& file, const Tokenizer& source, const ExportOptions& options,
                 TokenizerDraft& draft) {
  draft.is_spm = true;
  draft.model = file.model_type() == "Unigram" ? "t5" : "llama";
  if (Status read = read_space_rules(file, draft); !read.ok()) return read;
  if (Status drafted = draft_pieces(file, source, options, draft); !drafted.ok()) return drafted;
  if (draft.model == "llama") return score_by_merges(file, draft);
  draft.scores.assign(draft.pieces.size(), 0);
  for (const VocabEntry& entry : file.vocab) {
    draft.scores[static_cast<std::size_t>(entry.id)] = static_cast<float>(entry.score);
  }
  return ok_status();
}

}  // namespace

Error inexpressible(std::string_view what) {
  return {ErrorCode::Unsupported, fmt::format("GGUF cannot hold this tokenizer: {}", what)};
}

Result<TokenizerDraft> draft_json(std::string_view tokenizer_json, const Tokenizer& source,
                                  const ExportOptions& options) {
  Result<std::unique_ptr<const JsonFile>> read = tokenizer::read_json_file(tokenizer_json);
  if (!read.ok()) return read.error();
  const JsonFile& file = *read.value();
  const std::string type = file.model_type();
  TokenizerDraft draft;
  Status drafted = ok_status();
  if (type == "BPE" && is_byte_level(file)) {
    drafted = draft_byte_level(file, draft);
    if (drafted.ok()) drafted = draft_pieces(file, source, options, draft);
  } else if (type == "BPE" || type == "Unigram") {
    drafted = draft_spm(file, source, options, draft);
  } else {
    return inexpressible(fmt::format("the model {} is not one that we write", base::quoted(type)));
  }
  if (!drafted.ok()) return drafted.error();
  return draft;
}

Result<TokenizerDraft> draft_sentencepiece(std::string_view model, const ExportOptions& options) {
  Result<tokenizer::SpmFile> file = tokenizer::read_sentencepiece(model);
  if (!file.ok()) return file.error();
  const tokenizer::SpmVocab& vocab = file->vocab;
  if (!vocab.escapes_spaces) return inexpressible("spaces are not written as \"▁\"");
  if (!vocab.is_unigram && !vocab.charsmap.empty())
    return inexpressible("BPE with a table of characters to replace (precompiled_charsmap)");
  TokenizerDraft draft;
  draft.is_spm = true;
  draft.model = vocab.is_unigram ? "t5" : "llama";
  if (Status sized = resize_pieces(vocab.pieces.size(), options, draft); !sized.ok())
    return sized.error();
  std::copy(vocab.pieces.begin(), vocab.pieces.end(), draft.pieces.begin());
  std::copy(vocab.types.begin(), vocab.types.end(), draft.types.begin());
  draft.scores = vocab.scores;
  draft.scores.resize(draft.pieces.size());
  name_fillers(draft);
  draft.adds_space_prefix = vocab.adds_space_prefix;
  draft.collapses_spaces = vocab.collapses_spaces;
  draft.charsmap = vocab.charsmap;
  return draft;
}

}  // namespace llorch::tools
