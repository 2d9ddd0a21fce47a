// tokenizer.json → Tokenizer.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/json.h"
#include "base/utf8.h"
#include "tokenizer/bpe.h"
#include "tokenizer/hf_components.h"
#include "tokenizer/json_scan.h"
#include "tokenizer/load.h"
#include "tokenizer/load_parts.h"
#include "tokenizer/unicode.h"
#include "tokenizer/unigram.h"
#include "tokenizer/wordpiece.h"

namespace llorch::tokenizer {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{256} << 20;

Error corrupt(std::string message) {
  return {ErrorCode::Corrupt, "tokenizer.json: " + std::move(message)};
}
Error unsupported(std::string message) {
  return {ErrorCode::Unsupported, "tokenizer.json: " + std::move(message)};
}

struct VocabEntry {
  std::string_view piece;
  std::int64_t id;
  double score;
};

// The file as read: the two large members taken apart, the others as small JSON values.
struct JsonFile {
  std::string arena;  // strings that were written with escapes; never reallocated
  std::vector<VocabEntry> vocab;
  std::vector<std::pair<std::string_view, std::string_view>> merges;
  json::Object model;  // without the two
  std::map<std::string, json::Value, std::less<>> members;

  const json::Value& member(std::string_view name) const {
    static const json::Value null;
    const auto found = members.find(name);
    return found == members.end() ? null : found->second;
  }
};

class Reader {
 public:
  Reader(std::string_view text, JsonFile& file) : text_(text), scan_(text), file_(file) {
    file_.arena.reserve(text.size());
  }

  Status read() {
    Status status = scan_.object([&](std::string_view key) {
      return key == "model" ? read_model() : read_member(std::string(key));
    });
    if (!status.ok()) return status;
    has_model_ = has_model_ && !file_.vocab.empty();
    return has_model_ ? ok_status() : Status(corrupt("it has no model with a vocabulary"));
  }

 private:
  Result<json::Value> small_value() {
    Result<std::string_view> raw = scan_.raw_value();
    if (!raw.ok()) return raw.error();
    return json::parse(raw.value());
  }

  Status read_member(std::string key) {
    Result<json::Value> value = small_value();
    if (!value.ok()) return value.error().in(key);
    file_.members.insert_or_assign(std::move(key), value.take());
    return ok_status();
  }

  Status read_model() {
    has_model_ = true;
    return scan_.object([&](std::string_view key) {
      if (key == "vocab") return scan_.next_is('[') ? read_scored_vocab() : read_vocab();
      if (key == "merges") return read_merges();
      const std::string name(key);
      Result<json::Value> value = small_value();
      if (!value.ok()) return Status(value.error().in("model." + name));
      file_.model[name] = value.take();
      return ok_status();
    });
  }

  // Keeps a string: where it stands in the text, or in the arena.
  std::string_view keep(std::string_view text) {
    const bool is_in_text =
        text.data() >= text_.data() && text.data() < text_.data() + text_.size();
    if (is_in_text || text.empty()) return text;
    const std::size_t begin = file_.arena.size();
    file_.arena += text;
    return std::string_view(file_.arena).substr(begin);
  }

  Result<std::string_view> kept_string() {
    Result<std::string_view> text = scan_.string();
    if (!text.ok()) return text;
    return keep(text.value());
  }

  Status read_vocab() {
    if (Status open = scan_.expect('{'); !open.ok()) return open;
    if (scan_.next_is('}')) return scan_.expect('}');
    for (;;) {
      Result<std::string_view> piece = kept_string();
      if (!piece.ok()) return piece.error();
      if (Status colon = scan_.expect(':'); !colon.ok()) return colon;
      Result<std::int64_t> id = scan_.integer();
      if (!id.ok()) return id.error();
      file_.vocab.push_back({piece.value(), id.value(), 0});
      if (!scan_.next_is(',')) return scan_.expect('}');
      if (Status comma = scan_.expect(','); !comma.ok()) return comma;
    }
  }

  Status read_scored_vocab() {
    return scan_.array([&] {
      if (Status open = scan_.expect('['); !open.ok()) return open;
      Result<std::string_view> piece = kept_string();
      if (!piece.ok()) return Status(piece.error());
      if (Status comma = scan_.expect(','); !comma.ok()) return comma;
      Result<double> score = scan_.number();
      if (!score.ok()) return Status(score.error());
      file_.vocab.push_back(
          {piece.value(), static_cast<std::int64_t>(file_.vocab.size()), score.value()});
      return scan_.expect(']');
    });
  }

