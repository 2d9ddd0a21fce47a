#include "formats/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <limits>
#include <set>

#include "formats/tokenizer_summary.h"

namespace llorch::formats {
namespace {

struct FileType {
  std::int64_t id;
  std::string_view name;
};

// The values of general.file_type: how a GGUF file was quantised as a whole.
constexpr std::array kFileTypes = {
    FileType{0, "F32"},      FileType{1, "F16"},     FileType{2, "Q4_0"},    FileType{3, "Q4_1"},
    FileType{7, "Q8_0"},     FileType{8, "Q5_0"},    FileType{9, "Q5_1"},    FileType{10, "Q2_K"},
    FileType{11, "Q3_K_S"},  FileType{12, "Q3_K_M"}, FileType{13, "Q3_K_L"}, FileType{14, "Q4_K_S"},
    FileType{15, "Q4_K_M"},  FileType{16, "Q5_K_S"}, FileType{17, "Q5_K_M"}, FileType{18, "Q6_K"},
    FileType{19, "IQ2_XXS"}, FileType{20, "IQ2_XS"}, FileType{21, "Q2_K_S"}, FileType{22, "IQ3_XS"},
    FileType{23, "IQ3_XXS"}, FileType{24, "IQ1_S"},  FileType{25, "IQ4_NL"}, FileType{26, "IQ3_S"},
    FileType{27, "IQ3_M"},   FileType{28, "IQ2_S"},  FileType{29, "IQ2_M"},  FileType{30, "IQ4_XS"},
    FileType{31, "IQ1_M"},   FileType{32, "BF16"},   FileType{36, "TQ1_0"},  FileType{37, "TQ2_0"},
    FileType{38, "MXFP4"},
};

// Looks facts up by the names that the format of the file has for them.
class Facts {
 public:
  Facts(const WeightFile& file, std::string_view architecture)
      : metadata_(file.metadata()),
        is_gguf_(file.format() == FileFormat::Gguf),
        architecture_(architecture) {}

  // The first name that is there and holds a positive integer: `gguf_key` behind the architecture's
  // name, or one of `config_keys` in config.json, of which a multimodal model keeps the language
  // part in text_config.
  std::optional<std::int64_t> integer(std::string_view gguf_key,
                                      std::initializer_list<std::string_view> config_keys) const {
    if (is_gguf_) return positive(fmt::format("{}.{}", architecture_, gguf_key));
    for (const std::string_view prefix : {"config.", "config.text_config."}) {
      for (const std::string_view key : config_keys) {
        const std::optional<std::int64_t> value = positive(fmt::format("{}{}", prefix, key));
        if (value) return value;
      }
    }
    return std::nullopt;
  }

 private:
  std::optional<std::int64_t> positive(std::string_view key) const {
    const Result<std::int64_t> value = metadata_.integer(key);
    if (!value.ok() || value.value() <= 0) return std::nullopt;
    return value.value();
  }

