#include "tokenizer/export_gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/utf8.h"
#include "tokenizer/gguf_pre.h"
#include "tokenizer/hf_components.h"
#include "tokenizer/json_file.h"
#include "tokenizer/load_parts.h"
#include "tokenizer/pretokenize.h"

namespace llorch::tokenizer {
namespace {

using formats::ElementType;
using formats::Metadata;

constexpr std::string_view kMark = "▁";

Error inexpressible(std::string_view what) {
  return {ErrorCode::Unsupported, fmt::format("GGUF cannot hold this tokenizer: {}", what)};
}

// What goes into the file, apart from what a Tokenizer tells.
struct Draft {
  std::string model;  // tokenizer.ggml.model
  std::string pre;    // byte-level models only
  std::vector<std::string> pieces;
  std::vector<PieceType> types;  // as many
  std::vector<float> scores;     // as many, or none
  std::vector<std::string> merges;
  bool is_spm = false;  // the next three are written
  bool adds_space_prefix = true;
  bool collapses_spaces = false;
  // The source puts no space before a text that starts with one (Metaspace); readers of GGUF always
  // do.
  bool spares_leading_space = false;
  std::string charsmap;
  TokenId eot = kNoToken, eom = kNoToken;
};

// ---- Rules of a tokenizer.json

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
      if (flag_or_true(*part, "use_regex")) rules.expressions.emplace_back(kGpt2Expression);
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
Status resize_pieces(std::size_t count, const ExportOptions& options, Draft& draft) {
  const auto rows = static_cast<std::size_t>(options.vocab_size);
  if (rows != 0 && count > rows) {
    return inexpressible(
        fmt::format("it has {} ids, but the model's token embedding only {} rows", count, rows));
  }
  draft.pieces.resize(rows == 0 ? count : rows);
  draft.types.assign(draft.pieces.size(), PieceType::Unused);
  return ok_status();
}

void name_fillers(Draft& draft) {
  for (std::size_t id = 0; id < draft.pieces.size(); ++id) {
    if (draft.pieces[id].empty()) draft.pieces[id] = fmt::format("[PAD{}]", id);
  }
}

Status draft_pieces(const JsonFile& file, const Tokenizer& source, const ExportOptions& options,
                    Draft& draft) {
  Status resized = resize_pieces(static_cast<std::size_t>(source.vocab_size()), options, draft);
  if (!resized.ok()) return resized;
  for (const VocabEntry& entry : file.vocab) {
    const auto id = static_cast<std::size_t>(entry.id);
    draft.pieces[id] = entry.piece;
    draft.types[id] =
        draft.is_spm && is_byte_piece(entry.piece) ? PieceType::Byte : PieceType::Normal;
  }
  Result<std::vector<AddedToken>> added = read_added_tokens(file.member("added_tokens"));
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

Status draft_byte_level(const JsonFile& file, Draft& draft) {
  Result<ByteLevelRules> rules = read_byte_level_rules(file);
  if (!rules.ok()) return rules.error();
  GgufPre wanted;
  wanted.expressions.assign(rules->expressions.begin(), rules->expressions.end());
  wanted.composes = rules->composes;
  wanted.ignore_merges = flag_of(file.model, "ignore_merges");
  draft.model = "gpt2";
  draft.pre = find_gguf_pre_name(wanted);
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
Status read_space_rules(const JsonFile& file, Draft& draft) {
  bool replaces = false, prepends = false;
  for (const json::Object* part : flatten(file.member("normalizer"), "normalizers")) {
    const std::string type = text_of(*part, "type");
    if (type == "Prepend" && text_of(*part, "prepend") == kMark && !replaces) {
      prepends = true;
    } else if (type == "Replace" && pattern_of(*part, "String") == " " &&
               text_of(*part, "content") == kMark) {
      replaces = true;
    } else if (type == "Precompiled" && draft.model == "t5" && !replaces && !prepends) {
      Result<std::string> charsmap = decode_base64(text_of(*part, "precompiled_charsmap"));
      if (!charsmap.ok()) return charsmap.error();
      draft.charsmap = charsmap.take();
    } else {
      return inexpressible(fmt::format("its normalizer {}", base::quoted(type)));
    }
  }
  for (const json::Object* part : flatten(file.member("pre_tokenizer"), "pretokenizers")) {
    const std::string type = text_of(*part, "type");
    if (type == "Metaspace" && !replaces &&
        (!part->contains("replacement") || text_of(*part, "replacement") == kMark)) {
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
    return hash_bytes(pair.first) * 31 + hash_bytes(pair.second);
  }
};
using PairSet = std::unordered_set<std::pair<std::string_view, std::string_view>, PairHash>;

// With scores, any two neighbours that make a piece merge: the list must have all of these pairs.
Status check_merges_complete(const Draft& draft, const PairSet& merges) {
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
Status score_by_merges(const JsonFile& file, Draft& draft) {
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
                 Draft& draft) {
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

Result<Draft> draft_json(std::string_view tokenizer_json, const Tokenizer& source,
                         const ExportOptions& options) {
  Result<std::unique_ptr<const JsonFile>> read = read_json_file(tokenizer_json);
  if (!read.ok()) return read.error();
  const JsonFile& file = *read.value();
  const std::string type = file.model_type();
  Draft draft;
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

Result<Draft> draft_sentencepiece(std::string_view model, const ExportOptions& options) {
  Result<SpmFile> file = read_sentencepiece(model);
  if (!file.ok()) return file.error();
  const SpmVocab& vocab = file->vocab;
  if (!vocab.escapes_spaces) return inexpressible("spaces are not written as \"▁\"");
  if (!vocab.is_unigram && !vocab.charsmap.empty())
    return inexpressible("BPE with a table of characters to replace (precompiled_charsmap)");
  Draft draft;
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

// ---- Metadata

// Keys as they are added; a key that is there twice is a mistake of this file.
class KeyWriter {
 public:
  explicit KeyWriter(Metadata& metadata) : metadata_(metadata) {}

  void text(std::string_view key, std::string_view value) { put(key, std::string(value), {}); }
  void flag(std::string_view key, bool value) { put(key, value, ElementType::Bool); }
  void id(std::string_view key, std::optional<TokenId> value) {
    if (!value || *value == kNoToken) return;
    put(key, static_cast<std::uint64_t>(*value), ElementType::U32);
  }
  template <class T>
  void numbers(std::string_view key, ElementType type, const std::vector<T>& values) {
    std::vector<std::byte> bytes(values.size() * sizeof(T));
    if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    array(key, type, values.size(), std::move(bytes));
  }
  void texts(std::string_view key, const std::vector<std::string>& values) {
    std::vector<std::byte> bytes;
    for (const std::string& value : values) {
      const std::uint64_t size = value.size();
      const auto head = std::as_bytes(std::span(&size, 1));
      const auto content = std::as_bytes(std::span(value));
      bytes.insert(bytes.end(), head.begin(), head.end());
      bytes.insert(bytes.end(), content.begin(), content.end());
    }
    array(key, ElementType::String, values.size(), std::move(bytes));
  }

 private:
  void array(std::string_view key, ElementType type, std::size_t count,
             std::vector<std::byte> bytes) {
    put(key, formats::ArrayView{type, count, metadata_.adopt(std::move(bytes))},
        ElementType::Array);
  }
  void put(std::string_view key, formats::Value value, std::optional<ElementType> stored) {
    const Status added = metadata_.add(std::string(key), std::move(value), stored);
    CHECK(added.ok(), added.error().message);
  }

  Metadata& metadata_;
};

// The token that is put around texts must be the one GGUF means by its name.
Result<std::optional<TokenId>> around_token(std::span<const TokenId> ids,
                                            std::optional<TokenId> named, std::string_view what) {
  if (ids.empty()) return named;
  if (ids.size() > 1 || (named && *named != ids.front())) {
    return inexpressible(fmt::format("{} around a text other than one {} token", ids.size(), what));
  }
  return std::optional<TokenId>(ids.front());
}

Result<Metadata> make_metadata(const Draft& draft, const Tokenizer& source,
                               std::string_view architecture) {
  const auto bos = around_token(source.prefix_ids(), source.bos(), "beginning-of-text");
  if (!bos.ok()) return bos.error();
  const auto eos = around_token(source.suffix_ids(), source.eos(), "end-of-text");
  if (!eos.ok()) return eos.error();
  std::optional<TokenId> end = eos.value();
  if (!end && !source.end_ids().empty()) end = source.end_ids().front();

  Metadata metadata;
  KeyWriter keys(metadata);
  keys.text("general.architecture", architecture);
  keys.text("tokenizer.ggml.model", draft.model);
  if (!draft.pre.empty()) keys.text("tokenizer.ggml.pre", draft.pre);
  if (draft.is_spm) keys.text("tokenizer.ggml.pre", "default");
  keys.texts("tokenizer.ggml.tokens", draft.pieces);
  std::vector<std::int32_t> types;
  for (const PieceType type : draft.types) types.push_back(static_cast<std::int32_t>(type));
  keys.numbers("tokenizer.ggml.token_type", ElementType::I32, types);
  if (draft.is_spm) keys.numbers("tokenizer.ggml.scores", ElementType::F32, draft.scores);
  if (!draft.is_spm) keys.texts("tokenizer.ggml.merges", draft.merges);
  keys.id("tokenizer.ggml.bos_token_id", bos.value());
  keys.id("tokenizer.ggml.eos_token_id", end);
  keys.id("tokenizer.ggml.unknown_token_id", source.unknown());
  keys.id("tokenizer.ggml.padding_token_id", source.padding());
  keys.id("tokenizer.ggml.eot_token_id", draft.eot);
  keys.id("tokenizer.ggml.eom_token_id", draft.eom);
  keys.flag("tokenizer.ggml.add_bos_token", !source.prefix_ids().empty());
  keys.flag("tokenizer.ggml.add_eos_token", !source.suffix_ids().empty());
  if (draft.is_spm) {
    keys.flag("tokenizer.ggml.add_space_prefix", draft.adds_space_prefix);
    keys.flag("tokenizer.ggml.remove_extra_whitespaces", draft.collapses_spaces);
  }
  if (!draft.charsmap.empty()) {
    const std::vector<char> bytes(draft.charsmap.begin(), draft.charsmap.end());
    keys.numbers("tokenizer.ggml.precompiled_charsmap", ElementType::U8, bytes);
  }
  for (const auto& [name, text] : source.chat_templates()) {
    const std::string suffix = name == "default" ? "" : "." + name;
    keys.text("tokenizer.chat_template" + suffix, text);
  }
  return metadata;
}

// ---- Reading back

constexpr std::array kTexts = {
    std::string_view("Hello, world! It's 1234567 o'clock; they'll say \"we've\" DON'T."),
    std::string_view("  two spaces,   three,    four and a tab\tand\n\nnewlines\r\n \n end "),
    std::string_view("ein Ärger über Straße, naïve café, Ünïcödé, ½ ² Ⅷ"),
    std::string_view("e\u0301 (decomposed), \u00e9 (composed), ﬁ ligature, ＦＵＬＬ"),
    std::string_view("日本語のテキストと中文，한국어 텍스트。"),
    std::string_view("Привет, мир! שלום עולם مرحبا بالعالم नमस्ते ไทย"),
    std::string_view("👋🏽 👨‍👩‍👧‍👦 🇩🇪 \U0001F600\U0001F600"),
    std::string_view("def f(x):\n    return x**2  # comment\n\n\tif (a&&b) {c[0]+=1;}"),
    std::string_view("https://example.org/a?b=c&d=%20 user@example.com 3.14159e-10 0xDEADBEEF"),
    std::string_view("aaaaaaaaaaaaaaaaaaaaaaaaa ---------------- ======== ...... !!!!!!"),
    std::string_view(" leading"),
    std::string_view("x"),
    std::string_view(" "),
    std::string_view("\n"),
    std::string_view("▁ the mark itself ▁▁"),
    std::string_view("a\u00a0b\u200bc\u3000d\u2028e"),
};

std::string shown_ids(std::span<const TokenId> ids) {
  std::string out;
  for (std::size_t i = 0; i < ids.size() && i < 12; ++i) out += fmt::format(" {}", ids[i]);
  return out;
}

// The first text that the two encode differently, as a sentence; empty when there is none.
Result<std::string> find_difference(const Tokenizer& source, const Tokenizer& back,
                                    std::string_view text, EncodeOptions options) {
  Result<std::vector<TokenId>> before = source.encode(text, options);
  if (!before.ok()) return before.error();
  Result<std::vector<TokenId>> after = back.encode(text, options);
  if (!after.ok()) return after.error();
  if (before.value() == after.value()) return std::string();
  return fmt::format("{} gives{} before and{} after", base::quoted(text), shown_ids(before.value()),
                     shown_ids(after.value()));
}

Status check_facts(const Tokenizer& source, const Tokenizer& back) {
  for (TokenId id = 0; id < source.vocab_size(); ++id) {
    if (source.piece(id).empty()) continue;
    if (source.piece(id) != back.piece(id))
      return inexpressible(fmt::format("the piece {} of token {} becomes {}",
                                       base::quoted(source.piece(id)), id,
                                       base::quoted(back.piece(id))));
    if (source.is_special(id) != back.is_special(id))
      return inexpressible(fmt::format("token {} ({}) is special before or after, not both", id,
                                       base::quoted(source.piece(id))));
  }
  if (!std::ranges::equal(source.prefix_ids(), back.prefix_ids()) ||
      !std::ranges::equal(source.suffix_ids(), back.suffix_ids())) {
    return inexpressible("what it puts around a text");
  }
  if (!std::ranges::equal(source.end_ids(), back.end_ids())) {
    return inexpressible(fmt::format("its end tokens are{}, but{} would be read",
                                     shown_ids(source.end_ids()), shown_ids(back.end_ids())));
  }
  return ok_status();
}

Status check_texts(const Draft& draft, const Tokenizer& source, const Tokenizer& back,
                   std::vector<std::string>& notes) {
  for (const std::string_view text : kTexts) {
    Result<std::string> difference = find_difference(source, back, text, {.add_special = true});
    if (!difference.ok()) return difference.error();
    if (difference->empty()) continue;
    if (!draft.spares_leading_space || !(text.starts_with(' ') || text.starts_with(kMark)))
      return inexpressible(difference.value());
    if (!notes.empty()) continue;
    notes.push_back(
        fmt::format("readers of GGUF files put a space before texts that start with one, too: {}",
                    difference.value()));
  }
  // A special token within a text: the rules for the text behind it are the reader's.
  for (TokenId id = 0; id < source.vocab_size(); ++id) {
    if (!source.is_special(id)) continue;
    const std::string text = fmt::format("Hello{0}there {0} you", source.piece(id));
    Result<std::string> difference = find_difference(source, back, text, {.parse_special = true});
    if (!difference.ok()) return difference.error();
    if (difference->empty()) continue;
    notes.push_back(fmt::format(
        "beside special tokens, spaces are treated differently by readers of GGUF files: {}",
        difference.value()));
    break;
  }
  return ok_status();
}

// Ends that are not told by their names go under the two keys there are for more.
Status add_ends(const Tokenizer& source, const Tokenizer& back, Draft& draft) {
  std::vector<TokenId> missing;
  for (const TokenId id : source.end_ids()) {
    if (!back.is_end(id)) missing.push_back(id);
  }
  if (missing.size() > 2)
    return inexpressible(fmt::format("it has {} end tokens without a name for it", missing.size()));
  if (!missing.empty()) draft.eot = missing[0];
  if (missing.size() > 1) draft.eom = missing[1];
  return ok_status();
}

Result<GgufExport> finish_export(Draft draft, const Tokenizer& source,
                                 const ExportOptions& options) {
  GgufExport result;
  for (int turn = 0; turn < 2; ++turn) {
    Result<Metadata> metadata = make_metadata(draft, source, options.architecture);
    if (!metadata.ok()) return metadata.error();
    result.metadata = metadata.take();
    Result<Tokenizer> back = from_gguf(result.metadata);
    if (!back.ok()) return back.error().in("reading back what was to be written");
    if (turn == 0) {
      if (Status added = add_ends(source, back.value(), draft); !added.ok()) return added.error();
      if (draft.eot != kNoToken) continue;
    }
    if (Status same = check_facts(source, back.value()); !same.ok()) return same.error();
    if (Status same = check_texts(draft, source, back.value(), result.notes); !same.ok())
      return same.error();
    break;
  }
  return result;
}

}  // namespace

Result<GgufExport> export_gguf(const HuggingFaceFiles& files, const ExportOptions& options) {
  Result<Tokenizer> source = from_tokenizer_json(files);
  if (!source.ok()) return source.error();
  Result<Draft> draft = draft_json(files.tokenizer_json, source.value(), options);
  if (!draft.ok()) return draft.error();
  return finish_export(draft.take(), source.value(), options);
}

Result<GgufExport> export_gguf(const std::filesystem::path& path, const ExportOptions& options) {
  Result<std::filesystem::path> file = find_tokenizer_file(path);
  if (!file.ok()) return file.error();
  if (file->extension() == ".gguf") {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} is a GGUF file already", file->string())};
  }
  Result<FolderFiles> files = read_folder_files(file.value());
  if (!files.ok()) return files.error();
  if (!files->tokenizer_json.empty()) {
    Result<GgufExport> result = export_gguf(files->views(), options);
    if (!result.ok()) return result.error().in(file->string());
    return result;
  }
  Result<Tokenizer> source = from_sentencepiece(files->sentencepiece, files->views());
  if (!source.ok()) return source.error().in(file->string());
  Result<Draft> draft = draft_sentencepiece(files->sentencepiece, options);
  if (!draft.ok()) return draft.error().in(file->string());
  Result<GgufExport> result = finish_export(draft.take(), source.value(), options);
  if (!result.ok()) return result.error().in(file->string());
  return result;
}

}  // namespace llorch::tokenizer
