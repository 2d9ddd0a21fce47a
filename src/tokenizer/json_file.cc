#include "tokenizer/json_file.h"

#include <fmt/format.h>

#include "base/utf8.h"
#include "tokenizer/json_scan.h"
#include "tokenizer/load_parts.h"
#include "tokenizer/unicode.h"

namespace llorch::tokenizer {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{256} << 20;

Error corrupt(std::string message) {
  return {ErrorCode::Corrupt, "tokenizer.json: " + std::move(message)};
}

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

}  // namespace

const json::Value& JsonFile::member(std::string_view name) const {
  static const json::Value null;
  const auto found = members.find(name);
  return found == members.end() ? null : found->second;
}

std::string JsonFile::model_type() const {
  std::string type = text_of(model, "type");
  if (type.empty() && !merges.empty()) type = "BPE";
  return type;
}

Result<std::unique_ptr<const JsonFile>> read_json_file(std::string_view text) {
  if (text.size() > kMaxFileBytes)
    return corrupt(fmt::format("{} bytes, more than {}", text.size(), kMaxFileBytes));
  if (const std::size_t bad = find_invalid_utf8(text); bad != text.size()) {
    return corrupt(fmt::format("not UTF-8 at byte {}", bad));
  }
  auto file = std::make_unique<JsonFile>();
  if (Status status = Reader(text, *file).read(); !status.ok())
    return status.error().in("tokenizer.json");
  return std::unique_ptr<const JsonFile>(std::move(file));
}

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

}  // namespace llorch::tokenizer