  // "a b" or ["a", "b"].
  Status read_merges() {
    return scan_.array([&] {
      if (scan_.next_is('[')) return read_merge_pair();
      Result<std::string_view> text = kept_string();
      if (!text.ok()) return Status(text.error());
      const std::size_t space = text->find(' ');
      if (space == std::string_view::npos || text->find(' ', space + 1) != std::string_view::npos) {
        return Status(scan_.error("expected a merge of two pieces with one space between them"));
      }
      file_.merges.emplace_back(text->substr(0, space), text->substr(space + 1));
      return ok_status();
    });
  }

  Status read_merge_pair() {
    if (Status open = scan_.expect('['); !open.ok()) return open;
    Result<std::string_view> left = kept_string();
    if (!left.ok()) return left.error();
    if (Status comma = scan_.expect(','); !comma.ok()) return comma;
    Result<std::string_view> right = kept_string();
    if (!right.ok()) return right.error();
    file_.merges.emplace_back(left.value(), right.value());
    return scan_.expect(']');
  }

  std::string_view text_;
  JsonScan scan_;
  JsonFile& file_;
  bool has_model_ = false;
};

bool flag_of(const json::Object& object, std::string_view key) {
  const auto* value = object.if_contains({key.data(), key.size()});
  return value != nullptr && value->is_bool() && value->get_bool();
}

std::string text_of(const json::Object& object, std::string_view key) {
  const auto* value = object.if_contains({key.data(), key.size()});
  return value != nullptr && value->is_string() ? std::string(json::view(value->get_string()))
                                                : std::string();
}

Result<std::vector<AddedToken>> read_added_tokens(const json::Value& value) {
  std::vector<AddedToken> tokens;
  if (value.is_null()) return tokens;
  if (!value.is_array()) return corrupt("added_tokens: expected a list");
  for (const json::Value& entry : value.get_array()) {
    if (!entry.is_object()) return corrupt("added_tokens: expected objects");
    const json::Object& object = entry.get_object();
    AddedToken token;
    token.content = text_of(object, "content");
    const auto* id = object.if_contains("id");
    if (id == nullptr || !id->is_int64() || id->get_int64() < 0 ||
        id->get_int64() >= static_cast<std::int64_t>(kMaxVocabSize)) {
      return corrupt(fmt::format("added_tokens: {}: expected an id from 0 to {}",
                                 base::quoted(token.content), kMaxVocabSize - 1));
    }
    if (token.content.size() > kMaxPieceBytes)
      return corrupt("added_tokens: content longer than 4096 bytes");
    token.id = static_cast<TokenId>(id->get_int64());
    token.is_special = flag_of(object, "special");
    token.is_normalized = flag_of(object, "normalized");
    token.single_word = flag_of(object, "single_word");
    token.strips_left = flag_of(object, "lstrip");
    token.strips_right = flag_of(object, "rstrip");
    if (!token.content.empty()) tokens.push_back(std::move(token));
  }
  return tokens;
}

// Pieces by id, in the form that words come in: bytes for byte-level models.
struct PieceList {
  std::string arena;
  std::vector<std::string_view> pieces;
  std::vector<std::uint8_t> is_listed;
};

// Appends the bytes that `written` stands for; a piece that is not written in the byte map stays as
// it is.
bool append_piece(std::string_view written, bool is_byte_level, std::string& buffer,
                  std::string& arena) {
  if (is_byte_level && bytes_from_chars(written, buffer)) {
    arena += buffer;
    return true;
  }
  arena += written;
  return !is_byte_level;
}

Status list_pieces(const JsonFile& file, const std::vector<AddedToken>& added, bool is_byte_level,
                   PieceList& list) {
  std::size_t size = 0, bytes = 0;
  for (const VocabEntry& entry : file.vocab) {
    if (entry.id < 0 || entry.id >= static_cast<std::int64_t>(kMaxVocabSize)) {
      return corrupt(fmt::format("the piece {} has id {}; expected 0 to {}",
                                 base::quoted(entry.piece), entry.id, kMaxVocabSize - 1));
    }
    if (entry.piece.size() > kMaxPieceBytes)
      return corrupt(fmt::format("the piece of token {} is too long", entry.id));
    size = std::max(size, static_cast<std::size_t>(entry.id) + 1);
    bytes += entry.piece.size();
  }
  for (const AddedToken& token : added) {
    size = std::max(size, static_cast<std::size_t>(token.id) + 1);
    bytes += token.content.size();
  }
  list.arena.reserve(bytes);
  list.pieces.resize(size);
  list.is_listed.resize(size);
  std::string buffer;
  const auto put = [&](std::string_view written, std::size_t id) {
    const std::size_t begin = list.arena.size();
    const bool is_word = append_piece(written, is_byte_level, buffer, list.arena);
    list.pieces[id] = std::string_view(list.arena).substr(begin);
    return is_word;
  };
  for (const VocabEntry& entry : file.vocab) {
    const auto id = static_cast<std::size_t>(entry.id);
    if (!list.pieces[id].empty()) return corrupt(fmt::format("two pieces have the id {}", id));
    list.is_listed[id] = put(entry.piece, id);
  }
  for (const AddedToken& token : added) {
    const auto id = static_cast<std::size_t>(token.id);
    const std::string_view before = list.pieces[id];
    put(token.content, id);
    if (!before.empty() && before != list.pieces[id]) {
      return corrupt(
          fmt::format("the added token {} has the id {}, which the vocabulary gives to {}",
                      base::quoted(token.content), id, base::quoted(before)));
    }
  }
  return ok_status();
}

// An added token whose content is a piece of the model has that piece's id, whatever it says
// itself.
void settle_ids(bool is_byte_level, const Vocab& vocab, std::vector<AddedToken>& added) {
  std::string content, buffer;
  for (AddedToken& token : added) {
    content.clear();
    if (!append_piece(token.content, is_byte_level, buffer, content)) continue;
    const TokenId known = vocab.id_of(content);
    if (known != kNoToken) token.id = known;
  }
}

Result<std::vector<Merge>> list_merges(const JsonFile& file, bool is_byte_level,
                                       const Vocab& vocab) {
  std::vector<Merge> merges;
  merges.reserve(file.merges.size());
  std::string joined, buffer;
  for (const auto& [left, right] : file.merges) {
    joined.clear();
    append_piece(left, is_byte_level, buffer, joined);
    const std::size_t border = joined.size();
    append_piece(right, is_byte_level, buffer, joined);
    const std::string_view view = joined;
    const Merge merge{vocab.id_of(view.substr(0, border)), vocab.id_of(view.substr(border)),
                      vocab.id_of(view), static_cast<std::uint32_t>(merges.size())};
    if (merge.left == kNoToken || merge.right == kNoToken || merge.result == kNoToken) {
      return corrupt(fmt::format("merge {} ({} {}) names a piece that is not in the vocabulary",
                                 merges.size(), base::quoted(left), base::quoted(right)));
    }
    merges.push_back(merge);
  }
  return merges;
}

Result<TokenId> find_unknown(const json::Object& model, const Vocab& vocab) {
  const std::string name = text_of(model, "unk_token");
  if (name.empty()) return kNoToken;
  const TokenId id = vocab.id_of(name);
  if (id == kNoToken)
    return corrupt(
        fmt::format("the unknown token {} is not in the vocabulary", base::quoted(name)));
  return id;
}

Status make_bpe(const JsonFile& file, const PieceList& list, bool is_byte_level,
                TokenizerParts& parts) {
  for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!text_of(file.model, key).empty()) return unsupported(fmt::format("BPE with {}", key));
  }
  const auto* dropout = file.model.if_contains("dropout");
  if (dropout != nullptr && dropout->is_double() && dropout->get_double() != 0)
    return unsupported("BPE with dropout");
  Result<std::vector<Merge>> merges = list_merges(file, is_byte_level, *parts.vocab);
  if (!merges.ok()) return merges.error();
  Result<TokenId> unknown = find_unknown(file.model, *parts.vocab);
  if (!unknown.ok()) return unknown.error();
  parts.unknown = unknown.value();
  BpeOptions options;
  options.byte_level = is_byte_level;
  options.ignore_merges = flag_of(file.model, "ignore_merges");
  options.byte_fallback = flag_of(file.model, "byte_fallback");
  options.fuse_unknown = flag_of(file.model, "fuse_unk");
  options.unknown = unknown.value();
  options.byte_pieces = find_byte_pieces(list.pieces);
  parts.model = std::make_unique<Bpe>(*parts.vocab, merges.value(), std::move(options));
  return ok_status();
}

