#include "tokenizer/hf_components.h"

#include <fmt/format.h>

#include <utility>

#include "base/base64.h"
#include "base/utf8.h"
#include "tokenizer/unicode.h"

namespace llorch::tokenizer {
namespace {

Error unsupported(std::string_view section, std::string_view what) {
  return {ErrorCode::Unsupported,
          fmt::format("tokenizer.json: {} {} is not supported", section, what)};
}

Error malformed(std::string_view section, std::string_view expected) {
  return {ErrorCode::Corrupt, fmt::format("tokenizer.json: {}: expected {}", section, expected)};
}

const json::Value* find(const json::Object& object, std::string_view key) {
  const auto* found = object.if_contains({key.data(), key.size()});
  return found == nullptr || found->is_null() ? nullptr : found;
}

std::string text_or(const json::Object& object, std::string_view key, std::string_view fallback) {
  const json::Value* value = find(object, key);
  return std::string(value != nullptr && value->is_string() ? json::view(value->get_string())
                                                            : fallback);
}

bool flag_or(const json::Object& object, std::string_view key, bool fallback) {
  const json::Value* value = find(object, key);
  return value != nullptr && value->is_bool() ? value->get_bool() : fallback;
}

std::int64_t integer_or(const json::Object& object, std::string_view key, std::int64_t fallback) {
  const json::Value* value = find(object, key);
  return value != nullptr && value->is_int64() ? value->get_int64() : fallback;
}

// Each part is a pass over every text; real files have a handful.
constexpr std::size_t kMaxParts = 32;

// Calls `on_part` for the parts of a Sequence, or for the value itself.
template <class Function>
Status for_each_part(const json::Value& value, std::string_view section, std::string_view list,
                     std::size_t depth, Function&& on_part) {
  if (value.is_null()) return ok_status();
  if (!value.is_object()) return malformed(section, "an object or null");
  const json::Object& object = value.get_object();
  if (text_or(object, "type", "") != "Sequence") return on_part(object);
  if (depth == 0) return malformed(section, "sequences nested at most 4 deep");
  const json::Value* parts = find(object, list);
  if (parts == nullptr || !parts->is_array())
    return malformed(section, fmt::format("a list \"{}\"", list));
  if (parts->get_array().size() > kMaxParts)
    return malformed(section, fmt::format("at most {} parts in a sequence", kMaxParts));
  for (const json::Value& part : parts->get_array()) {
    if (Status status = for_each_part(part, section, list, depth - 1, on_part); !status.ok())
      return status;
  }
  return ok_status();
}
constexpr std::size_t kSequenceDepth = 4;

struct Pattern {
  std::string text;
  bool is_expression = false;
};

Result<Pattern> read_pattern(const json::Object& object, std::string_view section) {
  const json::Value* pattern = find(object, "pattern");
  if (pattern != nullptr && pattern->is_object()) {
    for (const bool is_expression : {false, true}) {
      const json::Value* text = find(pattern->get_object(), is_expression ? "Regex" : "String");
      if (text != nullptr && text->is_string()) {
        return Pattern{std::string(json::view(text->get_string())), is_expression};
      }
    }
  }
  return malformed(section, "a pattern {\"String\": …} or {\"Regex\": …}");
}

std::string quoted_expression(std::string_view literal) {
  std::string out;
  for (const char c : literal) {
    if (std::string_view("\\^$.[]|()?*+{}#-&~ ").find(c) != std::string_view::npos) out += '\\';
    out += c;
  }
  return out;
}

NormalizeStep make_step(NormalizeStep::Kind kind) {
  NormalizeStep step;
  step.kind = kind;
  return step;
}

void add_bert_steps(const json::Object& object, std::vector<NormalizeStep>& steps) {
  using Kind = NormalizeStep::Kind;
  const bool lowercases = flag_or(object, "lowercase", true);
  if (flag_or(object, "clean_text", true)) steps.push_back(make_step(Kind::CleanText));
  if (flag_or(object, "handle_chinese_chars", true)) steps.push_back(make_step(Kind::SpaceChinese));
  if (flag_or(object, "strip_accents", lowercases)) {
    steps.push_back(make_step(Kind::Nfd));
    steps.push_back(make_step(Kind::StripAccents));
  }
  if (lowercases) steps.push_back(make_step(Kind::Lowercase));
}

Status add_replace_step(const json::Object& object, std::vector<NormalizeStep>& steps) {
  Result<Pattern> pattern = read_pattern(object, "normalizer Replace");
  if (!pattern.ok()) return pattern.error();
  NormalizeStep step = make_step(NormalizeStep::Kind::Replace);
  step.content = text_or(object, "content", "");
  if (pattern->is_expression) {
    Result<Regex> regex = Regex::compile(pattern->text);
    if (!regex.ok()) return regex.error().in("tokenizer.json: normalizer Replace");
    step.regex = regex.take();
  } else if (pattern->text.empty()) {
    return malformed("normalizer Replace", "a pattern that is not empty");
  } else {
    step.pattern = pattern->text;
  }
  steps.push_back(std::move(step));
  return ok_status();
}

Status add_charsmap_step(const json::Object& object, std::vector<NormalizeStep>& steps) {
  const std::string encoded = text_or(object, "precompiled_charsmap", "");
  if (encoded.empty()) return ok_status();
  Result<std::string> bytes = decode_base64(encoded);
  if (!bytes.ok()) return bytes.error();
  Result<Charsmap> charsmap = Charsmap::parse(bytes.value());
  if (!charsmap.ok()) return charsmap.error().in("tokenizer.json: normalizer");
  NormalizeStep step = make_step(NormalizeStep::Kind::Charsmap);
  step.charsmap = charsmap.take();
  step.by_grapheme = true;
  steps.push_back(std::move(step));
  return ok_status();
}

Status add_normalizer(const json::Object& object, std::vector<NormalizeStep>& steps) {
  using Kind = NormalizeStep::Kind;
  static constexpr std::pair<std::string_view, Kind> kPlain[] = {
      {"NFC", Kind::Nfc},
      {"NFD", Kind::Nfd},
      {"NFKC", Kind::Nfkc},
      {"NFKD", Kind::Nfkd},
      {"Lowercase", Kind::Lowercase},
      {"StripAccents", Kind::StripMarks},
  };
  const std::string type = text_or(object, "type", "");
  for (const auto& [name, kind] : kPlain) {
    if (type != name) continue;
    steps.push_back(make_step(kind));
    return ok_status();
  }
  if (type == "Replace") return add_replace_step(object, steps);
  if (type == "Precompiled") return add_charsmap_step(object, steps);
  if (type == "BertNormalizer") {
    add_bert_steps(object, steps);
    return ok_status();
  }
  if (type == "Prepend") {
    steps.push_back(make_step(Kind::Prepend));
    steps.back().content = text_or(object, "prepend", "");
    return ok_status();
  }
  if (type == "Strip") {
    steps.push_back(make_step(Kind::Strip));
    steps.back().strips_left = flag_or(object, "strip_left", true);
    steps.back().strips_right = flag_or(object, "strip_right", true);
    return ok_status();
  }
  return unsupported("normalizer", fmt::format("\"{}\"", type));
}

Result<SplitBehavior> read_behavior(const json::Object& object, std::string_view fallback) {
  const std::string name = text_or(object, "behavior", fallback);
  if (name == "Removed") return SplitBehavior::Removed;
  if (name == "Isolated") return SplitBehavior::Isolated;
  if (name == "MergedWithPrevious") return SplitBehavior::MergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::MergedWithNext;
  if (name == "Contiguous") return SplitBehavior::Contiguous;
  return unsupported("split behavior", fmt::format("\"{}\"", name));
}

Result<SplitRule> read_metaspace(const json::Object& object) {
  SplitRule rule;
  rule.kind = SplitRule::Kind::Metaspace;
  rule.replacement = text_or(object, "replacement", "▁");
  // Files before 0.15 of the library say add_prefix_space instead of a scheme.
  const bool prefixes = flag_or(object, "add_prefix_space", true);
  const std::string scheme = text_or(object, "prepend_scheme", prefixes ? "always" : "never");
  if (scheme == "always") {
    rule.prepend = PrependScheme::Always;
  } else if (scheme == "first") {
    rule.prepend = PrependScheme::First;
  } else if (scheme != "never") {
    return unsupported("Metaspace prepend_scheme", fmt::format("\"{}\"", scheme));
  }
  rule.splits = flag_or(object, "split", true);
  if (rule.replacement.empty()) return malformed("Metaspace", "a replacement character");
  return rule;
}

Status add_split(const json::Object& object, std::vector<SplitRule>& rules) {
  Result<Pattern> pattern = read_pattern(object, "pre_tokenizer Split");
  if (!pattern.ok()) return pattern.error();
  Result<SplitBehavior> behavior = read_behavior(object, "Isolated");
  if (!behavior.ok()) return behavior.error();
  const std::string expression =
      pattern->is_expression ? pattern->text : quoted_expression(pattern->text);
  Result<SplitRule> rule =
      make_expression_rule(expression, behavior.value(), flag_or(object, "invert", false));
  if (!rule.ok()) return rule.error().in("tokenizer.json: pre_tokenizer Split");
  rules.push_back(rule.take());
  return ok_status();
}

void add_byte_level(const json::Object& object, PreTokenizerParts& parts) {
  if (flag_or(object, "add_prefix_space", true)) {
    parts.rules.emplace_back();
    parts.rules.back().kind = SplitRule::Kind::PrefixSpace;
  }
  if (flag_or(object, "use_regex", true)) parts.rules.emplace_back();  // GPT-2's expression
  parts.is_byte_level = true;
}

SplitRule make_class_rule(SplitRule::Kind kind, SplitBehavior behavior) {
  SplitRule rule;
  rule.kind = kind;
  rule.behavior = behavior;
  return rule;
}

Status add_pre_tokenizer(const json::Object& object, PreTokenizerParts& parts) {
  using Kind = SplitRule::Kind;
  const std::string type = text_or(object, "type", "");
  if (parts.is_byte_level)
    return unsupported("pre_tokenizer", fmt::format("\"{}\" behind \"ByteLevel\"", type));
  if (type == "ByteLevel") {
    add_byte_level(object, parts);
  } else if (type == "Split") {
    return add_split(object, parts.rules);
  } else if (type == "Metaspace") {
    Result<SplitRule> rule = read_metaspace(object);
    if (!rule.ok()) return rule.error();
    parts.rules.push_back(rule.take());
  } else if (type == "Digits") {
    const bool is_individual = flag_or(object, "individual_digits", false);
    parts.rules.push_back(make_class_rule(
        Kind::Digits, is_individual ? SplitBehavior::Isolated : SplitBehavior::Contiguous));
  } else if (type == "Punctuation") {
    Result<SplitBehavior> behavior = read_behavior(object, "Isolated");
    if (!behavior.ok()) return behavior.error();
    parts.rules.push_back(make_class_rule(Kind::Punctuation, behavior.value()));
  } else if (type == "WhitespaceSplit") {
    parts.rules.push_back(make_class_rule(Kind::Whitespace, SplitBehavior::Removed));
  } else if (type == "BertPreTokenizer") {
    parts.rules.push_back(make_class_rule(Kind::Whitespace, SplitBehavior::Removed));
    parts.rules.push_back(make_class_rule(Kind::Punctuation, SplitBehavior::Isolated));
  } else if (type == "Whitespace") {
    // Rust's \w, which is not Oniguruma's.
    constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D})";
    Result<SplitRule> rule = make_regex_rule(fmt::format("[{0}]+|[^{0}\\s]+", kWord),
                                             SplitBehavior::Removed, /*inverted=*/true);
    if (!rule.ok()) return rule.error();
    parts.rules.push_back(rule.take());
  } else {
    return unsupported("pre_tokenizer", fmt::format("\"{}\"", type));
  }
  return ok_status();
}

