#include "model/architecture.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "model/architectures/gpt2.h"

namespace llorch::model {

std::span<const Architecture> architectures() {
  static const std::array kTable = {
      gpt2_architecture(),
  };
  return kTable;
}

Result<std::string> declared_architecture(const formats::WeightFile& file) {
  const formats::Metadata& metadata = file.metadata();
  for (const std::string_view key : {"general.architecture", "config.model_type"}) {
    if (!metadata.contains(key)) continue;
    Result<std::string_view> text = metadata.text(key);
    if (!text.ok()) return text.error();
    return std::string(text.value());
  }
  // GPT-2's numbers follow from its tensors (gpt2.cc), so a bare file of it needs no config.json.
  if (looks_like_gpt2(file)) return std::string("gpt2");
  return Error{ErrorCode::Unsupported,
               fmt::format("{} does not say which architecture it is: expected "
                           "general.architecture in a GGUF file, or "
                           "model_type in a config.json beside the weights",
                           file.path().string())};
}

Result<const Architecture*> find_architecture(const formats::WeightFile& file) {
  Result<std::string> declared = declared_architecture(file);
  if (!declared.ok()) return declared.error();
  std::vector<std::string_view> known;
  for (const Architecture& architecture : architectures()) {
    for (const std::string_view alias : architecture.aliases) {
      if (alias == declared.value()) return &architecture;
    }
    known.push_back(architecture.name);
  }
  return Error{ErrorCode::Unsupported,
               fmt::format("{}: architecture '{}' is not supported; known: {}",
                           file.path().string(), declared.value(), fmt::join(known, ", "))};
}

Result<ModelPlan> plan_model(const formats::WeightFile& file) {
  Result<const Architecture*> found = find_architecture(file);
  if (!found.ok()) return found.error();
  const Architecture& architecture = *found.value();
  Result<ModelConfig> config = architecture.read_config(file);
  if (!config.ok()) return config.error().in(file.path().string());
  if (Status valid = validate(config.value()); !valid.ok())
    return valid.error().in(file.path().string());
  Result<std::vector<MappedTensor>> tensors =
      map_tensors(architecture.list_tensors(config.value(), file), file, architecture.is_ignored);
  if (!tensors.ok()) return tensors.error();
  return ModelPlan{config.take(), tensors.take()};
}

std::int64_t count_parameters(const ModelPlan& plan) {
  const formats::WeightTensor* embedding = nullptr;
  std::int64_t count = 0;
  for (const MappedTensor& mapped : plan.tensors) {
    if (mapped.spec.role == Role::TokenEmbedding) embedding = mapped.tensor;
    const bool shares_embedding = mapped.spec.role == Role::Output && embedding != nullptr &&
                                  mapped.tensor->bytes.data() == embedding->bytes.data();
    if (!shares_embedding) count += mapped.tensor->shape.elements();
  }
  return count;
}

}  // namespace llorch::model
