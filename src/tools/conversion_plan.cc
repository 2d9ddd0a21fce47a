#include "tools/conversion_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/utf8.h"
#include "compute/dequantize.h"
#include "formats/open.h"
#include "model/architecture.h"
#include "tools/export_tokenizer.h"
#include "tools/gguf_numbers.h"

namespace llorch::tools {
namespace {

using formats::ElementType;
using formats::Metadata;
using formats::WeightFile;
using model::ModelConfig;

constexpr std::uint64_t kQuantizationVersion = 2;  // of the block layouts

Status add_general(const WeightType& type, Metadata& metadata) {
  Status added = metadata.add("general.file_type", std::uint64_t{type.file_type}, ElementType::U32);
  if (!added.ok()) return added;
  return metadata.add("general.quantization_version", kQuantizationVersion, ElementType::U32);
}

// ---- From Hugging Face files

Result<Metadata> start_metadata(const PlanRequest& request, const model::Architecture& architecture,
                                const ModelConfig& config, std::vector<std::string>& notes) {
  if (request.without_tokenizer) {
    Metadata metadata;
    for (const auto& [key, value] :
         {std::pair{"general.architecture", architecture.gguf_name},
          std::pair{"tokenizer.ggml.model", std::string_view("no_vocab")}}) {
      if (Status added = metadata.add(key, std::string(value)); !added.ok()) return added.error();
    }
    notes.emplace_back("the file has no tokenizer: no worker starts on it");
    return metadata;
  }
  Result<GgufExport> exported =
      export_tokenizer(request.input, {architecture.gguf_name, config.vocab_size});
  if (!exported.ok()) {
    Error error = exported.error();
    error.message += ". With --no-tokenizer only the weights are written";
    return error;
  }
  for (std::string& note : exported->notes) notes.push_back(std::move(note));
  return std::move(exported->metadata);
}

// The folder's name, which is what people call the model.
std::string model_name(const std::filesystem::path& input) {
  const std::filesystem::path path = std::filesystem::absolute(input).lexically_normal();
  const std::filesystem::path folder =
      std::filesystem::is_directory(path) ? path : path.parent_path();
  return (folder.has_filename() ? folder : folder.parent_path()).filename().string();
}

bool is_rotated(const model::Architecture& architecture, const model::TensorSpec& spec) {
  return std::ranges::any_of(architecture.tensors, [&](const model::TensorRow& row) {
    return row.rotated && model::tensor_name(row.gguf, spec.layer) == spec.name;
  });
}

// The specs of both sides come from the same rows of the same table, so they go in pairs.
std::vector<PlannedTensor> pair_tensors(const model::Architecture& architecture,
                                        const ModelConfig& config, const WeightFile& source,
                                        const WeightFile& target) {
  const std::vector<model::TensorSpec> from = list_tensors(architecture, config, source);
  const std::vector<model::TensorSpec> to = list_tensors(architecture, config, target);
  CHECK(from.size() == to.size(), "both sides list the same tensors");
  std::vector<PlannedTensor> tensors;
  for (std::size_t i = 0; i < from.size(); ++i) {
    const formats::WeightTensor* found = source.find(from[i].name);
    const bool is_copy = from[i].role == model::Role::Output && config.tied_output;
    if (found == nullptr || is_copy) continue;
    PlannedTensor tensor;
    tensor.name = to[i].name;
    tensor.shape = to[i].shape;
    tensor.source = found;
    tensor.transposed = from[i].transposed;
    tensor.plus_one = from[i].plus_one;
    if (architecture.gguf_form.paired_rows && is_rotated(architecture, to[i]))
      tensor.paired_head_dim = config.head_dim;
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

// Whether the file has an output matrix of its own, whatever config.json says of a tied one: what
// transformers finds beside other embeddings it does not tie, and neither do we.
bool has_own_output(const model::Architecture& architecture, const ModelConfig& config,
                    const WeightFile& source) {
  const formats::WeightTensor* output = nullptr;
  const formats::WeightTensor* embedding = nullptr;
  for (const model::TensorSpec& spec : list_tensors(architecture, config, source)) {
    if (spec.role == model::Role::Output) output = source.find(spec.name);
    if (spec.role == model::Role::TokenEmbedding) embedding = source.find(spec.name);
  }
  if (output == nullptr || embedding == nullptr) return false;
  return output->dtype != embedding->dtype || !std::ranges::equal(output->bytes, embedding->bytes);
}

PlannedTensor make_table(std::string name, std::vector<float> values) {
  PlannedTensor table;
  table.name = std::move(name);
  table.shape = {static_cast<std::int64_t>(values.size())};
  table.made = std::move(values);
  return table;
}

std::vector<float> narrow(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

// Rotations that GGUF describes by a table of divisors.
Status add_rotary_tables(const WeightFile& source, const ModelConfig& config,
                         std::vector<PlannedTensor>& tensors) {
  if (config.ropes.empty()) return ok_status();
  const model::RopeConfig& rope = config.ropes.front();
  const model::RopeParameters& recipe = rope.recipe;
  if (recipe.scaling == model::RopeScaling::Llama3) {
    std::vector<float> divisors;
    for (std::size_t i = 0; i < rope.frequencies.size(); ++i) {
      const double plain =
          std::pow(recipe.theta, -2.0 * static_cast<double>(i) / recipe.rotary_dim);
      divisors.push_back(static_cast<float>(plain / double{rope.frequencies[i]}));
    }
    tensors.push_back(make_table("rope_freqs.weight", std::move(divisors)));
  }
  if (recipe.scaling != model::RopeScaling::LongRope) return ok_status();
  const auto original = static_cast<std::int32_t>(recipe.original_context);
  for (const auto& [name, context] : {std::pair{"rope_factors_long.weight", 0},
                                      std::pair{"rope_factors_short.weight", original}}) {
    Result<model::ModelPlan> plan = model::plan_model(source, {.context_length = context});
    if (!plan.ok()) return plan.error();
    tensors.push_back(make_table(name, narrow(plan->config.ropes.front().recipe.divisors)));
  }
  return ok_status();
}

// ---- From GGUF

bool is_rewritten(std::string_view key) {
  return key == "general.file_type" || key == "general.quantization_version" ||
         key == "general.alignment" || key.starts_with("split.");
}

Status copy_metadata(const Metadata& from, Metadata& to) {
  for (const auto& [key, value] : from.entries()) {
    if (is_rewritten(key)) continue;
    if (Status added = to.add(key, value, from.stored_type(key)); !added.ok()) return added;
  }
  return ok_status();
}

std::vector<PlannedTensor> copy_tensors(const WeightFile& source) {
  std::vector<PlannedTensor> tensors;
  for (const formats::WeightTensor& tensor : source.tensors()) {
    PlannedTensor planned;
    planned.name = tensor.name;
    planned.shape = tensor.shape;
    planned.source = &tensor;
    tensors.push_back(std::move(planned));
  }
  return tensors;
}

// ---- Both

Status choose_types(const WeightType& type, const ModelConfig& config, ConversionPlan& plan) {
  ModelFacts facts;
  facts.num_layers = config.num_layers;
  facts.has_output = std::ranges::any_of(
      plan.tensors, [](const PlannedTensor& tensor) { return tensor.name == "output.weight"; });
  int requantised = 0;
  for (PlannedTensor& tensor : plan.tensors) {
    const TypeChoice choice = choose_type(type, tensor.name, tensor.shape, facts);
    tensor.dtype = choice.dtype;
    tensor.fell_back = choice.fell_back;
    if (tensor.source == nullptr || tensor.source->dtype == choice.dtype) continue;
    if (!compute::can_dequantize(tensor.source->dtype)) {
      return Error{ErrorCode::Unsupported,
                   fmt::format("tensor {}: {} cannot be decoded; start from the unquantised model",
                               base::quoted(tensor.name), tensor::name(tensor.source->dtype))};
    }
    if (tensor::is_block_type(tensor.source->dtype)) ++requantised;
  }
  if (requantised > 0) {
    plan.notes.push_back(fmt::format(
        "{} tensors were quantised already: what that lost stays lost, and this adds to "
        "it. Start from the unquantised model where you have it",
        requantised));
  }
  return ok_status();
}

void note_fallbacks(ConversionPlan& plan) {
  std::int64_t count = 0, columns = 0;
  std::string types;
  for (const PlannedTensor& tensor : plan.tensors) {
    if (!tensor.fell_back) continue;
    ++count;
    columns = tensor.shape[tensor.shape.rank() - 1];
    const std::string name(tensor::name(tensor.dtype));
    if (types.find(name) == std::string::npos) types += (types.empty() ? "" : ", ") + name;
  }
  if (count == 0) return;
  plan.notes.push_back(fmt::format(
      "{} tensors have rows (of {} values, for example) that are not whole blocks of their type; "
      "they are stored as {}",
      count, columns, types));
}

Status describe_target(ConversionPlan& plan, WeightFile& target) {
  for (const PlannedTensor& tensor : plan.tensors) {
    formats::WeightTensor described;
    described.name = tensor.name;
    described.dtype = tensor.dtype;
    described.shape = tensor.shape;
    // Rotary tables are numbers of the model, too, and looked at.
    described.bytes = std::as_bytes(std::span(tensor.made));
    if (tensor.source != nullptr && tensor.source->dtype == tensor.dtype)
      described.bytes = tensor.source->bytes;
    if (Status added = target.add_tensor(std::move(described)); !added.ok()) return added;
  }
  return ok_status();
}

// Reads the file to be as if it were there.
Status check_target(const ModelConfig& before, const WeightFile& target) {
  const auto inexpressible = [](std::string_view why) {
    return Error{ErrorCode::Unsupported, fmt::format("GGUF cannot hold this model: {}", why)};
  };
  const Result<model::ModelPlan> after = model::plan_model(target);
  if (!after.ok()) return inexpressible(after.error().message);
  const std::string difference = find_difference(before, after->config);
  return difference.empty() ? ok_status() : Status(inexpressible(difference));
}

// A scale of attention that readers would not guess is stated; not every reader listens.
Status state_scale(const ModelConfig& before, std::string_view prefix, WeightFile& target,
                   std::vector<std::string>& notes) {
  const Result<model::ModelPlan> after = model::plan_model(target);
  if (!after.ok()) return ok_status();  // check_target says it
  const float scale = attention_scale(before), guessed = attention_scale(after->config);
  if (std::abs(scale - guessed) <= 1e-6F * scale) return ok_status();
  notes.push_back(fmt::format(
      "attention is scaled by {:.6g}, not by {:.6g} as usual: llama.cpp does not read this from a "
      "file and will compute something else",
      scale, guessed));
  return target.mutable_metadata().add(fmt::format("{}.attention.scale", prefix), double{scale},
                                       ElementType::F32);
}

// llama.cpp runs files of these architectures without their sliding window.
void note_window(const ModelConfig& config, std::string_view architecture,
                 std::vector<std::string>& notes) {
  if (architecture != "llama" && architecture != "phi3") return;
  const std::int32_t window = config.layer_attention(0).window;
  if (window == 0 || window >= config.context_length) return;
  notes.push_back(fmt::format(
      "attention sees the last {} tokens; the file says so, but llama.cpp lets {} models see "
      "everything: its answers differ beyond {} tokens",
      window, architecture, window));
}

}  // namespace

Result<ConversionPlan> plan_conversion(const PlanRequest& request) {
  Result<WeightFile> opened = formats::open_weights(request.input);
  if (!opened.ok()) return opened.error();
  ConversionPlan plan;
  const auto source = std::make_shared<const WeightFile>(opened.take());
  plan.source = source;
  Result<const model::Architecture*> architecture = model::find_architecture(*source);
  if (!architecture.ok()) return architecture.error();
  Result<model::ModelPlan> before = model::plan_model(*source);
  if (!before.ok()) return before.error();
  ModelConfig& config = before->config;
  config.tied_output =
      config.tied_output && !has_own_output(*architecture.value(), config, *source);

  const auto target = std::make_shared<WeightFile>(formats::FileFormat::Gguf, request.output);
  plan.target = target;
  Status made = ok_status();
  if (source->format() == formats::FileFormat::Gguf) {
    made = copy_metadata(source->metadata(), target->mutable_metadata());
    plan.tensors = copy_tensors(*source);
  } else {
    Result<Metadata> metadata = start_metadata(request, *architecture.value(), config, plan.notes);
    if (!metadata.ok()) return metadata.error();
    target->mutable_metadata() = metadata.take();
    made = target->mutable_metadata().add("general.name", model_name(request.input));
    if (made.ok()) {
      made = add_model_numbers(config, architecture.value()->gguf_name, target->mutable_metadata());
    }
    plan.tensors = pair_tensors(*architecture.value(), config, *source, *target);
    if (made.ok()) made = add_rotary_tables(*source, config, plan.tensors);
  }
  if (made.ok()) made = add_general(*request.type, target->mutable_metadata());
  if (made.ok()) made = choose_types(*request.type, config, plan);
  if (made.ok()) made = describe_target(plan, *target);
  if (made.ok() && source->format() != formats::FileFormat::Gguf)
    made = state_scale(config, architecture.value()->gguf_name, *target, plan.notes);
  if (made.ok()) made = check_target(config, *target);
  if (!made.ok()) return made.error().in(request.input.string());
  note_fallbacks(plan);
  note_window(config, architecture.value()->gguf_name, plan.notes);
  return plan;
}

}  // namespace llorch::tools
