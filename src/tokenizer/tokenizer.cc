#include "tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tokenizer/tokenizer_parts.h"
#include "tokenizer/unicode.h"
#include "tokenizer/word_cache.h"

namespace llorch::tokenizer {
namespace {

constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;
constexpr std::size_t kWorthCaching =
    4096;  // bytes of text from which a word cache pays for its memory

// Names under which models carry the token that ends a turn or a text, when their files do not say
// so.
constexpr std::string_view kEndNames[] = {
    "<|eot_id|>",      "<|im_end|>", "<|end|>",    "<end_of_turn>",  "<|endoftext|>",
    "<|end_of_text|>", "<|eom_id|>", "<|return|>", "<|call|>",       "<EOT>",
    "_<EOT>",          "<|EOT|>",    "<turn|>",    "<|im_sep_end|>", "<｜end▁of▁sentence｜>",
};

std::optional<TokenId> optional_id(TokenId id) {
  return id == kNoToken ? std::nullopt : std::optional(id);
}

class EncodingSink : public WordSink {
 public:
  EncodingSink(const Model& model, Scratch& scratch, std::vector<TokenId>& out)
      : model_(model), scratch_(scratch), out_(out) {}
  void word(std::string_view word) override {
    if (scratch_.spend(8 + word.size())) model_.encode(word, scratch_, out_);
  }
  void added_token(TokenId id) { out_.push_back(id); }

