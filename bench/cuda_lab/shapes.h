// The matrices of three models, as the fused step multiplies them.
#pragma once

#include <vector>

namespace lab {

struct Model {
  const char* name;
  int layers;
  int hidden;
  int heads;
  int kv_heads;
  int head_dim;
  int ffn;
  int vocab;

  int qkv() const { return (heads + 2 * kv_heads) * head_dim; }
};

inline const std::vector<Model>& models() {
  static const std::vector<Model> all = {
      {"Qwen2.5-0.5B", 24, 896, 14, 2, 64, 4864, 151936},
      {"TinyLlama", 22, 2048, 32, 4, 64, 5632, 32000},
      {"Mistral-7B", 32, 4096, 32, 8, 128, 14336, 32000},
  };
  return all;
}

struct Product {
  const char* name;
  int outputs;
  int inputs;
  int times;  // in one step
};

inline std::vector<Product> products_of(const Model& m) {
  return {{"qkv", m.qkv(), m.hidden, m.layers},
          {"out", m.hidden, m.heads * m.head_dim, m.layers},
          {"gate+up", 2 * m.ffn, m.hidden, m.layers},
          {"down", m.hidden, m.ffn, m.layers},
          {"head", m.vocab, m.hidden, 1}};
}

}  // namespace lab
