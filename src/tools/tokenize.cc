#include "tools/tokenize.h"

#include <fmt/format.h>

#include <charconv>
#include <iterator>

#include "base/terminal.h"
#include "base/utf8.h"
#include "tokenizer/streaming_decoder.h"

namespace llorch::tools {
namespace {

using tokenizer::DecodeOptions;
using tokenizer::EncodeOptions;
using tokenizer::TokenId;
using tokenizer::Tokenizer;

constexpr std::size_t kMaxLineBytes = std::size_t{1} << 30;

void append_ids(std::string& out, std::span<const TokenId> ids, std::string_view separator) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (i > 0) out += separator;
    fmt::format_to(std::back_inserter(out), "{}", ids[i]);
  }
}

std::string error_line(std::string_view message) {
  json::Object object;
  object["error"] = message;
  return json::serialize(object);
}

}  // namespace

std::string tokens_text(const Tokenizer& tokenizer, std::span<const TokenId> ids, bool color) {
  // What each id adds as the text grows: characters cut in two show up where they become whole.
  tokenizer::StreamingDecoder decoder(tokenizer, DecodeOptions{.keep_special = true});
  std::string out;
  constexpr base::Color kColors[] = {base::Color::Green, base::Color::Yellow};
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::string piece = decoder.decode_next(ids[i]);
    if (!color && i > 0) out += '|';
    if (piece == "\n") {
      out += color ? "\n" : "⏎";
      continue;
    }
    const base::Color shade =
        tokenizer.is_special(ids[i]) ? base::Color::Red : kColors[i % std::size(kColors)];
    out += base::paint(base::printable(piece), shade, color);
  }
  out += base::printable(decoder.flush());
  out += fmt::format("\n{} token{}: ", ids.size(), ids.size() == 1 ? "" : "s");
  append_ids(out, ids, " ");
  return out + "\n";
}

json::Object tokens_json(const Tokenizer& tokenizer, std::span<const TokenId> ids) {
  json::Array numbers, pieces;
  for (const TokenId id : ids) {
    numbers.emplace_back(id);
    pieces.emplace_back(tokenizer.decode({&id, 1}, DecodeOptions{.keep_special = true}));
  }
  json::Object object;
  object["ids"] = std::move(numbers);
  object["pieces"] = std::move(pieces);
  return object;
}

Result<std::vector<TokenId>> parse_ids(std::string_view text) {
  std::vector<TokenId> ids;
  constexpr std::string_view kBetween = " ,\t\r\n[]";
  for (std::size_t begin = text.find_first_not_of(kBetween); begin != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(kBetween, begin), text.size());
    TokenId id = 0;
    const auto parsed = std::from_chars(text.data() + begin, text.data() + end, id);
    if (parsed.ec != std::errc() || parsed.ptr != text.data() + end || id < 0) {
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("expected token ids, found {}",
                               base::quoted(text.substr(begin, end - begin)))};
    }
    ids.push_back(id);
    begin = text.find_first_not_of(kBetween, end);
  }
  return ids;
}

std::string batch_line(const Tokenizer& tokenizer, std::string_view line) {
  const Result<json::Value> value = json::parse(line, {.max_bytes = kMaxLineBytes});
  if (!value.ok()) return error_line(value.error().message);
  const auto* text = value->is_object() ? value->get_object().if_contains("text") : nullptr;
  if (text == nullptr || !text->is_string())
    return error_line("expected an object with a string \"text\"");
  const std::string_view content = json::view(text->get_string());
  const Result<std::vector<TokenId>> ids =
      tokenizer.encode(content, EncodeOptions{.parse_special = true});
  if (!ids.ok()) return error_line(ids.error().message);
  std::string out = "{\"ids\":[";
  append_ids(out, ids.value(), ",");
  out += "],\"ids_with_special\":[";
  std::vector<TokenId> all(tokenizer.prefix_ids().begin(), tokenizer.prefix_ids().end());
  all.insert(all.end(), ids->begin(), ids->end());
  all.insert(all.end(), tokenizer.suffix_ids().begin(), tokenizer.suffix_ids().end());
  append_ids(out, all, ",");
  out += "],\"decoded\":";
  out += json::serialize(
      json::Value(tokenizer.decode(ids.value(), DecodeOptions{.keep_special = true})));
  return out + "}";
}

}  // namespace llorch::tools
