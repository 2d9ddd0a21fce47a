// SentencePiece's tokenizer.model (a ModelProto in protocol-buffer encoding) → Tokenizer.
#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <functional>
#include <utility>

#include "tokenizer/load.h"
#include "tokenizer/load_parts.h"

namespace llorch::tokenizer {
namespace {

Error corrupt(std::string message) {
  return {ErrorCode::Corrupt, "tokenizer.model: " + std::move(message)};
}

// One field of a message: a number, or bytes.
struct Field {
  std::uint32_t number = 0;
  std::uint64_t value = 0;  // varint, fixed32 or fixed64
  std::string_view bytes;   // length-delimited
};

Result<std::uint64_t> read_varint(std::string_view& rest) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64 && !rest.empty(); shift += 7) {
    const auto byte = static_cast<std::uint8_t>(rest[0]);
    rest.remove_prefix(1);
    value |= std::uint64_t{byte & 0x7FU} << shift;
    if ((byte & 0x80) == 0) return value;
  }
  return corrupt("a number does not end");
}

Result<std::string_view> take(std::string_view& rest, std::uint64_t count) {
  if (count > rest.size())
    return corrupt(fmt::format("a field of {} bytes, but {} are left", count, rest.size()));
  const std::string_view taken = rest.substr(0, static_cast<std::size_t>(count));
  rest.remove_prefix(taken.size());
  return taken;
}

Result<Field> read_field(std::string_view& rest) {
  Result<std::uint64_t> key = read_varint(rest);
  if (!key.ok()) return key.error();
  Field field;
  field.number = static_cast<std::uint32_t>(key.value() >> 3);
  const std::uint64_t kind = key.value() & 7;
  if (kind == 0) {
    Result<std::uint64_t> value = read_varint(rest);
    if (!value.ok()) return value.error();
    field.value = value.value();
  } else if (kind == 2) {
    Result<std::uint64_t> length = read_varint(rest);
    if (!length.ok()) return length.error();
    Result<std::string_view> bytes = take(rest, length.value());
    if (!bytes.ok()) return bytes.error();
    field.bytes = bytes.value();
  } else if (kind == 1 || kind == 5) {
    Result<std::string_view> bytes = take(rest, kind == 1 ? 8 : 4);
    if (!bytes.ok()) return bytes.error();
    std::memcpy(&field.value, bytes->data(), bytes->size());
  } else {
    return corrupt(fmt::format("a field of the kind {}; it is no SentencePiece model", kind));
  }
  return field;
}

Status for_each_field(std::string_view message,
                      const std::function<Status(const Field&)>& on_field) {
  while (!message.empty()) {
    Result<Field> field = read_field(message);
    if (!field.ok()) return field.error();
    if (Status status = on_field(field.value()); !status.ok()) return status;
  }
  return ok_status();
}

Status read_piece(std::string_view message, SpmVocab& vocab) {
  std::string_view piece;
  float score = 0;
  std::uint64_t type = 1;
  Status status = for_each_field(message, [&](const Field& field) {
    if (field.number == 1) piece = field.bytes;
    if (field.number == 2) score = std::bit_cast<float>(static_cast<std::uint32_t>(field.value));
    if (field.number == 3) type = field.value;
    return ok_status();
  });
  if (!status.ok()) return status;
  if (type < 1 || type > 6)
    return corrupt(fmt::format("piece {} has the type {}", vocab.pieces.size(), type));
  vocab.pieces.push_back(piece);
  vocab.scores.push_back(score);
  vocab.types.push_back(static_cast<PieceType>(type));
  return ok_status();
}

Status read_trainer(std::string_view message, SpmFile& file) {
  std::uint64_t model_type = 1;
  bool is_suffix = false;
  const auto id = [](std::uint64_t value) {
    const auto number = static_cast<std::int64_t>(value);
    return number < 0 || number > INT32_MAX ? kNoToken : static_cast<TokenId>(number);
  };
  Status status = for_each_field(message, [&](const Field& field) {
    switch (field.number) {
      case 3:
        model_type = field.value;
        break;
      case 24:
        is_suffix = field.value != 0;
        break;
      case 35:
        file.vocab.has_byte_fallback = field.value != 0;
        break;
      case 40:
        file.unknown = id(field.value);
        break;
      case 41:
        file.bos = id(field.value);
        break;
      case 42:
        file.eos = id(field.value);
        break;
      case 43:
        file.padding = id(field.value);
        break;
      default:
        break;
    }
    return ok_status();
  });
  if (!status.ok()) return status;
  if (model_type != 1 && model_type != 2) {
    return Error{
        ErrorCode::Unsupported,
        fmt::format(
            "tokenizer.model: the model type {}; only unigram (1) and BPE (2) are supported",
            model_type)};
  }
  if (is_suffix)
    return Error{ErrorCode::Unsupported,
                 "tokenizer.model: treat_whitespace_as_suffix is not supported"};
  file.vocab.is_unigram = model_type == 1;
  return ok_status();
}

Status read_normalizer_spec(std::string_view message, SpmVocab& vocab) {
  return for_each_field(message, [&](const Field& field) {
    if (field.number == 2) vocab.charsmap = field.bytes;
    if (field.number == 3) vocab.adds_space_prefix = field.value != 0;
    if (field.number == 4) vocab.collapses_spaces = field.value != 0;
    if (field.number == 5) vocab.escapes_spaces = field.value != 0;
    return ok_status();
  });
}

}  // namespace

Result<SpmFile> read_sentencepiece(std::string_view model) {
  SpmFile file;
  file.vocab.is_unigram = true;
  file.vocab.collapses_spaces = true;
  Status status = for_each_field(model, [&](const Field& field) {
    if (field.number == 1) return read_piece(field.bytes, file.vocab);
    if (field.number == 2) return read_trainer(field.bytes, file);
    if (field.number == 3) return read_normalizer_spec(field.bytes, file.vocab);
    return ok_status();
  });
  if (!status.ok()) return status.error();
  return file;
}

Result<Tokenizer> from_sentencepiece(std::string_view model, const HuggingFaceFiles& files) {
  Result<SpmFile> read = read_sentencepiece(model);
  if (!read.ok()) return read.error();
  const SpmFile& file = read.value();
  auto parts = std::make_unique<TokenizerParts>();
  const auto known = [&](TokenId id) {
    return id >= 0 && static_cast<std::size_t>(id) < file.vocab.pieces.size() ? id : kNoToken;
  };
  parts->unknown = known(file.unknown);
  parts->bos = known(file.bos);
  parts->eos = known(file.eos);
  parts->padding = known(file.padding);
  if (Status made = make_spm(file.vocab, *parts); !made.ok())
    return made.error().in("tokenizer.model");
  // The file itself does not say what goes around a text; Llama's classes put the beginning in
  // front.
  if (!file.vocab.is_unigram && parts->bos != kNoToken) parts->prefix.push_back(parts->bos);
  if (file.vocab.is_unigram && parts->eos != kNoToken) parts->suffix.push_back(parts->eos);
  if (Status side = read_side_files(files, *parts); !side.ok()) return side.error();
  return finish(std::move(parts));
}

}  // namespace llorch::tokenizer
