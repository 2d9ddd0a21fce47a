#include "tools/random_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "compute/quantize.h"
#include "formats/gguf_writer.h"
#include "formats/open.h"
#include "model/architecture.h"
#include "model/rope.h"
#include "tools/export_tokenizer.h"
#include "tools/gguf_numbers.h"

namespace llorch::tools {
namespace {

using formats::GgufTensor;
using tensor::DType;

constexpr std::array kShapes = {
    ModelShape{"gpt2", "gpt2", 768, 12, 12, 12, 3072, 50257, 1024, true},
    ModelShape{"gpt2-medium", "gpt2", 1024, 24, 16, 16, 4096, 50257, 1024, true},
    ModelShape{"smollm2-135m", "llama", 576, 30, 9, 3, 1536, 49152, 8192, true, 1e-5F, 100000},
    ModelShape{"qwen2.5-0.5b", "qwen2", 896, 24, 14, 2, 4864, 151936, 32768, true, 1e-6F, 1e6},
    ModelShape{"tinyllama-1.1b", "llama", 2048, 22, 32, 4, 5632, 32000, 2048, false},
    ModelShape{"phi-3-mini", "phi3", 3072, 32, 32, 32, 8192, 32064, 4096, false, 1e-5F, 1e4, 2047},
    ModelShape{"mistral-7b", "llama", 4096, 32, 32, 8, 14336, 32000, 32768, false, 1e-5F, 1e6},
};

// So many different rows are quantised for each type and width; matrices repeat them.
constexpr std::int64_t kRowsMade = 64;

const model::Architecture& architecture_of(const ModelShape& shape) {
  const auto all = model::architectures();
  const auto found = std::ranges::find(all, shape.architecture, &model::Architecture::name);
  CHECK(found != all.end(), "a shape of an architecture that there is not");
  return *found;
}

model::ModelConfig config_of(const ModelShape& shape) {
  model::ModelConfig config;
  config.architecture = shape.architecture;
  config.vocab_size = shape.vocab;
  config.context_length = shape.context;
  config.hidden_dim = shape.hidden;
  config.num_layers = shape.layers;
  config.num_heads = shape.heads;
  config.num_kv_heads = shape.kv_heads;
  config.head_dim = shape.hidden / shape.heads;
  config.ffn_dim = shape.feed_forward;
  config.norm_epsilon = shape.norm_epsilon;
  config.tied_output = shape.tied_output;
  config.qkv_bias = shape.architecture == "qwen2";
  config.learned_positions = shape.architecture == "gpt2";
  if (config.learned_positions) return config;
  config.norm = model::NormKind::RmsNorm;
  config.gated_mlp = true;
  config.ropes.push_back(
      model::make_rope({.theta = shape.rope_theta, .rotary_dim = config.head_dim},
                       compute::RopeStyle::Half)
          .take());
  config.attention.assign(static_cast<std::size_t>(shape.layers),
                          {.window = shape.window, .rope = 0});
  return config;
}

Status add_numbers(const ModelShape& shape, const WeightType& type, formats::GgufWriter& writer) {
  writer.add_text("general.name", fmt::format("{} with random weights", shape.name));
  writer.add_number("general.file_type", type.file_type);
  formats::Metadata numbers;
  const Status added =
      add_model_numbers(config_of(shape), architecture_of(shape).gguf_name, numbers);
  if (!added.ok()) return added;
  for (const auto& [key, value] : numbers.entries())
    writer.add_value(key, value, numbers.stored_type(key));
  return ok_status();
}

// Of a GGUF file, with weights or with a vocabulary alone: its keys as they are.
Status copy_tokenizer(const RandomModel& request, formats::GgufWriter& writer) {
  const Result<formats::WeightFile> file = formats::open_weights(request.tokenizer);
  if (!file.ok()) return file.error();
  const Result<std::vector<std::string_view>> tokens =
      file->metadata().texts("tokenizer.ggml.tokens");
  if (!tokens.ok()) return tokens.error().in(request.tokenizer.string());
  if (std::cmp_not_equal(tokens->size(), request.shape.vocab))
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} has {} tokens, expected the {} of {}", request.tokenizer.string(),
                             tokens->size(), request.shape.vocab, request.shape.name)};
  writer.add_text("general.architecture", architecture_of(request.shape).gguf_name);
  for (const auto& [key, value] : file->metadata().entries())
    if (key.starts_with("tokenizer."))
      writer.add_value(key, value, file->metadata().stored_type(key));
  return ok_status();
}