 private:
  const Model& model_;
  Scratch& scratch_;
  std::vector<TokenId>& out_;
};

// Stands for control tokens while a text is normalized, which moves everything: a noncharacter that
// the text does not have. Empty when it has them all.
std::string free_placeholder(std::string_view text) {
  for (char32_t c = 0xFDD0; c <= 0xFDEF; ++c) {
    std::string placeholder;
    append_utf8(placeholder, c);
    if (text.find(placeholder) == std::string_view::npos) return placeholder;
  }
  return "";
}

// A text with its control tokens taken out, and how to find them again.
struct HeldTokens {
  std::string text;
  std::string placeholder;
  std::vector<std::size_t> tokens;  // in the order of their places
};

HeldTokens hold_tokens(const TokenizerParts& parts, std::string_view raw, const TokenZones& zones,
                       std::size_t offset, EncodeBudget& budget) {
  HeldTokens held;
  held.placeholder = free_placeholder(raw);
  if (held.placeholder.empty()) {
    held.text = raw;
    return held;
  }
  std::size_t done = 0;
  const auto allowed = [&](const AddedTokenMatcher::Found& found) {
    return zones.allows(parts.added[found.token_index], offset + found.begin, offset + found.end);
  };
  for (auto found = parts.control_matcher.find(raw, 0, budget, allowed); found.ok;
       found = parts.control_matcher.find(raw, done, budget, allowed)) {
    held.text += raw.substr(done, found.begin - done);
    held.text += held.placeholder;
    held.tokens.push_back(found.token_index);
    done = found.end;
  }
  held.text += raw.substr(done);
  return held;
}

// Cuts normalized text at the tokens that were held and at those that users may write.
std::vector<Segment> cut_at_held(const TokenizerParts& parts, std::string_view text,
                                 const HeldTokens& held, EncodeBudget& budget) {
  std::size_t next = 0;
  // Each is looked for again only once it lies behind.
  std::size_t placeholder = text.find(held.placeholder);
  AddedTokenMatcher::Found ordinary;
  bool is_known = false;
  const auto is_ordinary = [&](const AddedTokenMatcher::Found& found) {
    return !parts.added[found.token_index].is_control;
  };
  return cut_at_found(
      [&](std::string_view all, std::size_t from) {
        if (!is_known || (ordinary.ok && ordinary.begin < from))
          ordinary = parts.normalized_matcher.find(all, from, budget, is_ordinary);
        is_known = true;
        if (placeholder != std::string_view::npos && placeholder < from)
          placeholder = all.find(held.placeholder, from);
        const bool has_held = next < held.tokens.size() && placeholder != std::string_view::npos;
        if (!has_held || (ordinary.ok && ordinary.begin < placeholder)) return ordinary;
        return AddedTokenMatcher::Found{placeholder, placeholder + held.placeholder.size(),
                                        held.tokens[next++], true};
      },
      parts.added, text);
}

// A stretch of raw text between added tokens, `offset` bytes into the whole text.
Status encode_stretch(const TokenizerParts& parts, std::string_view raw, std::size_t offset,
                      const TokenZones& zones, EncodeBudget& budget, EncodingSink& sink) {
  const bool is_first = offset == 0;
  if (parts.normalizer.is_identity() && parts.normalized_matcher.empty()) {
    return parts.pre_tokenizer.split(raw, is_first, budget, sink);
  }
  const bool holds = zones.has_spans() && !parts.control_matcher.empty();
  const HeldTokens held = holds ? hold_tokens(parts, raw, zones, offset, budget) : HeldTokens();
  Result<std::string> normalized = parts.normalizer.apply(holds ? held.text : raw, budget);
  if (!normalized.ok()) return normalized.error();
  const std::string_view text = normalized.value();
  for (const Segment& segment :
       holds ? cut_at_held(parts, text, held, budget)
             : cut_at_tokens(parts.normalized_matcher, parts.added, text, zones, budget)) {
    if (segment.is_token) {
      sink.added_token(parts.added[segment.token_index].id);
      continue;
    }
    const bool starts_text = is_first && segment.text.data() == text.data();
    if (Status status = parts.pre_tokenizer.split(segment.text, starts_text, budget, sink);
        !status.ok())
      return status;
  }
  return ok_status();
}

Status check_id(const TokenizerParts& parts, TokenId id, std::string_view what) {
  if (id == kNoToken || parts.vocab->contains(id)) return ok_status();
  return Error{ErrorCode::Corrupt,
               fmt::format("the {} token has id {}, but the vocabulary has {} entries", what, id,
                           parts.vocab->size())};
}

}  // namespace

Status finish_parts(TokenizerParts& parts) {
  const std::pair<std::string_view, TokenId> named[] = {{"beginning-of-text", parts.bos},
                                                        {"end-of-text", parts.eos},
                                                        {"unknown", parts.unknown},
                                                        {"padding", parts.padding}};
  for (const auto& [what, id] : named) {
    if (Status status = check_id(parts, id, what); !status.ok()) return status;
  }
  for (const std::vector<TokenId>* list : {&parts.prefix, &parts.suffix, &parts.ends}) {
    for (const TokenId id : *list) {
      if (Status status = check_id(parts, id, "special"); !status.ok()) return status;
    }
  }
  mark_control_tokens(parts.added, parts.chat_templates);
  parts.is_special.assign(parts.vocab->size(), false);
  parts.is_control.assign(parts.vocab->size(), false);
  std::size_t added_bytes = 0;
  for (const AddedToken& token : parts.added) added_bytes += token.content.size();
  EncodeBudget budget(added_bytes);
  for (std::size_t i = 0; i < parts.added.size(); ++i) {
    const AddedToken& token = parts.added[i];
    if (Status status = check_id(parts, token.id, token.content); !status.ok()) return status;
    if (token.is_special) parts.is_special[static_cast<std::size_t>(token.id)] = true;
    if (token.is_control) parts.is_control[static_cast<std::size_t>(token.id)] = true;
    if (std::find(std::begin(kEndNames), std::end(kEndNames), token.content) !=
        std::end(kEndNames)) {
      parts.ends.push_back(token.id);
    }
    if (!token.is_normalized) {
      parts.raw_matcher.add(token.content, i);
      continue;
    }
    Result<std::string> content = parts.normalizer.apply(token.content, budget);
    if (!content.ok()) return content.error();
    if (!content->empty()) parts.normalized_matcher.add(content.value(), i);
    if (!content->empty() && token.is_control) parts.control_matcher.add(token.content, i);
  }
  if (parts.eos != kNoToken) parts.ends.push_back(parts.eos);
  std::sort(parts.ends.begin(), parts.ends.end());
  parts.ends.erase(std::unique(parts.ends.begin(), parts.ends.end()), parts.ends.end());
  return ok_status();
}

Tokenizer::Tokenizer(std::unique_ptr<const TokenizerParts> parts) : parts_(std::move(parts)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text,
                                               const EncodeOptions& options) const {
  return encode_in(text, options.parse_special ? TokenZones::everywhere() : TokenZones::nowhere(),
                   options);
}

Result<std::vector<TokenId>> Tokenizer::encode(const MarkedPrompt& prompt,
                                               const EncodeOptions& options) const {
  return encode_in(prompt.text, TokenZones::only_in(prompt.template_spans), options);
}

Result<std::vector<TokenId>> Tokenizer::encode_in(std::string_view text, const TokenZones& zones,
                                                  const EncodeOptions& options) const {
  if (text.size() > kMaxTextBytes) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("text of {} bytes; at most {} can be tokenized at once", text.size(),
                             kMaxTextBytes)};
  }
  if (const std::size_t bad = find_invalid_utf8(text); bad != text.size()) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("the text is not UTF-8 at byte {} (0x{:02X})", bad,
                             static_cast<std::uint8_t>(text[bad]))};
  }
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 3 + 8);
  if (options.add_special) ids = parts_->prefix;
  EncodeBudget budget(text.size(), options.limit);
  Scratch scratch;
  scratch.budget = &budget;
  if (text.size() >= kWorthCaching) scratch.cache = std::make_unique<WordCache>();
  EncodingSink sink(*parts_->model, scratch, ids);
  for (const Segment& segment :
       cut_at_tokens(parts_->raw_matcher, parts_->added, text, zones, budget)) {
    if (segment.is_token) {
      sink.added_token(parts_->added[segment.token_index].id);
      continue;
    }
    const auto offset = static_cast<std::size_t>(segment.text.data() - text.data());
    Status status = encode_stretch(*parts_, segment.text, offset, zones, budget, sink);
    if (!status.ok()) return status.error();
    if (budget.is_spent()) break;
  }
  if (budget.is_spent()) return budget.status().error();
  if (options.add_special) ids.insert(ids.end(), parts_->suffix.begin(), parts_->suffix.end());
  return ids;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, DecodeOptions options) const {
  std::string text;
  TextReader reader(*parts_->vocab, parts_->decode);
  for (const TokenId id : ids) {
    if (options.keep_special || !is_special(id)) reader.add(id, text);
  }
  reader.finish(text);
  return text;
}