Result<TokenId> read_id(const json::Value* value, std::string_view section) {
  if (value == nullptr || !value->is_int64() || value->get_int64() < 0 ||
      value->get_int64() >= static_cast<std::int64_t>(kMaxVocabSize)) {
    return malformed(section, "a token id");
  }
  return static_cast<TokenId>(value->get_int64());
}

Status add_template_token(const json::Object& piece, const json::Object& known,
                          std::vector<TokenId>& out) {
  constexpr std::string_view kSection = "post_processor TemplateProcessing";
  const std::string name = text_or(piece, "id", "");
  const json::Value* entry = find(known, name);
  const json::Value* ids =
      entry != nullptr && entry->is_object() ? find(entry->get_object(), "ids") : nullptr;
  if (ids == nullptr || !ids->is_array())
    return malformed(kSection, fmt::format("ids of the token {}", base::quoted(name)));
  for (const json::Value& value : ids->get_array()) {
    Result<TokenId> id = read_id(&value, kSection);
    if (!id.ok()) return id.error();
    out.push_back(id.value());
  }
  return ok_status();
}

Status add_template(const json::Object& object, PostProcessor& processor) {
  constexpr std::string_view kSection = "post_processor TemplateProcessing";
  const json::Value* single = find(object, "single");
  const json::Value* known = find(object, "special_tokens");
  if (single == nullptr || !single->is_array() || known == nullptr || !known->is_object()) {
    return malformed(kSection, "\"single\" and \"special_tokens\"");
  }
  PostProcessor added;
  bool after_text = false;
  for (const json::Value& part : single->get_array()) {
    if (!part.is_object()) return malformed(kSection, "objects in \"single\"");
    const json::Value* token = find(part.get_object(), "SpecialToken");
    if (token == nullptr) {
      if (after_text || find(part.get_object(), "Sequence") == nullptr) {
        return unsupported(kSection, "with other than one sequence in \"single\"");
      }
      after_text = true;
      continue;
    }
    if (!token->is_object()) return malformed(kSection, "an object as SpecialToken");
    Status status = add_template_token(token->get_object(), known->get_object(),
                                       after_text ? added.suffix : added.prefix);
    if (!status.ok()) return status;
  }
  if (!after_text) return unsupported(kSection, "without a sequence in \"single\"");
  processor.prefix.insert(processor.prefix.begin(), added.prefix.begin(), added.prefix.end());
  processor.suffix.insert(processor.suffix.end(), added.suffix.begin(), added.suffix.end());
  return ok_status();
}

