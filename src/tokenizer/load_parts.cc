#include "tokenizer/load_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/json.h"
#include "tokenizer/bpe.h"
#include "tokenizer/unicode.h"
#include "tokenizer/unigram.h"

namespace llorch::tokenizer {
namespace {

constexpr std::string_view kSpaceMark = "▁";

Error corrupt(std::string message) {
  return {ErrorCode::Corrupt, std::move(message)};
}

NormalizeStep make_step(NormalizeStep::Kind kind, std::string_view pattern,
                        std::string_view content) {
  NormalizeStep step;
  step.kind = kind;
  step.pattern = pattern;
  step.content = content;
  return step;
}

Result<Normalizer> make_spm_normalizer(const SpmVocab& source) {
  std::vector<NormalizeStep> steps;
  if (!source.charsmap.empty()) {
    Result<Charsmap> charsmap = Charsmap::parse(source.charsmap);
    if (!charsmap.ok()) return charsmap.error();
    steps.push_back(make_step(NormalizeStep::Kind::Charsmap, "", ""));
    steps.back().charsmap = charsmap.take();
  }
  if (source.collapses_spaces)
    steps.push_back(make_step(NormalizeStep::Kind::CollapseSpaces, "", ""));
  const std::string_view mark = source.escapes_spaces ? kSpaceMark : " ";
  if (source.adds_space_prefix) steps.push_back(make_step(NormalizeStep::Kind::Prepend, "", mark));
  if (source.escapes_spaces)
    steps.push_back(make_step(NormalizeStep::Kind::Replace, " ", kSpaceMark));
  return Normalizer(std::move(steps));
}

// Pieces that are found in text as they stand. Those with a space mark are left to the model: the
// text has none when it is searched.
bool is_added(std::string_view piece, PieceType type) {
  if (type == PieceType::Control || type == PieceType::Unknown) return true;
  return type == PieceType::UserDefined && piece.find(kSpaceMark) == std::string_view::npos;
}

const json::Value* find(const json::Object& object, std::string_view key) {
  const auto* found = object.if_contains({key.data(), key.size()});
  return found == nullptr || found->is_null() ? nullptr : found;
}

// "bos_token": "<s>" or {"content": "<s>", …}; kNoToken when absent or unknown to the vocabulary.
TokenId read_token(const json::Object& config, std::string_view key, const TokenizerParts& parts) {
  const json::Value* value = find(config, key);
  if (value != nullptr && value->is_object()) value = find(value->get_object(), "content");
  if (value == nullptr || !value->is_string()) return kNoToken;
  const std::string_view content = json::view(value->get_string());
  for (const AddedToken& token : parts.added) {
    if (token.content == content) return token.id;
  }
  return parts.vocab->id_of(content);
}

// The end tokens of generation_config.json or config.json. Ids outside the vocabulary are left out:
// models are padded and cut, and such an id can never be sampled.
Status read_end_ids(std::string_view text, std::string_view file, TokenizerParts& parts) {
  if (text.empty()) return ok_status();
  Result<json::Value> value = json::parse(text);
  if (!value.ok()) return value.error().in(file);
  if (!value->is_object()) return corrupt(fmt::format("{}: expected an object", file));
  const json::Value* ends = find(value->get_object(), "eos_token_id");
  if (ends == nullptr) return ok_status();
  const auto add = [&](const json::Value& id) {
    if (!id.is_int64() || id.get_int64() < 0) return false;
    if (id.get_int64() < static_cast<std::int64_t>(parts.vocab->size())) {
      parts.ends.push_back(static_cast<TokenId>(id.get_int64()));
    }
    return true;
  };
  const auto bad = [&] {
    return corrupt(fmt::format("{}: eos_token_id: expected an id or a list of ids", file));
  };
  if (!ends->is_array()) return add(*ends) ? ok_status() : Status(bad());
  for (const json::Value& id : ends->get_array()) {
    if (!add(id)) return bad();
  }
  return ok_status();
}

void read_chat_templates(const json::Object& config, TokenizerParts& parts) {
  const json::Value* templates = find(config, "chat_template");
  if (templates == nullptr) return;
  if (templates->is_string()) {
    parts.chat_templates.emplace_back("default", json::view(templates->get_string()));
  } else if (templates->is_array()) {
    for (const json::Value& entry : templates->get_array()) {
      if (!entry.is_object()) continue;
      const json::Value* name = find(entry.get_object(), "name");
      const json::Value* text = find(entry.get_object(), "template");
      if (name == nullptr || !name->is_string() || text == nullptr || !text->is_string()) continue;
      parts.chat_templates.emplace_back(json::view(name->get_string()),
                                        json::view(text->get_string()));
    }
  }
}

// Puts the token at this end of the list, or takes it away from there.
void ensure_token(std::vector<TokenId>& ids, TokenId token, bool wanted, bool at_front) {
  if (token == kNoToken) return;
  const bool is_there = !ids.empty() && (at_front ? ids.front() : ids.back()) == token;
  if (wanted == is_there) return;
  const auto place = at_front ? ids.begin() : ids.end() - (wanted ? 0 : 1);
  if (wanted) {
    ids.insert(place, token);
  } else {
    ids.erase(place);
  }
}

}  // namespace

Status check_pieces(std::span<const std::string_view> pieces) {
  if (pieces.empty()) return corrupt("the vocabulary is empty");
  if (pieces.size() > kMaxVocabSize) {
    return Error{ErrorCode::Unsupported,
                 fmt::format("a vocabulary of {} entries; at most {} are supported", pieces.size(),
                             kMaxVocabSize)};
  }
  for (std::size_t id = 0; id < pieces.size(); ++id) {
    if (pieces[id].size() > kMaxPieceBytes) {
      return Error{ErrorCode::Unsupported,
                   fmt::format("the piece of token {} has {} bytes; at most {} are supported", id,
                               pieces[id].size(), kMaxPieceBytes)};
    }
    if (find_invalid_utf8(pieces[id]) != pieces[id].size()) {
      return corrupt(fmt::format("the piece of token {} is not UTF-8", id));
    }
  }
  return ok_status();
}

std::array<TokenId, 256> find_byte_pieces(std::span<const std::string_view> pieces) {
  std::array<TokenId, 256> found{};
  found.fill(kNoToken);
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  for (std::size_t id = 0; id < pieces.size(); ++id) {
    const std::string_view piece = pieces[id];
    if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') continue;
    const std::size_t high = kDigits.find(piece[3]), low = kDigits.find(piece[4]);
    if (high < 16 && low < 16 && found[high * 16 + low] == kNoToken) {
      found[high * 16 + low] = static_cast<TokenId>(id);
    }
  }
  return found;
}

Status make_spm(const SpmVocab& source, TokenizerParts& parts) {
  if (Status status = check_pieces(source.pieces); !status.ok()) return status;
  const std::size_t count = source.pieces.size();
  if (source.scores.size() != count || source.types.size() != count) {
    return corrupt(fmt::format("a vocabulary of {} pieces with {} scores and {} types", count,
                               source.scores.size(), source.types.size()));
  }
  std::vector<std::uint8_t> is_listed(count), is_unused(count);
  bool has_unused = false;
  for (std::size_t id = 0; id < count; ++id) {
    if (!std::isfinite(source.scores[id]))
      return corrupt(fmt::format("the score of token {} is not finite", id));
    const PieceType type = source.types[id];
    if (is_added(source.pieces[id], type) && !source.pieces[id].empty()) {
      AddedToken token;
      token.id = static_cast<TokenId>(id);
      token.content = source.pieces[id];
      token.is_special = type != PieceType::UserDefined;
      parts.added.push_back(std::move(token));
    } else {
      is_listed[id] = type != PieceType::Byte;
    }
    is_unused[id] = type == PieceType::Unused;
    has_unused = has_unused || type == PieceType::Unused;
  }
  parts.vocab = std::make_unique<Vocab>(source.pieces, is_listed);
  if (source.is_unigram) {
    const std::vector<double> scores(source.scores.begin(), source.scores.end());
    parts.model = std::make_unique<Unigram>(
        *parts.vocab, scores,
        UnigramOptions{parts.unknown, source.has_byte_fallback, find_byte_pieces(source.pieces)});
  } else {
    BpeOptions options;
    options.byte_fallback = source.has_byte_fallback;
    options.fuse_unknown = true;
    options.unknown = parts.unknown;
    options.byte_pieces = find_byte_pieces(source.pieces);
    options.falls_back_late = true;
    if (has_unused) options.is_unused = std::move(is_unused);
    // Every way to cut each piece in two is looked up: quadratic in its length. Real vocabularies
    // come to a few hundred million.
    constexpr std::uint64_t kMaxWork = std::uint64_t{1} << 33;
    std::uint64_t work = 0;
    for (const std::string_view piece : source.pieces)
      work += std::uint64_t{piece.size()} * piece.size();
    if (work > kMaxWork) {
      return Error{ErrorCode::Corrupt,
                   "the vocabulary's pieces are too long, taken together, to find their merges; "
                   "is this a tokenizer's file?"};
    }
    const std::vector<Merge> merges = merges_from_scores(*parts.vocab, source.scores, options);
    parts.model = std::make_unique<Bpe>(*parts.vocab, merges, std::move(options));
  }
  Result<Normalizer> normalizer = make_spm_normalizer(source);
  if (!normalizer.ok()) return normalizer.error();
  parts.normalizer = normalizer.take();
  parts.decode.style = DecodeRules::Style::Fused;
  parts.decode.replacements = {{std::string(kSpaceMark), " "}};
  parts.decode.has_byte_pieces = source.has_byte_fallback;
  parts.decode.strip_left = source.adds_space_prefix ? 1 : 0;
  return ok_status();
}

Status read_side_files(const HuggingFaceFiles& files, TokenizerParts& parts) {
  if (!files.tokenizer_config.empty()) {
    Result<json::Value> value = json::parse(files.tokenizer_config);
    if (!value.ok()) return value.error().in("tokenizer_config.json");
    if (!value->is_object()) return corrupt("tokenizer_config.json: expected an object");
    const json::Object& config = value->get_object();
    const auto set = [&](TokenId& id, std::string_view key) {
      const TokenId found = read_token(config, key, parts);
      if (found != kNoToken) id = found;
    };
    set(parts.bos, "bos_token");
    set(parts.eos, "eos_token");
    set(parts.unknown, "unk_token");
    set(parts.padding, "pad_token");
    read_chat_templates(config, parts);
    const json::Value* add_bos = find(config, "add_bos_token");
    const json::Value* add_eos = find(config, "add_eos_token");
    if (add_bos != nullptr && add_bos->is_bool())
      ensure_token(parts.prefix, parts.bos, add_bos->get_bool(), true);
    if (add_eos != nullptr && add_eos->is_bool())
      ensure_token(parts.suffix, parts.eos, add_eos->get_bool(), false);
  }
  if (!files.chat_template.empty()) {
    std::erase_if(parts.chat_templates, [](const auto& entry) { return entry.first == "default"; });
    parts.chat_templates.emplace_back("default", files.chat_template);
  }
  if (Status status = read_end_ids(files.generation_config, "generation_config.json", parts);
      !status.ok())
    return status;
  return read_end_ids(files.config, "config.json", parts);
}

Result<Tokenizer> finish(std::unique_ptr<TokenizerParts> parts) {
  if (Status status = finish_parts(*parts); !status.ok()) return status.error();
  return Tokenizer(std::unique_ptr<const TokenizerParts>(std::move(parts)));
}

}  // namespace llorch::tokenizer