bool is_filler(std::string_view piece, TokenId id) {
  return piece.starts_with("[PAD") && piece == fmt::format("[PAD{}]", id);
}

std::int32_t Tokenizer::vocab_size() const {
  return static_cast<std::int32_t>(parts_->vocab->size());
}

std::int32_t Tokenizer::num_used_ids() const {
  TokenId end = vocab_size();
  while (end > 0 && (piece(end - 1).empty() || is_filler(piece(end - 1), end - 1))) --end;
  return end;
}

std::string_view Tokenizer::piece(TokenId id) const {
  return parts_->vocab->contains(id) ? parts_->vocab->piece(id) : std::string_view();
}

std::optional<TokenId> Tokenizer::find_piece(std::string_view piece) const {
  for (const AddedToken& token : parts_->added) {
    if (token.content == piece) return token.id;
  }
  return optional_id(parts_->vocab->id_of(piece));
}

bool Tokenizer::is_special(TokenId id) const {
  return parts_->vocab->contains(id) && parts_->is_special[static_cast<std::size_t>(id)];
}

bool Tokenizer::is_control(TokenId id) const {
  return parts_->vocab->contains(id) && parts_->is_control[static_cast<std::size_t>(id)];
}

std::optional<TokenId> Tokenizer::bos() const {
  return optional_id(parts_->bos);
}
std::optional<TokenId> Tokenizer::eos() const {
  return optional_id(parts_->eos);
}
std::optional<TokenId> Tokenizer::unknown() const {
  return optional_id(parts_->unknown);
}
std::optional<TokenId> Tokenizer::padding() const {
  return optional_id(parts_->padding);
}
std::span<const TokenId> Tokenizer::end_ids() const {
  return parts_->ends;
}
std::span<const TokenId> Tokenizer::prefix_ids() const {
  return parts_->prefix;
}
std::span<const TokenId> Tokenizer::suffix_ids() const {
  return parts_->suffix;
}

bool Tokenizer::is_end(TokenId id) const {
  return std::binary_search(parts_->ends.begin(), parts_->ends.end(), id);
}

std::span<const std::pair<std::string, std::string>> Tokenizer::chat_templates() const {
  return parts_->chat_templates;
}

const std::string* Tokenizer::chat_template(std::string_view name) const {
  for (const auto& [known, text] : parts_->chat_templates) {
    if (known == name) return &text;
  }
  return nullptr;
}

}  // namespace llorch::tokenizer