  const Metadata& metadata_;
  bool is_gguf_;
  std::string_view architecture_;
};

std::string text_or_empty(const Metadata& metadata, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    const Result<std::string_view> text = metadata.text(key);
    if (text.ok() && !text.value().empty()) return std::string(text.value());
  }
  return {};
}

// A hostile PyTorch view may repeat one element any number of times: the sum stays at the largest
// number.
std::int64_t add_saturated(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<std::int64_t>::max() : sum;
}

// Saved beside the weights, but computed rather than learned.
bool is_buffer(const WeightTensor& tensor) {
  const std::string_view name = tensor.name;
  const bool is_mask = name.ends_with("attn.bias") && tensor.shape.rank() == 4;
  return is_mask || name.ends_with("attn.masked_bias") || name.ends_with("rotary_emb.inv_freq") ||
         name.ends_with("position_ids");
}

std::int64_t count_parameters(const WeightFile& file) {
  const Result<bool> tied = file.metadata().flag("config.tie_word_embeddings");
  const bool is_tied = tied.ok() && tied.value();
  std::set<const std::byte*> seen;
  std::int64_t count = 0;
  for (const WeightTensor& tensor : file.tensors()) {
    if (is_buffer(tensor) || tensor.bytes.empty()) continue;
    if (is_tied && tensor.name == "lm_head.weight") continue;  // a second copy of the embedding
    if (seen.insert(tensor.bytes.data()).second)
      count = add_saturated(count, tensor.shape.elements());
  }
  return count;
}

std::vector<TypeShare> count_types(const WeightFile& file) {
  std::array<TypeShare, tensor::kNumDTypes> all{};
  for (const WeightTensor& tensor : file.tensors()) {
    TypeShare& share = all[static_cast<std::size_t>(tensor.dtype)];
    share.dtype = tensor.dtype;
    if (share.tensors++ == 0) share.first_tensor = tensor.name;
    share.elements = add_saturated(share.elements, tensor.shape.elements());
    share.bytes = add_saturated(share.bytes, static_cast<std::int64_t>(tensor.bytes.size()));
  }
  std::vector<TypeShare> types;
  std::copy_if(all.begin(), all.end(), std::back_inserter(types),
               [](const TypeShare& t) { return t.tensors > 0; });
  std::stable_sort(types.begin(), types.end(),
                   [](const TypeShare& a, const TypeShare& b) { return a.elements > b.elements; });
  return types;
}

std::string name_quantization(const WeightFile& file, const std::vector<TypeShare>& types) {
  if (types.empty()) return {};
  const Result<std::int64_t> id = file.metadata().integer("general.file_type");
  if (id.ok()) {
    for (const FileType& type : kFileTypes) {
      if (type.id == id.value()) return std::string(type.name);
    }
  }
  return std::string(tensor::name(types.front().dtype));
}

// The embedding's rows, for files whose metadata does not give the size of the vocabulary.
std::optional<std::int64_t> embedding_rows(const WeightFile& file) {
  for (const std::string_view name : {"token_embd.weight", "wte.weight", "transformer.wte.weight",
                                      "model.embed_tokens.weight", "embed_tokens.weight"}) {
    const WeightTensor* tensor = file.find(name);
    if (tensor != nullptr && tensor->shape.rank() == 2) return tensor->shape[0];
  }
  return std::nullopt;
}

void read_dimensions(const WeightFile& file, FileSummary& summary) {
  const Facts facts(file, summary.architecture);
  summary.context_length = facts.integer(
      "context_length", {"max_position_embeddings", "n_positions", "n_ctx", "seq_length"});
  summary.embedding_length =
      facts.integer("embedding_length", {"hidden_size", "n_embd", "d_model"});
  summary.num_layers = facts.integer("block_count", {"num_hidden_layers", "n_layer", "num_layers"});
  summary.num_heads =
      facts.integer("attention.head_count", {"num_attention_heads", "n_head", "num_heads"});
  summary.num_kv_heads = facts.integer("attention.head_count_kv", {"num_key_value_heads"});
  if (!summary.num_kv_heads) summary.num_kv_heads = summary.num_heads;
  summary.head_dim = facts.integer("attention.key_length", {"head_dim"});
  if (!summary.head_dim && summary.num_heads && summary.embedding_length) {
    summary.head_dim = *summary.embedding_length / *summary.num_heads;
  }
  summary.ffn_length =
      facts.integer("feed_forward_length", {"intermediate_size", "n_inner", "ffn_dim"});
  summary.vocab_size = facts.integer("vocab_size", {"vocab_size"});
  if (!summary.vocab_size && summary.tokenizer && summary.tokenizer->size > 0) {
    summary.vocab_size = summary.tokenizer->size;
  }
  if (!summary.vocab_size) summary.vocab_size = embedding_rows(file);
}

}  // namespace

FileSummary summarize(const WeightFile& file) {
  FileSummary summary;
  summary.format = file.format();
  summary.architecture =
      text_or_empty(file.metadata(),
                    {"general.architecture", "config.model_type", "config.text_config.model_type"});
  summary.name = text_or_empty(file.metadata(), {"general.name", "config._name_or_path"});
  summary.types = count_types(file);
  summary.quantization = name_quantization(file, summary.types);
  summary.parameters = count_parameters(file);
  for (const TypeShare& type : summary.types) {
    summary.tensor_bytes = add_saturated(summary.tensor_bytes, type.bytes);
  }
  summary.file_bytes = file.file_bytes();
  summary.num_files = static_cast<std::int64_t>(file.files().size());
  summary.num_tensors = static_cast<std::int64_t>(file.tensors().size());
  summary.tokenizer = summarize_tokenizer(file);
  read_dimensions(file, summary);
  return summary;
}

std::string describe_types(const std::vector<TypeShare>& types) {
  double total = 0;
  for (const TypeShare& type : types) total += static_cast<double>(type.elements);
  std::string text;
  for (const TypeShare& type : types) {
    const double percent = total > 0 ? 100 * static_cast<double>(type.elements) / total : 0;
    if (!text.empty()) text += ", ";
    text += percent < 1 ? fmt::format("{} <1 %", tensor::name(type.dtype))
                        : fmt::format("{} {:.0f} %", tensor::name(type.dtype), percent);
  }
  return text;
}

}  // namespace llorch::formats
