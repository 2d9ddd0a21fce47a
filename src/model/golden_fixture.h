// Tests only: the committed models and what Hugging Face transformers computed for them
// (tests/golden).
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compute/create.h"
#include "formats/safetensors_reader.h"
#include "model/checkpoints.h"
#include "model/load.h"
#include "support/test_paths.h"

namespace llorch::model {

template <class T>
std::vector<T> values_of(const formats::WeightTensor& tensor) {
  std::vector<T> values(tensor.bytes.size() / sizeof(T));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

// The models of tests/golden/families.
struct FamilyFixture {
  std::string_view golden;
  std::string_view path;
  std::size_t full_prompt = 1;  // tokens of full_ids that were given, not generated
};
inline constexpr FamilyFixture kFamilies[] = {
    {"families/llama", "tests/golden/families/llama"},
    {"families/mistral", "tests/golden/families/mistral"},
    {"families/qwen2", "tests/golden/families/qwen2"},
    {"families/qwen3", "tests/golden/families/qwen3"},
    {"families/phi3", "tests/golden/families/phi3"},
    {"families/phi3_long", "tests/golden/families/phi3_long", 36},
    {"families/gemma2", "tests/golden/families/gemma2"},
    {"families/gemma3", "tests/golden/families/gemma3"},
};

class Golden {
 public:
  // name: a folder of tests/golden, "gpt2_tiny" or "families/llama".
  explicit Golden(std::string_view name)
      : file_(formats::read_safetensors(
                  test::source_path(fmt::format("tests/golden/{}/golden.safetensors", name)))
                  .take()) {}

  HostTensor tensor(std::string_view name) const {
    const formats::WeightTensor& found = entry(name);
    return {{found.shape.dims().begin(), found.shape.dims().end()}, values_of<float>(found)};
  }
  std::vector<std::int32_t> ids(std::string_view name) const {
    return values_of<std::int32_t>(entry(name));
  }

  // The reference in the form that compare() takes.
  Trace trace() const {
    Trace trace;
    for (const auto& [ours, theirs] :
         {std::pair{"embedding", ""}, std::pair{"attn_norm.0", "ln_1"}, std::pair{"qkv.0", "qkv"},
          std::pair{"scores.0", "scores"}, std::pair{"attn_merged.0", "attn_merged"},
          std::pair{"attn_out.0", "attn_out"}, std::pair{"ffn_norm.0", "ln_2"},
          std::pair{"ffn_out.0", "mlp_out"}, std::pair{"block.0", "block_0"},
          std::pair{"output_norm", "ln_f"}, std::pair{"logits", "logits"},
          std::pair{"softmax", "softmax_last"}}) {
      if (*theirs != '\0') trace.tensors[ours] = tensor(theirs);
    }
    for (int layer = 0; file_.find(fmt::format("cache_k.{}", layer)) != nullptr; ++layer) {
      for (const std::string_view side : {"cache_k", "cache_v"}) {
        const std::string name = fmt::format("{}.{}", side, layer);
        HostTensor cached = tensor(name);  // (tokens, heads, head_dim)
        cached.shape = {cached.shape[0], cached.shape[1] * cached.shape[2]};
        trace.tensors[name] = std::move(cached);
      }
    }
    trace.ids = ids("ids");
    trace.greedy_ids = ids("greedy_ids");
    const HostTensor& logits = trace.tensors["logits"];
    const std::span<const float> all(logits.values);
    trace.argmax = argmax(all.last(static_cast<std::size_t>(logits.shape[1])));
    return trace;
  }

 private:
  const formats::WeightTensor& entry(std::string_view name) const {
    const formats::WeightTensor* found = file_.find(name);
    CHECK(found != nullptr, name);
    return *found;
  }

  formats::WeightFile file_;
};

// Without an input form: what the backend declares.
inline std::unique_ptr<compute::Backend> test_backend(
    std::string_view name, std::optional<compute::InputForm> input = {}) {
  return compute::make_backend(name, {.threads = 2, .input = input}).take();
}

inline std::shared_ptr<const LoadedModel> load_golden_model(std::string_view path,
                                                            compute::Backend& backend) {
  Result<std::shared_ptr<const LoadedModel>> model = load_model(test::source_path(path), backend);
  CHECK(model.ok(), model.error().message);
  return model.take();
}

}  // namespace llorch::model
