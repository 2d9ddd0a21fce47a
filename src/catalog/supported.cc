#include "catalog/supported.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/utf8.h"
#include "contract/backend_kind.h"

namespace llorch::catalog {
namespace {

constexpr std::array<std::string_view, 9> kArchitectures = {
    "gpt2", "llama", "mistral", "qwen2", "qwen3", "phi3", "gemma2", "gemma3", "gemma3_text"};

// They exist only inside computations.
constexpr std::array<std::string_view, 2> kUnsupportedTypes = {"Q8_1", "Q8_K"};

bool contains(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::span<const std::string_view> supported_architectures() {
  return kArchitectures;
}

std::span<const std::string_view> unsupported_types() {
  return kUnsupportedTypes;
}

std::string architecture_of(const formats::WeightFile& file, const formats::FileSummary& summary) {
  if (!summary.architecture.empty()) return summary.architecture;
  if (file.format() == formats::FileFormat::Gguf) return {};
  // A bare GPT-2 without config.json is known by its two embeddings.
  for (const std::string_view prefix : {"transformer.", ""}) {
    const formats::WeightTensor* tokens = file.find(fmt::format("{}wte.weight", prefix));
    const formats::WeightTensor* positions = file.find(fmt::format("{}wpe.weight", prefix));
    if (tokens != nullptr && positions != nullptr && tokens->shape.rank() == 2 &&
        positions->shape.rank() == 2)
      return "gpt2";
  }
  return {};
}

Support find_support(std::string_view architecture, const formats::FileSummary& summary) {
  if (summary.num_tensors == 0)
    return {{}, "the file holds no weights, only a vocabulary or settings"};
  if (architecture.empty()) {
    return {{},
            "the file does not say which architecture it is: expected general.architecture in a "
            "GGUF file, or model_type in a config.json beside the weights"};
  }
  if (!contains(kArchitectures, architecture)) {
    return {{},
            fmt::format("the architecture {} is not supported; known: {}",
                        base::quoted(architecture), fmt::join(kArchitectures, ", "))};
  }
  for (const formats::TypeShare& type : summary.types) {
    if (!contains(kUnsupportedTypes, type.name())) continue;
    const std::string others =
        type.tensors > 1 ? fmt::format(" and {} more", type.tensors - 1) : std::string();
    return {{},
            fmt::format("the type {} is not supported (in {}{})", type.name(),
                        base::quoted(type.first_tensor), others)};
  }
  return {contract::backend_names(), {}};
}

}  // namespace llorch::catalog