Status make_unigram(const JsonFile& file, const PieceList& list, TokenizerParts& parts) {
  std::vector<double> scores(list.pieces.size());
  for (const VocabEntry& entry : file.vocab) {
    if (!std::isfinite(entry.score))
      return corrupt(fmt::format("the score of token {} is not finite", entry.id));
    scores[static_cast<std::size_t>(entry.id)] = entry.score;
  }
  const auto* unknown = file.model.if_contains("unk_id");
  if (unknown != nullptr && unknown->is_int64()) {
    if (unknown->get_int64() < 0 ||
        unknown->get_int64() >= static_cast<std::int64_t>(list.pieces.size())) {
      return corrupt(fmt::format("unk_id {} is outside the vocabulary", unknown->get_int64()));
    }
    parts.unknown = static_cast<TokenId>(unknown->get_int64());
  }
  parts.model =
      std::make_unique<Unigram>(*parts.vocab, scores,
                                UnigramOptions{parts.unknown, flag_of(file.model, "byte_fallback"),
                                               find_byte_pieces(list.pieces)});
  return ok_status();
}

Status make_wordpiece(const JsonFile& file, TokenizerParts& parts) {
  Result<TokenId> unknown = find_unknown(file.model, *parts.vocab);
  if (!unknown.ok()) return unknown.error();
  parts.unknown = unknown.value();
  WordPieceOptions options;
  options.unknown = unknown.value();
  if (file.model.contains("continuing_subword_prefix")) {
    options.continuation = text_of(file.model, "continuing_subword_prefix");
  }
  const auto* limit = file.model.if_contains("max_input_chars_per_word");
  if (limit != nullptr && limit->is_int64() && limit->get_int64() > 0) {
    // Matching takes time quadratic in this.
    options.max_characters =
        static_cast<std::size_t>(std::min<std::int64_t>(limit->get_int64(), 1000));
  }
  parts.model = std::make_unique<WordPiece>(*parts.vocab, std::move(options));
  return ok_status();
}

