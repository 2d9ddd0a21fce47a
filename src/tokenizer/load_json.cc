// tokenizer.json → Tokenizer.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/utf8.h"
#include "tokenizer/bpe.h"
#include "tokenizer/hf_components.h"
#include "tokenizer/json_file.h"
#include "tokenizer/load.h"
#include "tokenizer/load_parts.h"
#include "tokenizer/unicode.h"
#include "tokenizer/unigram.h"
#include "tokenizer/wordpiece.h"

namespace llorch::tokenizer {
namespace {

Error corrupt(std::string message) {
  return {ErrorCode::Corrupt, "tokenizer.json: " + std::move(message)};
}
Error unsupported(std::string message) {
  return {ErrorCode::Unsupported, "tokenizer.json: " + std::move(message)};
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
  const std::string type = file.model_type();
  if (type == "BPE") return make_bpe(file, list, is_byte_level, parts);
  if (is_byte_level)
    return unsupported(fmt::format("the model \"{}\" with a ByteLevel pre_tokenizer", type));
  if (type == "Unigram") return make_unigram(file, list, parts);
  if (type == "WordPiece") return make_wordpiece(file, parts);
  return unsupported(fmt::format("the model \"{}\"", type));
}

}  // namespace

Result<Tokenizer> from_tokenizer_json(const HuggingFaceFiles& files) {
  Result<std::unique_ptr<const JsonFile>> read = read_json_file(files.tokenizer_json);
  if (!read.ok()) return read.error();
  const JsonFile& file = *read.value();
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
