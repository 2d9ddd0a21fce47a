#include "catalog/known_models.h"

#include <array>
#include <cstdint>
#include <string_view>

#include "contract/backend_kind.h"
#include "contract/model_entry.h"

namespace llorch::catalog {
namespace {

using contract::ModelEntry;

struct KnownModel {
  std::string_view id;
  std::string_view name;
  std::string_view repo;
  std::string_view format;
  std::string_view architecture;
  std::string_view quantization;
  std::string_view license;  // SPDX where it has a name there, else the hub's word
  std::int64_t size_bytes;
};

// Sizes are those of the files as published (GPT-2: weights, vocabulary and settings together); of
// the medium one and of SafeTensors repositories known to three digits only. A download goes by
// what the hub says then. "NAME:safetensors" is the model that the GGUF file NAME was made from.
constexpr std::array kKnownModels = {
    KnownModel{"smollm2-135m", "SmolLM2 135M Instruct",
               "hf:bartowski/SmolLM2-135M-Instruct-GGUF::file=SmolLM2-135M-Instruct-Q8_0.gguf",
               "gguf", "llama", "Q8_0", "Apache-2.0", 144'811'360},
    KnownModel{"smollm2-360m", "SmolLM2 360M Instruct",
               "hf:HuggingFaceTB/SmolLM2-360M-Instruct-GGUF::file=smollm2-360m-instruct-q8_0.gguf",
               "gguf", "llama", "Q8_0", "Apache-2.0", 386'404'992},
    KnownModel{"qwen-0.5b", "Qwen2.5 0.5B Instruct",
               "hf:Qwen/Qwen2.5-0.5B-Instruct-GGUF::file=qwen2.5-0.5b-instruct-q4_k_m.gguf", "gguf",
               "qwen2", "Q4_K_M", "Apache-2.0", 491'400'032},
    KnownModel{"gpt2", "GPT-2 124M", "hf:openai-community/gpt2", "safetensors", "gpt2", "F32",
               "MIT", 550'959'861},
    KnownModel{"qwen3-0.6b", "Qwen3 0.6B", "hf:Qwen/Qwen3-0.6B-GGUF::file=Qwen3-0.6B-Q8_0.gguf",
               "gguf", "qwen3", "Q8_0", "Apache-2.0", 639'446'688},
    KnownModel{
        "tinyllama", "TinyLlama 1.1B Chat",
        "hf:TheBloke/TinyLlama-1.1B-Chat-v1.0-GGUF::file=tinyllama-1.1b-chat-v1.0.Q4_K_M.gguf",
        "gguf", "llama", "Q4_K_M", "Apache-2.0", 668'788'096},
    KnownModel{"gemma3-1b", "Gemma 3 1B Instruct",
               "hf:ggml-org/gemma-3-1b-it-GGUF::file=gemma-3-1b-it-Q4_K_M.gguf", "gguf", "gemma3",
               "Q4_K_M", "gemma", 806'058'240},
    KnownModel{"llama3.2-1b", "Llama 3.2 1B Instruct",
               "hf:bartowski/Llama-3.2-1B-Instruct-GGUF::file=Llama-3.2-1B-Instruct-Q4_K_M.gguf",
               "gguf", "llama", "Q4_K_M", "llama3.2", 807'694'464},
    KnownModel{
        "smollm2", "SmolLM2 1.7B Instruct",
        "hf:HuggingFaceTB/SmolLM2-1.7B-Instruct-GGUF::file=smollm2-1.7b-instruct-q4_k_m.gguf",
        "gguf", "llama", "Q4_K_M", "Apache-2.0", 1'055'609'536},
    KnownModel{"qwen2.5-1.5b", "Qwen2.5 1.5B Instruct",
               "hf:Qwen/Qwen2.5-1.5B-Instruct-GGUF::file=qwen2.5-1.5b-instruct-q4_k_m.gguf", "gguf",
               "qwen2", "Q4_K_M", "Apache-2.0", 1'117'320'736},
    KnownModel{"gpt2-medium", "GPT-2 355M", "hf:openai-community/gpt2-medium", "safetensors",
               "gpt2", "F32", "MIT", 1'520'000'000},
    KnownModel{"gemma2-2b", "Gemma 2 2B Instruct",
               "hf:bartowski/gemma-2-2b-it-GGUF::file=gemma-2-2b-it-Q4_K_M.gguf", "gguf", "gemma2",
               "Q4_K_M", "gemma", 1'708'582'752},
    KnownModel{"qwen3-1.7b", "Qwen3 1.7B", "hf:Qwen/Qwen3-1.7B-GGUF::file=Qwen3-1.7B-Q8_0.gguf",
               "gguf", "qwen3", "Q8_0", "Apache-2.0", 1'834'426'016},
    KnownModel{"llama3.2-3b", "Llama 3.2 3B Instruct",
               "hf:bartowski/Llama-3.2-3B-Instruct-GGUF::file=Llama-3.2-3B-Instruct-Q4_K_M.gguf",
               "gguf", "llama", "Q4_K_M", "llama3.2", 2'019'377'696},
    KnownModel{"phi3", "Phi-3 mini 4K Instruct",
               "hf:microsoft/Phi-3-mini-4k-instruct-gguf::file=Phi-3-mini-4k-instruct-q4.gguf",
               "gguf", "phi3", "Q4_K_M", "MIT", 2'393'231'072},
    KnownModel{
        "mistral", "Mistral 7B Instruct v0.2",
        "hf:TheBloke/Mistral-7B-Instruct-v0.2-GGUF::file=mistral-7b-instruct-v0.2.Q4_K_M.gguf",
        "gguf", "llama", "Q4_K_M", "Apache-2.0", 4'368'439'584},
    KnownModel{"qwen-0.5b:safetensors", "Qwen2.5 0.5B Instruct", "hf:Qwen/Qwen2.5-0.5B-Instruct",
               "safetensors", "qwen2", "BF16", "Apache-2.0", 1'000'000'000},
    KnownModel{"tinyllama:safetensors", "TinyLlama 1.1B Chat",
               "hf:TinyLlama/TinyLlama-1.1B-Chat-v1.0", "safetensors", "llama", "BF16",
               "Apache-2.0", 2'200'000'000},
    KnownModel{"phi3:safetensors", "Phi-3 mini 4K Instruct", "hf:microsoft/Phi-3-mini-4k-instruct",
               "safetensors", "phi3", "BF16", "MIT", 7'640'000'000},
    KnownModel{"mistral:safetensors", "Mistral 7B Instruct v0.2",
               "hf:mistralai/Mistral-7B-Instruct-v0.2", "safetensors", "mistral", "BF16",
               "Apache-2.0", 14'500'000'000},
};

ModelEntry make_entry(const KnownModel& model) {
  ModelEntry entry;
  entry.id = model.id;
  entry.name = model.name;
  entry.format = model.format;
  entry.size_bytes = model.size_bytes;
  entry.architecture = model.architecture;
  entry.backends = contract::backend_names();
  entry.repo = model.repo;
  entry.quantization = model.quantization;
  entry.license = model.license;
  return entry;
}

}  // namespace

ModelEntry builtin_entry() {
  ModelEntry entry;
  entry.id = contract::kBuiltinModel;
  entry.path = contract::kBuiltinModel;
  entry.name = "llama-orch stories 14M";
  entry.format = "gguf";
  entry.architecture = "llama";
  entry.size_bytes = 15'200'352;
  entry.downloaded = true;
  entry.backends = contract::backend_names();
  entry.context_length = 1024;
  entry.vocab_size = 4096;
  entry.parameters = 14'162'304;
  entry.quantization = "Q8_0";
  entry.license = "Apache-2.0";
  return entry;
}

std::vector<ModelEntry> known_models() {
  std::vector<ModelEntry> models;
  models.push_back(builtin_entry());
  for (const KnownModel& model : kKnownModels) models.push_back(make_entry(model));
  return models;
}

}  // namespace llorch::catalog