Status make_model(const JsonFile& file, const PieceList& list, bool is_byte_level,
                  TokenizerParts& parts) {
  std::string type = text_of(file.model, "type");
  if (type.empty() && !file.merges.empty()) type = "BPE";  // files of before the type was written
  if (type == "BPE") return make_bpe(file, list, is_byte_level, parts);
  if (is_byte_level)
    return unsupported(fmt::format("the model \"{}\" with a ByteLevel pre_tokenizer", type));
  if (type == "Unigram") return make_unigram(file, list, parts);
  if (type == "WordPiece") return make_wordpiece(file, parts);
  return unsupported(fmt::format("the model \"{}\"", type));
}

}  // namespace

Result<Tokenizer> from_tokenizer_json(const HuggingFaceFiles& files) {
  const std::string_view text = files.tokenizer_json;
  if (text.size() > kMaxFileBytes)
    return corrupt(fmt::format("{} bytes, more than {}", text.size(), kMaxFileBytes));
  if (const std::size_t bad = find_invalid_utf8(text); bad != text.size()) {
    return corrupt(fmt::format("not UTF-8 at byte {}", bad));
  }
  JsonFile file;
  if (Status status = Reader(text, file).read(); !status.ok())
    return status.error().in("tokenizer.json");

  auto parts = std::make_unique<TokenizerParts>();
  Result<std::vector<NormalizeStep>> steps = read_normalizer(file.member("normalizer"));
  if (!steps.ok()) return steps.error();
  parts->normalizer = Normalizer(steps.take());
  Result<PreTokenizerParts> pre_tokenizer = read_pre_tokenizer(file.member("pre_tokenizer"));
  if (!pre_tokenizer.ok()) return pre_tokenizer.error();
  const bool is_byte_level = pre_tokenizer->is_byte_level;
  parts->pre_tokenizer = PreTokenizer(std::move(pre_tokenizer->rules));
  Result<PostProcessor> processor = read_post_processor(file.member("post_processor"));
  if (!processor.ok()) return processor.error();
  parts->prefix = std::move(processor->prefix);
  parts->suffix = std::move(processor->suffix);
  Result<DecodeRules> decode = read_decoder(file.member("decoder"));
  if (!decode.ok()) return decode.error();
  parts->decode = decode.take();
  if ((parts->decode.style == DecodeRules::Style::ByteLevel) != is_byte_level) {
    return unsupported(
        "a ByteLevel pre_tokenizer without a ByteLevel decoder, or the other way round,");
  }
  Result<std::vector<AddedToken>> added = read_added_tokens(file.member("added_tokens"));
  if (!added.ok()) return added.error();
  parts->added = added.take();

  PieceList list;
  if (Status status = list_pieces(file, parts->added, is_byte_level, list); !status.ok())
    return status.error();
  parts->vocab = std::make_unique<Vocab>(list.pieces, list.is_listed);
  settle_ids(is_byte_level, *parts->vocab, parts->added);
  if (Status status = make_model(file, list, is_byte_level, *parts); !status.ok())
    return status.error();
  if (Status status = read_side_files(files, *parts); !status.ok()) return status.error();
  return finish(std::move(parts));
}

}  // namespace llorch::tokenizer