// What a file without a tokenizer says in its place, or the tokenizer with the architecture.
Status add_tokenizer(const RandomModel& request, formats::GgufWriter& writer) {
  const ModelShape& shape = request.shape;
  if (request.tokenizer.empty()) {
    writer.add_text("general.architecture", architecture_of(shape).gguf_name);
    writer.add_text("tokenizer.ggml.model", "no_vocab");
    return ok_status();
  }
  if (request.tokenizer.extension() == ".gguf") return copy_tokenizer(request, writer);
  const Result<GgufExport> exported =
      export_tokenizer(request.tokenizer, {architecture_of(shape).gguf_name, shape.vocab});
  if (!exported.ok()) return exported.error();
  for (const auto& [key, value] : exported->metadata.entries())
    writer.add_value(key, value, exported->metadata.stored_type(key));
  return ok_status();
}

struct Entry {
  std::string name;
  tensor::Shape shape;
};
std::vector<Entry> list_entries(const ModelShape& shape) {
  const model::ModelConfig config = config_of(shape);
  std::vector<Entry> entries;
  for (const model::TensorRow& row : architecture_of(shape).tensors) {
    if (row.when != nullptr && !(config.*row.when)) continue;
    if (row.role == model::Role::Output && config.tied_output) continue;
    for (std::int32_t layer = 0; layer < (row.is_layer() ? config.num_layers : 1); ++layer)
      entries.push_back({model::tensor_name(row.gguf, layer), row.shape(config)});
  }
  return entries;
}

// `rows` rows of random numbers that keep the size of what they multiply; ones for norms.
Result<std::vector<std::byte>> make_rows(const Entry& entry, DType dtype, std::int64_t rows,
                                         std::uint32_t seed) {
  const std::int64_t columns = entry.shape[entry.shape.rank() - 1];
  std::vector<float> values(static_cast<std::size_t>(rows * columns));
  const bool is_norm = entry.name.ends_with("_norm.weight");
  std::minstd_rand random(static_cast<std::uint32_t>(columns) + seed);
  const float size = std::sqrt(3.0F / static_cast<float>(columns));
  for (float& value : values) {
    const float unit = static_cast<float>(random() % 65536) / 32768.0F - 1.0F;
    value = is_norm ? 1.0F : unit * size;
  }
  std::vector<std::byte> bytes(
      static_cast<std::size_t>(tensor::storage_bytes(dtype, rows * columns).value()));
  if (const Status done = compute::quantize(dtype, values, bytes); !done.ok()) return done.error();
  return bytes;
}

// The same rows again and again, as many as the tensor has.
GgufTensor repeat_rows(const Entry& entry, DType dtype, std::vector<std::byte> made,
                       std::int64_t rows_made) {
  const std::int64_t rows = entry.shape.rank() > 1 ? entry.shape[0] : 1;
  GgufTensor tensor{.name = entry.name, .dtype = dtype, .shape = entry.shape, .bytes = {}};
  tensor.produce = [made = std::move(made), rows, rows_made](const GgufTensor::Sink& sink) {
    const std::size_t row_bytes = made.size() / static_cast<std::size_t>(rows_made);
    for (std::int64_t row = 0; row < rows; row += rows_made) {
      const auto count = static_cast<std::size_t>(std::min(rows_made, rows - row));
      if (Status put = sink(std::span(made).first(count * row_bytes)); !put.ok()) return put;
    }
    return ok_status();
  };
  return tensor;
}

}  // namespace

std::span<const ModelShape> model_shapes() {
  return kShapes;
}

const ModelShape* find_model_shape(std::string_view name) {
  const auto found = std::ranges::find(kShapes, name, &ModelShape::name);
  return found == kShapes.end() ? nullptr : &*found;
}

std::int64_t count_parameters(const ModelShape& shape) {
  std::int64_t count = 0;
  for (const Entry& entry : list_entries(shape)) count += entry.shape.elements();
  return count;
}

Status write_random_model(const RandomModel& request, const std::filesystem::path& path) {
  const ModelShape& shape = request.shape;
  formats::GgufWriter writer;
  if (Status added = add_tokenizer(request, writer); !added.ok()) return added;
  if (Status added = add_numbers(shape, *request.type, writer); !added.ok()) return added;
  const ModelFacts facts{.num_layers = shape.layers, .has_output = !shape.tied_output};
  for (const Entry& entry : list_entries(shape)) {
    const DType dtype = choose_type(*request.type, entry.name, entry.shape, facts).dtype;
    const std::int64_t rows =
        entry.shape.rank() > 1 ? std::min(entry.shape[0], kRowsMade) : std::int64_t{1};
    Result<std::vector<std::byte>> made = make_rows(entry, dtype, rows, request.seed);
    if (!made.ok()) return made.error().in(entry.name);
    writer.add_tensor(repeat_rows(entry, dtype, made.take(), rows));
  }
  return writer.write(path);
}

}  // namespace llorch::tools
