#include "formats/tokenizer_summary.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/file.h"
#include "base/json.h"

namespace llorch::formats {
namespace {

namespace fs = std::filesystem;

// The largest tokenizer.json in use (256 K tokens with merges) is about 35 MB.
constexpr std::size_t kTokenizerBytesMax = std::size_t{64} << 20;

struct SpecialKey {
  std::string_view gguf;
  std::string_view config;
  std::string_view name;
};
constexpr std::array kSpecialKeys = {
    SpecialKey{"tokenizer.ggml.bos_token_id", "config.bos_token_id", "bos"},
    SpecialKey{"tokenizer.ggml.eos_token_id", "config.eos_token_id", "eos"},
    SpecialKey{"tokenizer.ggml.eot_token_id", "", "eot"},
    SpecialKey{"tokenizer.ggml.unknown_token_id", "config.unk_token_id", "unk"},
    SpecialKey{"tokenizer.ggml.padding_token_id", "config.pad_token_id", "pad"},
};

void read_special_ids(const Metadata& metadata, bool is_gguf, TokenizerSummary& summary) {
  for (const SpecialKey& key : kSpecialKeys) {
    const Result<std::int64_t> id = metadata.integer(is_gguf ? key.gguf : key.config);
    if (id.ok() && id.value() >= 0) summary.special_ids.emplace_back(key.name, id.value());
  }
}

std::optional<TokenizerSummary> summarize_gguf(const Metadata& metadata) {
  const Result<std::string_view> kind = metadata.text("tokenizer.ggml.model");
  if (!kind.ok()) return std::nullopt;
  TokenizerSummary summary;
  summary.source = "gguf";
  summary.kind = kind.value();
  if (const Result<std::string_view> pre = metadata.text("tokenizer.ggml.pre"); pre.ok())
    summary.pre = pre.value();
  if (const Value* tokens = metadata.find("tokenizer.ggml.tokens")) {
    const auto* array = std::get_if<ArrayView>(tokens);
    if (array != nullptr) summary.size = static_cast<std::int64_t>(array->count);
  }
  summary.has_chat_template = metadata.contains("tokenizer.chat_template");
  read_special_ids(metadata, true, summary);
  return summary;
}

std::optional<json::Object> read_object(const fs::path& path) {
  const Result<std::string> text = base::read_text_file(path, kTokenizerBytesMax);
  if (!text.ok()) return std::nullopt;
  Result<json::Value> value = json::parse(text.value());
  if (!value.ok() || !value->is_object()) return std::nullopt;
  return std::move(value->get_object());
}

// Ids in the vocabulary and in the added tokens overlap: the size is one past the largest.
std::int64_t count_tokens(const json::Object& tokenizer, const json::Object& model) {
  std::int64_t size = 0;
  if (const json::Value* vocab = model.if_contains("vocab")) {
    if (const json::Object* object = vocab->if_object())
      size = static_cast<std::int64_t>(object->size());
    if (const json::Array* array = vocab->if_array())
      size = static_cast<std::int64_t>(array->size());
  }
  const json::Value* added = tokenizer.if_contains("added_tokens");
  if (added == nullptr || !added->is_array()) return size;
  for (const json::Value& token : added->get_array()) {
    const json::Value* id = token.is_object() ? token.get_object().if_contains("id") : nullptr;
    if (id != nullptr && id->is_int64() && id->get_int64() < std::int64_t{1} << 31) {
      size = std::max(size, id->get_int64() + 1);
    }
  }
  return size;
}

void read_tokenizer_json(const fs::path& path, TokenizerSummary& summary) {
  const std::optional<json::Object> tokenizer = read_object(path);
  if (!tokenizer) return;
  const json::Value* model = tokenizer->if_contains("model");
  if (model == nullptr || !model->is_object()) return;
  const json::Value* type = model->get_object().if_contains("type");
  if (type != nullptr && type->is_string()) summary.kind = json::view(type->get_string());
  summary.size = count_tokens(*tokenizer, model->get_object());
}

bool has_chat_template(const fs::path& folder) {
  std::error_code ignored;
  if (fs::exists(folder / "chat_template.jinja", ignored) ||
      fs::exists(folder / "chat_template.json", ignored)) {
    return true;
  }
  const std::optional<json::Object> config = read_object(folder / "tokenizer_config.json");
  const json::Value* text = config ? config->if_contains("chat_template") : nullptr;
  return text != nullptr && !text->is_null();
}

}  // namespace

std::optional<TokenizerSummary> summarize_tokenizer(const WeightFile& file) {
  if (file.format() == FileFormat::Gguf) return summarize_gguf(file.metadata());
  std::error_code ignored;
  const fs::path folder =
      fs::is_directory(file.path(), ignored) ? file.path() : file.path().parent_path();
  TokenizerSummary summary;
  if (fs::is_regular_file(folder / "tokenizer.json", ignored)) {
    summary.source = "tokenizer.json";
    read_tokenizer_json(folder / "tokenizer.json", summary);
  } else if (fs::is_regular_file(folder / "tokenizer.model", ignored)) {
    summary.source = "tokenizer.model";
    summary.kind = "SentencePiece";
  } else {
    return std::nullopt;
  }
  summary.has_chat_template = has_chat_template(folder);
  read_special_ids(file.metadata(), false, summary);
  return summary;
}

}  // namespace llorch::formats
