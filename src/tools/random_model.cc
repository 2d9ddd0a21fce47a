#include "tools/random_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "compute/quantize.h"
#include "formats/gguf_writer.h"
#include "tools/export_tokenizer.h"

namespace llorch::tools {
namespace {

using formats::GgufTensor;
using tensor::DType;

constexpr std::array kShapes = {
    ModelShape{"smollm2-135m", "llama", 576, 30, 9, 3, 1536, 49152, 8192, true, false},
    ModelShape{"qwen2.5-0.5b", "qwen2", 896, 24, 14, 2, 4864, 151936, 32768, true, true},
    ModelShape{"tinyllama-1.1b", "llama", 2048, 22, 32, 4, 5632, 32000, 2048, false, false},
    ModelShape{"mistral-7b", "llama", 4096, 32, 32, 8, 14336, 32000, 32768, false, false},
};

// So many different rows are quantised for each type and width; matrices repeat them.
constexpr std::int64_t kRowsMade = 64;

void add_numbers(const ModelShape& shape, const WeightType& type, formats::GgufWriter& writer) {
  const std::string prefix(shape.architecture);
  writer.add_text("general.name", fmt::format("{} with random weights", shape.name));
  writer.add_number("general.file_type", type.file_type);
  const std::uint32_t head_dim = shape.hidden / shape.heads;
  for (const auto& [key, number] : {std::pair{"context_length", shape.context},
                                    {"embedding_length", shape.hidden},
                                    {"block_count", shape.layers},
                                    {"feed_forward_length", shape.feed_forward},
                                    {"attention.head_count", shape.heads},
                                    {"attention.head_count_kv", shape.kv_heads},
                                    {"rope.dimension_count", head_dim},
                                    {"vocab_size", shape.vocab}}) {
    writer.add_number(fmt::format("{}.{}", prefix, key), number);
  }
  writer.add_number(prefix + ".attention.layer_norm_rms_epsilon", 1e-5F);
  writer.add_number(prefix + ".rope.freq_base", 10000.0F);
}

// What a file without a tokenizer says in its place, or the tokenizer with the architecture.
Status add_tokenizer(const RandomModel& request, formats::GgufWriter& writer) {
  const ModelShape& shape = request.shape;
  if (request.tokenizer.empty()) {
    writer.add_text("general.architecture", shape.architecture);
    writer.add_text("tokenizer.ggml.model", "no_vocab");
    return ok_status();
  }
  const Result<GgufExport> exported = export_tokenizer(
      request.tokenizer, {shape.architecture, static_cast<std::int32_t>(shape.vocab)});
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
  const std::int64_t hidden = shape.hidden;
  const std::int64_t kv = std::int64_t{shape.kv_heads} * (shape.hidden / shape.heads);
  const std::int64_t inner = shape.feed_forward;
  std::vector<Entry> entries = {{"token_embd.weight", {shape.vocab, hidden}}};
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    const auto add = [&](std::string_view name, const tensor::Shape& dims) {
      entries.push_back({fmt::format("blk.{}.{}", layer, name), dims});
    };
    add("attn_norm.weight", {hidden});
    add("attn_q.weight", {hidden, hidden});
    add("attn_k.weight", {kv, hidden});
    add("attn_v.weight", {kv, hidden});
    if (shape.has_qkv_bias) {
      add("attn_q.bias", {hidden});
      add("attn_k.bias", {kv});
      add("attn_v.bias", {kv});
    }
    add("attn_output.weight", {hidden, hidden});
    add("ffn_norm.weight", {hidden});
    add("ffn_gate.weight", {inner, hidden});
    add("ffn_up.weight", {inner, hidden});
    add("ffn_down.weight", {hidden, inner});
  }
  entries.push_back({"output_norm.weight", {hidden}});
  if (!shape.tied_output) entries.push_back({"output.weight", {shape.vocab, hidden}});
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

Status write_random_model(const RandomModel& request, const std::filesystem::path& path) {
  const ModelShape& shape = request.shape;
  formats::GgufWriter writer;
  if (Status added = add_tokenizer(request, writer); !added.ok()) return added;
  add_numbers(shape, *request.type, writer);
  const ModelFacts facts{.num_layers = static_cast<std::int32_t>(shape.layers),
                         .has_output = !shape.tied_output};
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
