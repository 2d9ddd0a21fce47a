#include "tokenizer/size_estimate.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/file.h"
#include "formats/gguf_reader.h"
#include "tokenizer/load_parts.h"

namespace llorch::tokenizer {
namespace {

namespace fs = std::filesystem;

// SentencePiece merges any two neighbours whose joined text is a piece: about two pairs for each
// piece (Llama 2: 61,249 of 32,000).
constexpr std::int64_t kMergesPerPiece = 2;

// Strings of a JSON text: quotes that are not escaped, by two.
std::int64_t count_strings(std::string_view text) {
  std::int64_t quotes = 0;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end) {
    const auto* quote =
        static_cast<const char*>(std::memchr(at, '"', static_cast<std::size_t>(end - at)));
    if (quote == nullptr) break;
    const char* before = quote;
    while (before > text.data() && before[-1] == '\\') --before;
    if ((quote - before) % 2 == 0) ++quotes;
    at = quote + 1;
  }
  return quotes / 2;
}

// The part of a tokenizer.json behind a key; empty where the key is not there.
std::string_view behind(std::string_view text, std::string_view key) {
  const std::size_t at = text.find(key);
  return at == std::string_view::npos ? std::string_view() : text.substr(at + key.size());
}

// Keys are looked for as they are written: "vocab" holds one string for each piece, "merges" one
// ("a b") or two (["a", "b"]) for each merge.
TokenizerSize measure_json(std::string_view text) {
  constexpr std::string_view kMerges = "\"merges\"";
  const std::string_view vocab = behind(text, "\"vocab\"");
  const std::string_view merges = behind(vocab, kMerges);
  TokenizerSize size;
  size.pieces = count_strings(vocab.substr(0, vocab.find(kMerges)));
  const std::string_view opening =
      merges.substr(0, std::min(merges.find('"'), merges.size()));  // ": [" or ": [["
  const bool has_pairs = std::count(opening.begin(), opening.end(), '[') > 1;
  size.merges = count_strings(merges) / (has_pairs ? 2 : 1);
  return size;
}

// One field for each piece: 0x0A, its length, its bytes.
TokenizerSize measure_sentencepiece(std::string_view model) {
  TokenizerSize size;
  for (std::size_t at = 0; at + 1 < model.size() && model[at] == '\x0A'; ++size.pieces) {
    std::uint64_t length = 0;
    int shift = 0;
    std::uint8_t byte = 0x80;
    for (++at; (byte & 0x80U) != 0 && at < model.size() && shift < 63; ++at, shift += 7) {
      byte = static_cast<std::uint8_t>(model[at]);
      length |= (byte & std::uint64_t{0x7F}) << shift;
    }
    if (length > model.size() - at) break;
    at += static_cast<std::size_t>(length);
  }
  size.merges = kMergesPerPiece * size.pieces;
  return size;
}

std::int64_t count_of(const formats::Metadata& metadata, std::string_view key) {
  const formats::Value* value = metadata.find(key);
  const auto* array = value != nullptr ? std::get_if<formats::ArrayView>(value) : nullptr;
  return array != nullptr ? static_cast<std::int64_t>(array->count) : 0;
}

}  // namespace

TokenizerSize measure_gguf(const formats::Metadata& metadata) {
  TokenizerSize size;
  size.pieces = count_of(metadata, "tokenizer.ggml.tokens");
  size.merges = count_of(metadata, "tokenizer.ggml.merges");
  if (size.merges == 0) size.merges = kMergesPerPiece * size.pieces;
  return size;
}

Result<TokenizerSize> measure_tokenizer(const fs::path& path) {
  const Result<fs::path> file = find_tokenizer_file(path);
  if (!file.ok()) return file.error();
  Result<std::shared_ptr<const base::MappedFile>> mapped = base::MappedFile::open(*file);
  if (!mapped.ok()) return mapped.error();
  const std::span<const std::byte> bytes = (*mapped)->bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("GGUF")) {
    const Result<formats::WeightFile> gguf = formats::read_gguf(*file);
    if (!gguf.ok()) return gguf.error();
    return measure_gguf(gguf->metadata());
  }
  return file->extension() == ".model" ? measure_sentencepiece(text) : measure_json(text);
}

}  // namespace llorch::tokenizer
