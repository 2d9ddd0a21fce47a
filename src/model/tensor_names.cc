#include "model/tensor_names.h"

#include <fmt/format.h>

#include <array>

namespace llorch::model {
namespace {

using enum Role;
using Config = ModelConfig;

constexpr TensorRow kEmbedding = {TokenEmbedding, "token_embd.weight", "model.embed_tokens.weight",
                                  Width::Vocab, Width::Hidden};
constexpr TensorRow kAttnNorm = {AttnNormWeight, "blk.{}.attn_norm.weight",
                                 "model.layers.{}.input_layernorm.weight", Width::Hidden};
constexpr TensorRow kAttnOut = {AttnOut, "blk.{}.attn_output.weight",
                                "model.layers.{}.self_attn.o_proj.weight", Width::Hidden, Width::Q};
constexpr TensorRow kFfnOut = {FfnOut, "blk.{}.ffn_down.weight",
                               "model.layers.{}.mlp.down_proj.weight", Width::Hidden, Width::Ffn};
constexpr TensorRow kOutputNorm = {OutputNormWeight, "output_norm.weight", "model.norm.weight",
                                   Width::Hidden};
constexpr TensorRow kOutput = {Output, "output.weight", "lm_head.weight", Width::Vocab,
                               Width::Hidden};

constexpr std::array<TensorRow, 8> kSplitQkv = {{
    {Qkv, "blk.{}.attn_q.weight", "model.layers.{}.self_attn.q_proj.weight", Width::Q,
     Width::Hidden, nullptr, true},
    {QkvBias, "blk.{}.attn_q.bias", "model.layers.{}.self_attn.q_proj.bias", Width::Q, Width::None,
     &Config::qkv_bias, true},
    {Qkv, "blk.{}.attn_k.weight", "model.layers.{}.self_attn.k_proj.weight", Width::Kv,
     Width::Hidden, nullptr, true},
    {QkvBias, "blk.{}.attn_k.bias", "model.layers.{}.self_attn.k_proj.bias", Width::Kv, Width::None,
     &Config::qkv_bias, true},
    {Qkv, "blk.{}.attn_v.weight", "model.layers.{}.self_attn.v_proj.weight", Width::Kv,
     Width::Hidden},
    {QkvBias, "blk.{}.attn_v.bias", "model.layers.{}.self_attn.v_proj.bias", Width::Kv, Width::None,
     &Config::qkv_bias},
    {QNormWeight, "blk.{}.attn_q_norm.weight", "model.layers.{}.self_attn.q_norm.weight",
     Width::HeadDim, Width::None, &Config::qk_norm},
    {KNormWeight, "blk.{}.attn_k_norm.weight", "model.layers.{}.self_attn.k_norm.weight",
     Width::HeadDim, Width::None, &Config::qk_norm},
}};

constexpr std::array<TensorRow, 4> kSplitFfn = {{
    {FfnIn, "blk.{}.ffn_gate.weight", "model.layers.{}.mlp.gate_proj.weight", Width::Ffn,
     Width::Hidden},
    {FfnInBias, "blk.{}.ffn_gate.bias", "model.layers.{}.mlp.gate_proj.bias", Width::Ffn,
     Width::None, &Config::mlp_bias},
    {FfnIn, "blk.{}.ffn_up.weight", "model.layers.{}.mlp.up_proj.weight", Width::Ffn,
     Width::Hidden},
    {FfnInBias, "blk.{}.ffn_up.bias", "model.layers.{}.mlp.up_proj.bias", Width::Ffn, Width::None,
     &Config::mlp_bias},
}};

constexpr std::array<TensorRow, 21> kDecoder = {{
    kEmbedding,
    kAttnNorm,
    kSplitQkv[0],
    kSplitQkv[1],
    kSplitQkv[2],
    kSplitQkv[3],
    kSplitQkv[4],
    kSplitQkv[5],
    kSplitQkv[6],
    kSplitQkv[7],
    kAttnOut,
    {AttnOutBias, "blk.{}.attn_output.bias", "model.layers.{}.self_attn.o_proj.bias", Width::Hidden,
     Width::None, &Config::attn_out_bias},
    {FfnNormWeight, "blk.{}.ffn_norm.weight", "model.layers.{}.post_attention_layernorm.weight",
     Width::Hidden},
    kSplitFfn[0],
    kSplitFfn[1],
    kSplitFfn[2],
    kSplitFfn[3],
    kFfnOut,
    {FfnOutBias, "blk.{}.ffn_down.bias", "model.layers.{}.mlp.down_proj.bias", Width::Hidden,
     Width::None, &Config::mlp_bias},
    kOutputNorm,
    kOutput,
}};

constexpr std::array<TensorRow, 9> kFused = {{
    kEmbedding,
    kAttnNorm,
    {Qkv, "blk.{}.attn_qkv.weight", "model.layers.{}.self_attn.qkv_proj.weight", Width::Qkv,
     Width::Hidden},
    kAttnOut,
    {FfnNormWeight, "blk.{}.ffn_norm.weight", "model.layers.{}.post_attention_layernorm.weight",
     Width::Hidden},
    {FfnIn, "blk.{}.ffn_up.weight", "model.layers.{}.mlp.gate_up_proj.weight", Width::FfnTwice,
     Width::Hidden},
    kFfnOut,
    kOutputNorm,
    kOutput,
}};

// Hugging Face's "post_attention_layernorm" is another norm here than in kDecoder.
constexpr std::array<TensorRow, 16> kPostNorm = {{
    kEmbedding,
    kAttnNorm,
    kSplitQkv[0],
    kSplitQkv[2],
    kSplitQkv[4],
    kSplitQkv[6],
    kSplitQkv[7],
    kAttnOut,
    {PostAttnNormWeight, "blk.{}.post_attention_norm.weight",
     "model.layers.{}.post_attention_layernorm.weight", Width::Hidden},
    {FfnNormWeight, "blk.{}.ffn_norm.weight", "model.layers.{}.pre_feedforward_layernorm.weight",
     Width::Hidden},
    kSplitFfn[0],
    kSplitFfn[2],
    kFfnOut,
    {PostFfnNormWeight, "blk.{}.post_ffw_norm.weight",
     "model.layers.{}.post_feedforward_layernorm.weight", Width::Hidden},
    kOutputNorm,
    kOutput,
}};

constexpr std::array<TensorRow, 17> kGpt2 = {{
    {TokenEmbedding, "token_embd.weight", "transformer.wte.weight", Width::Vocab, Width::Hidden},
    {PositionEmbedding, "position_embd.weight", "transformer.wpe.weight", Width::Context,
     Width::Hidden},
    {AttnNormWeight, "blk.{}.attn_norm.weight", "transformer.h.{}.ln_1.weight", Width::Hidden},
    {AttnNormBias, "blk.{}.attn_norm.bias", "transformer.h.{}.ln_1.bias", Width::Hidden},
    {Qkv, "blk.{}.attn_qkv.weight", "transformer.h.{}.attn.c_attn.weight", Width::Qkv,
     Width::Hidden},
    {QkvBias, "blk.{}.attn_qkv.bias", "transformer.h.{}.attn.c_attn.bias", Width::Qkv},
    {AttnOut, "blk.{}.attn_output.weight", "transformer.h.{}.attn.c_proj.weight", Width::Hidden,
     Width::Q},
    {AttnOutBias, "blk.{}.attn_output.bias", "transformer.h.{}.attn.c_proj.bias", Width::Hidden},
    {FfnNormWeight, "blk.{}.ffn_norm.weight", "transformer.h.{}.ln_2.weight", Width::Hidden},
    {FfnNormBias, "blk.{}.ffn_norm.bias", "transformer.h.{}.ln_2.bias", Width::Hidden},
    {FfnIn, "blk.{}.ffn_up.weight", "transformer.h.{}.mlp.c_fc.weight", Width::Ffn, Width::Hidden},
    {FfnInBias, "blk.{}.ffn_up.bias", "transformer.h.{}.mlp.c_fc.bias", Width::Ffn},
    {FfnOut, "blk.{}.ffn_down.weight", "transformer.h.{}.mlp.c_proj.weight", Width::Hidden,
     Width::Ffn},
    {FfnOutBias, "blk.{}.ffn_down.bias", "transformer.h.{}.mlp.c_proj.bias", Width::Hidden},
    {OutputNormWeight, "output_norm.weight", "transformer.ln_f.weight", Width::Hidden},
    {OutputNormBias, "output_norm.bias", "transformer.ln_f.bias", Width::Hidden},
    kOutput,
}};

}  // namespace

std::int64_t resolve(Width width, const ModelConfig& config) {
  switch (width) {
    case Width::None:
      return 0;
    case Width::Vocab:
      return config.vocab_size;
    case Width::Context:
      return config.context_length;
    case Width::Hidden:
      return config.hidden_dim;
    case Width::HeadDim:
      return config.head_dim;
    case Width::Q:
      return config.q_width();
    case Width::Kv:
      return config.kv_width();
    case Width::Qkv:
      return config.qkv_width();
    case Width::Ffn:
      return config.ffn_dim;
    case Width::FfnTwice:
      return std::int64_t{2} * config.ffn_dim;
  }
  CHECK(false, "no such width");
}

tensor::Shape TensorRow::shape(const ModelConfig& config) const {
  if (in == Width::None) return {resolve(out, config)};
  return {resolve(out, config), resolve(in, config)};
}

std::string tensor_name(std::string_view pattern, std::int32_t layer) {
  std::string name(pattern);
  if (const std::size_t at = name.find("{}"); at != std::string::npos)
    name.replace(at, 2, std::to_string(layer));
  return name;
}

std::span<const TensorRow> decoder_tensors() {
  return kDecoder;
}
std::span<const TensorRow> fused_decoder_tensors() {
  return kFused;
}
std::span<const TensorRow> post_norm_decoder_tensors() {
  return kPostNorm;
}
std::span<const TensorRow> gpt2_tensors() {
  return kGpt2;
}

}  // namespace llorch::model