// Bert's and RoBERTa's "cls" and "sep": ["[CLS]", 101].
Status add_bert_processing(const json::Object& object, PostProcessor& processor) {
  for (const std::string_view name : {"cls", "sep"}) {
    const json::Value* pair = find(object, name);
    if (pair == nullptr || !pair->is_array() || pair->get_array().size() != 2) {
      return malformed("post_processor", fmt::format("\"{}\": [token, id]", name));
    }
    Result<TokenId> id = read_id(&pair->get_array()[1], "post_processor");
    if (!id.ok()) return id.error();
    if (name == "cls") {
      processor.prefix.insert(processor.prefix.begin(), id.value());
    } else {
      processor.suffix.push_back(id.value());
    }
  }
  return ok_status();
}

Status add_decoder(const json::Object& object, DecodeRules& rules, bool& is_fused,
                   std::size_t& count) {
  using Style = DecodeRules::Style;
  const std::string type = text_or(object, "type", "");
  ++count;
  if (type == "ByteLevel") {
    rules.style = Style::ByteLevel;
    return ok_status();
  }
  if (type == "Metaspace") {
    rules.style = Style::Metaspace;
    Result<SplitRule> rule = read_metaspace(object);
    if (!rule.ok()) return rule.error();
    rules.mark = rule->replacement;
    rules.drops_first_mark = rule->prepend != PrependScheme::Never;
    return ok_status();
  }
  if (type == "WordPiece") {
    rules.style = Style::WordPiece;
    rules.mark = text_or(object, "prefix", "##");
    rules.cleans_up = flag_or(object, "cleanup", true);
    return ok_status();
  }
  if (type == "Replace" && !is_fused && !rules.has_byte_pieces) {
    Result<Pattern> pattern = read_pattern(object, "decoder Replace");
    if (!pattern.ok()) return pattern.error();
    if (pattern->is_expression || pattern->text.empty())
      return unsupported("decoder Replace", "with an expression");
    rules.replacements.emplace_back(pattern->text, text_or(object, "content", ""));
  } else if (type == "ByteFallback" && !is_fused) {
    rules.has_byte_pieces = true;
  } else if (type == "Fuse") {
    is_fused = true;
  } else if (type == "Strip" && is_fused && text_or(object, "content", "") == " " &&
             integer_or(object, "stop", 0) == 0 && integer_or(object, "start", 0) >= 0) {
    rules.strip_left += static_cast<std::size_t>(integer_or(object, "start", 0));
  } else {
    return unsupported("decoder", fmt::format("\"{}\" ({})", type, json::serialize(object)));
  }
  rules.style = Style::Fused;
  return ok_status();
}

}  // namespace

