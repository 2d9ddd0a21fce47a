#include "model/architecture.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/utf8.h"
#include "model/architectures/decoder.h"
#include "model/architectures/defaults.h"
#include "model/architectures/families.h"
#include "model/architectures/gpt2.h"

namespace llorch::model {
namespace {

// A row of the table for a family after GPT-2.
Architecture decoder(std::string_view name, ReadConfig* read_config,
                     std::span<const TensorRow> tensors, const GgufForm& form = {},
                     std::string_view gguf_name = {}, std::string_view other_name = {}) {
  return {.name = name,
          .other_name = other_name,
          .gguf_name = gguf_name.empty() ? name : gguf_name,
          .read_config = read_config,
          .tensors = tensors,
          .gguf_form = form,
          .is_ignored = is_rotary_tensor};
}

}  // namespace

std::span<const Architecture> architectures() {
  constexpr GgufForm kPaired = {.paired_rows = true};
  constexpr GgufForm kPlusOne = {.norms_plus_one = true};
  const std::span<const TensorRow> split = decoder_tensors();
  const std::span<const TensorRow> fused = fused_decoder_tensors();
  const std::span<const TensorRow> post_normed = post_norm_decoder_tensors();
  static const std::array table = {
      gpt2_architecture(),
      decoder("llama", read_llama, split, kPaired),
      decoder("mistral", read_mistral, split, kPaired, "llama"),
      decoder("qwen2", read_qwen2, split),
      decoder("qwen3", read_qwen3, split),
      decoder("phi3", read_phi3, fused),
      decoder("gemma2", read_gemma2, post_normed, kPlusOne),
      decoder("gemma3", read_gemma3, post_normed, kPlusOne, "gemma3", "gemma3_text"),
  };
  return table;
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
    if (declared.value() == architecture.name || declared.value() == architecture.other_name)
      return &architecture;
    known.push_back(architecture.name);
  }
  return Error{ErrorCode::Unsupported,
               fmt::format("{}: architecture {} is not supported; known: {}", file.path().string(),
                           base::quoted(*declared), fmt::join(known, ", "))};
}

namespace {

// Checkpoints of a model without its head are saved without the first part of the names ("model.").
std::string_view omitted_prefix(const Architecture& architecture, const formats::WeightFile& file) {
  const std::string_view first = architecture.tensors.front().hf;
  const std::string_view prefix = first.substr(0, first.find('.') + 1);
  return file.find(first) == nullptr && file.find(first.substr(prefix.size())) != nullptr
             ? prefix
             : std::string_view();
}

}  // namespace

std::vector<TensorSpec> list_tensors(const Architecture& architecture, const ModelConfig& config,
                                     const formats::WeightFile& file) {
  const bool gguf = file.format() == formats::FileFormat::Gguf;
  const std::string_view omitted = gguf ? std::string_view() : omitted_prefix(architecture, file);
  std::vector<TensorSpec> specs;
  const auto add = [&](const TensorRow& row, std::int32_t layer) {
    if (row.when != nullptr && !(config.*row.when)) return;
    std::string_view pattern = gguf ? row.gguf : row.hf;
    if (!omitted.empty() && pattern.starts_with(omitted)) pattern.remove_prefix(omitted.size());
    TensorSpec spec{.role = row.role,
                    .layer = layer,
                    .name = tensor_name(pattern, layer),
                    .shape = row.shape(config),
                    .required = row.role != Role::Output || !config.tied_output};
    if (!gguf && architecture.gguf_form.transposed && layer >= 0 && spec.shape.rank() == 2) {
      spec.shape = {spec.shape[1], spec.shape[0]};
      spec.transposed = true;
    }
    spec.plus_one =
        !gguf && architecture.gguf_form.norms_plus_one && row.hf.ends_with("norm.weight");
    specs.push_back(std::move(spec));
  };
  const std::span<const TensorRow> rows = architecture.tensors;
  const auto first_layer_row = std::ranges::find_if(rows, &TensorRow::is_layer);
  const auto last_row = std::find_if_not(first_layer_row, rows.end(),
                                         [](const TensorRow& row) { return row.is_layer(); });
  for (const TensorRow& row : std::span(rows.begin(), first_layer_row)) add(row, -1);
  for (std::int32_t layer = 0; layer < config.num_layers; ++layer) {
    for (const TensorRow& row : std::span(first_layer_row, last_row)) add(row, layer);
  }
  for (const TensorRow& row : std::span(last_row, rows.end())) add(row, -1);
  return specs;
}

Result<ModelPlan> plan_model(const formats::WeightFile& file, const PlanOptions& options) {
  Result<const Architecture*> found = find_architecture(file);
  if (!found.ok()) return found.error();
  const Architecture& architecture = *found.value();
  Result<ModelConfig> config = architecture.read_config(file, options);
  if (!config.ok()) return config.error().in(file.path().string());
  if (Status valid = validate(config.value()); !valid.ok())
    return with_assumed(valid.error(), config.value()).in(file.path().string());
  Result<std::vector<MappedTensor>> tensors =
      map_tensors(list_tensors(architecture, config.value(), file), file, architecture.is_ignored);
  if (!tensors.ok()) return with_assumed(tensors.error(), config.value());
  if (options.context_length > 0)
    config->context_length = std::min(config->context_length, options.context_length);
  return ModelPlan{config.take(), tensors.take()};
}

void cut_vocabulary(ModelPlan& plan, std::int32_t num_ids) {
  CHECK(num_ids > 0);
  plan.config.vocab_size = std::min(plan.config.vocab_size, num_ids);
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
