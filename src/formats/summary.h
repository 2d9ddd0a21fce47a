// What a model's files say about it, in the words people use: size, shape, quantisation, tokenizer.
// Facts only; whether we can run it is not asked here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/weight_file.h"
#include "tensor/dtype.h"

namespace llorch::formats {

// The tensors of one element type.
struct TypeShare {
  tensor::DType dtype = tensor::DType::F32;
  std::int64_t tensors = 0;
  std::int64_t elements = 0;
  std::int64_t bytes = 0;
  std::string first_tensor;  // in file order: where such a type is, for messages

  std::string_view name() const { return tensor::name(dtype); }  // "Q4_K"
};

struct TokenizerSummary {
  std::string source;  // "gguf", "tokenizer.json" or "tokenizer.model"
  std::string kind;    // as the source calls it: "gpt2", "llama"; "BPE", "Unigram"; empty when it
                       // does not say
  std::string pre;     // GGUF's name of the pre-tokeniser, or empty
  std::int64_t size = 0;  // tokens, added ones included; 0 when the source does not say
  std::vector<std::pair<std::string, std::int64_t>> special_ids;  // "bos", "eos", …
  bool has_chat_template = false;
};

// Numbers are absent where the files do not say. Text is as the file has it: hostile until
// printable() or to_valid_utf8() has seen it.
struct FileSummary {
  FileFormat format = FileFormat::Gguf;
  std::string architecture;  // as the file spells it; empty when it does not say
  std::string name;          // empty when the file has none
  std::string
      quantization;  // "Q4_K_M" where the file says so, else its main type; empty without tensors
  std::int64_t parameters =
      0;  // elements of all weights; shared ones once, masks and tables not at all
  std::int64_t tensor_bytes = 0;
  std::int64_t file_bytes = 0;
  std::int64_t num_files = 0;
  std::int64_t num_tensors = 0;
  std::optional<std::int64_t> context_length;
  std::optional<std::int64_t> vocab_size;
  std::optional<std::int64_t> embedding_length;
  std::optional<std::int64_t> num_layers;
  std::optional<std::int64_t> num_heads;
  std::optional<std::int64_t> num_kv_heads;
  std::optional<std::int64_t> head_dim;
  std::optional<std::int64_t> ffn_length;
  std::vector<TypeShare> types;  // largest share of elements first
  std::optional<TokenizerSummary> tokenizer;
};

// Never fails: what cannot be read is absent. For formats other than GGUF it looks for the
// tokenizer's files beside the weights.
FileSummary summarize(const WeightFile& file);

// "Q4_K 78 %, Q6_K 20 %, F32 2 %": shares of all elements, what rounds to nothing as "<1 %".
std::string describe_types(const std::vector<TypeShare>& types);

}  // namespace llorch::formats