Result<std::string> decode_base64(std::string_view text) {
  std::optional<std::string> bytes = base::from_base64(text);
  if (!bytes) return malformed("Precompiled", "base64");
  return *std::move(bytes);
}

Result<std::vector<NormalizeStep>> read_normalizer(const json::Value& value) {
  std::vector<NormalizeStep> steps;
  Status status =
      for_each_part(value, "normalizer", "normalizers", kSequenceDepth,
                    [&](const json::Object& part) { return add_normalizer(part, steps); });
  if (!status.ok()) return status.error();
  return steps;
}

Result<PreTokenizerParts> read_pre_tokenizer(const json::Value& value) {
  PreTokenizerParts parts;
  Status status =
      for_each_part(value, "pre_tokenizer", "pretokenizers", kSequenceDepth,
                    [&](const json::Object& part) { return add_pre_tokenizer(part, parts); });
  if (!status.ok()) return status.error();
  return parts;
}

Result<PostProcessor> read_post_processor(const json::Value& value) {
  PostProcessor processor;
  Status status = for_each_part(
      value, "post_processor", "processors", kSequenceDepth, [&](const json::Object& part) {
        const std::string type = text_or(part, "type", "");
        if (type == "ByteLevel") return ok_status();  // only moves offsets
        if (type == "TemplateProcessing") return add_template(part, processor);
        if (type == "BertProcessing" || type == "RobertaProcessing")
          return add_bert_processing(part, processor);
        return Status(unsupported("post_processor", fmt::format("\"{}\"", type)));
      });
  if (!status.ok()) return status.error();
  return processor;
}

Result<DecodeRules> read_decoder(const json::Value& value) {
  DecodeRules rules;
  rules.style = DecodeRules::Style::Joined;
  bool is_fused = false;
  bool is_mixed = false;
  std::size_t count = 0;
  Status status =
      for_each_part(value, "decoder", "decoders", kSequenceDepth, [&](const json::Object& part) {
        const DecodeRules::Style before = rules.style;
        Status added = add_decoder(part, rules, is_fused, count);
        is_mixed = is_mixed || (count > 1 && rules.style != before) ||
                   (count > 1 && rules.style != DecodeRules::Style::Fused);
        return added;
      });
  if (!status.ok()) return status.error();
  if (is_mixed) return unsupported("decoder", "sequence of different kinds");
  return rules;
}

}  // namespace llorch::tokenizer
