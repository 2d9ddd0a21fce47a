// The tensors of a family as a table: what each is for, what GGUF and Hugging Face files call it,
// its shape in terms of ModelConfig. Loaders look names up here, converters translate with it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "model/config.h"
#include "model/tensor_map.h"
#include "tensor/shape.h"

namespace llorch::model {

// A length of a tensor, to be looked up in a ModelConfig.
enum class Width : std::uint8_t {
  None,  // no second dimension: a vector
  Vocab,
  Context,
  Hidden,
  HeadDim,
  Q,         // all query heads side by side
  Kv,        // all key (or value) heads
  Qkv,       // queries, keys and values
  Ffn,       // the inner width of the MLP
  FfnTwice,  // gate and up, fused
};
std::int64_t resolve(Width width, const ModelConfig& config);

struct TensorRow {
  Role role = Role::TokenEmbedding;
  // "{}" stands for the layer's number; a name without it is not part of a layer.
  std::string_view gguf;
  std::string_view hf;
  Width out = Width::Hidden;
  Width in = Width::None;
  // The tensor exists where this member is true; null: always.
  bool ModelConfig::*when = nullptr;
  bool rotated = false;  // its output rows are rotated by position: Q and K

  bool is_layer() const { return gguf.find("{}") != std::string_view::npos; }
  // (out, in) or (out), as GGUF files store it.
  tensor::Shape shape(const ModelConfig& config) const;
};

// The name with the layer's number in its place.
std::string tensor_name(std::string_view pattern, std::int32_t layer);

// Where a family's GGUF files differ from its Hugging Face files in more than names.
struct GgufForm {
  bool transposed = false;      // Hugging Face keeps the layers' matrices (in, out): GPT-2
  bool paired_rows = false;     // the rows of each `rotated` head are reordered: see paired_row()
  bool norms_plus_one = false;  // Hugging Face keeps the weights of RMS norms minus one: Gemma
};

// Hugging Face rotates value i of a head with value i + head_dim / 2; GGUF files of the llama
// family keep such partners next to each other. Row `row` of a head in GGUF is this row of Hugging
// Face's.
inline std::int64_t paired_row(std::int64_t row, std::int64_t head_dim) {
  return row / 2 + row % 2 * (head_dim / 2);
}

// The decoder that Llama began: RMS norms, Q, K, V and gate, up apart. Members of ModelConfig say
// which of the optional tensors a model has (biases, QK norms, post norms, an output matrix).
std::span<const TensorRow> decoder_tensors();
// The same with Q, K, V in one matrix and gate, up in one: Phi-3.
std::span<const TensorRow> fused_decoder_tensors();
// Gemma 2 and 3: decoder_tensors() with a norm after attention and one after the MLP.
std::span<const TensorRow> post_norm_decoder_tensors();
std::span<const TensorRow> gpt2_tensors();

}  // namespace llorch::model
