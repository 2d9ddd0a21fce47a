#include "tools/inspect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/terminal.h"
#include "base/utf8.h"
#include "compute/dequantize.h"
#include "formats/open.h"
#include "model/architecture.h"
#include "template/chat_template.h"
#include "tokenizer/load.h"

namespace llorch::tools {
namespace {

using base::Color;
using base::TextTable;
using formats::FileSummary;
using formats::TypeShare;
using formats::WeightTensor;

// The message without the path in front: the reader has just typed it.
std::string without_path(std::string_view message, const std::filesystem::path& path) {
  const std::string prefix = path.string();
  if (!message.starts_with(prefix)) return std::string(message);
  message.remove_prefix(prefix.size());
  if (message.starts_with(": ")) return std::string(message.substr(2));
  if (message.starts_with('/')) return std::string(message.substr(1));  // a file of the folder
  return "it" + std::string(message);
}

// The weights: do they make a model whose numbers and types we have?
void check_weights(Inspection& inspection) {
  const formats::WeightFile& file = inspection.file;
  std::vector<std::string>& obstacles = inspection.obstacles;
  if (file.tensors().empty()) {
    obstacles.emplace_back("the file holds no weights, only a vocabulary or settings");
    return;
  }
  const Result<model::ModelPlan> plan = model::plan_model(file);
  if (plan.ok()) {
    inspection.assumed = plan->config.assumed;
  } else {
    obstacles.push_back(without_path(plan.error().message, file.path()));
  }
  // Each type once, with the first tensor that has it.
  std::array<std::int64_t, tensor::kNumDTypes> counts{};
  std::array<const WeightTensor*, tensor::kNumDTypes> first{};
  const auto note = [&](const WeightTensor& tensor) {
    const auto index = static_cast<std::size_t>(tensor.dtype);
    if (compute::can_dequantize(tensor.dtype)) return;
    if (counts[index]++ == 0) first[index] = &tensor;
  };
  // With a plan, only what it names: a mask of booleans that nobody reads is no obstacle.
  if (plan.ok()) {
    for (const model::MappedTensor& mapped : plan->tensors) note(*mapped.tensor);
  } else {
    for (const WeightTensor& tensor : file.tensors()) note(tensor);
  }
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    const std::string others = counts[i] > 1 ? fmt::format(" and {} more", counts[i] - 1) : "";
    obstacles.push_back(fmt::format("not supported: {} in {}{}", tensor::name(first[i]->dtype),
                                    first[i]->name, others));
  }
}

// The tokenizer, loaded as a worker loads it: without one no worker starts. A chat template that
// does not parse costs the chat endpoints alone.
void check_tokenizer(Inspection& inspection) {
  const Result<tokenizer::Tokenizer> loaded = tokenizer::load_tokenizer(inspection.path);
  if (!loaded.ok()) {
    inspection.obstacles.push_back("no usable tokenizer: " +
                                   without_path(loaded.error().message, inspection.path));
    return;
  }
  for (const char* name : {"default", "tool_use"}) {
    const std::string* source = loaded->chat_template(name);
    if (source == nullptr) continue;
    const Result<jinja::ChatTemplate> parsed = jinja::ChatTemplate::parse(*source);
    if (!parsed.ok() && inspection.template_error.empty())
      inspection.template_error = parsed.error().message;
  }
}

std::string plural(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string describe_heads(const FileSummary& summary) {
  std::string text = fmt::format("{}", *summary.num_heads);
  if (summary.num_kv_heads != summary.num_heads)
    text += fmt::format(", {} for keys and values", *summary.num_kv_heads);
  if (summary.head_dim) text += fmt::format(", {} wide", *summary.head_dim);
  return text;
}

// GGUF names a tokenizer after the model that had it first; people know the algorithm.
std::string_view kind_for_people(std::string_view kind) {
  if (kind == "gpt2") return "byte-level BPE";
  if (kind == "llama") return "SentencePiece";
  if (kind == "bert") return "WordPiece";
  if (kind == "t5") return "Unigram";
  return kind.empty() ? "of unknown kind" : kind;
}

std::string describe_tokenizer(const FileSummary& summary) {
  if (!summary.tokenizer) return "none found";
  const formats::TokenizerSummary& tokenizer = *summary.tokenizer;
  std::string text(kind_for_people(tokenizer.kind));
  if (!tokenizer.pre.empty() && tokenizer.pre != "default")
    text += fmt::format(", splits as {}", tokenizer.pre);
  if (tokenizer.source != "gguf") text += fmt::format(", in {}", tokenizer.source);
  // A padded embedding has more rows than the tokenizer has tokens.
  if (tokenizer.size > 0 && tokenizer.size != summary.vocab_size)
    text += fmt::format(", {} tokens", tokenizer.size);
  return text;
}

std::string describe_special_ids(const formats::TokenizerSummary& tokenizer) {
  std::string text;
  for (const auto& [name, id] : tokenizer.special_ids) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, id);
  }
  return text;
}

std::string describe_quantization(const FileSummary& summary) {
  if (summary.types.size() == 1) return summary.quantization;
  return fmt::format("{}: {}", summary.quantization, formats::describe_types(summary.types));
}

std::string describe_files(const FileSummary& summary) {
  return fmt::format("{}, {}, {}", formats::name(summary.format), plural(summary.num_files, "file"),
                     base::human_bytes(summary.file_bytes));
}

// "label  value" lines; what the file does not say is left out.
class FactList {
 public:
  static constexpr std::size_t kLineWidth = 80;
  static constexpr std::size_t kValueColumn = 18;

  explicit FactList(bool color) : color_(color) {}

  void add(std::string_view label, std::string_view value, Color color = Color::None) {
    if (value.empty()) return;
    const std::string lines = base::wrap(base::printable(value), kLineWidth, kValueColumn);
    text_ +=
        fmt::format("  {}  {}\n", base::paint(fmt::format("{:<14}", label), Color::Dim, color_),
                    base::paint(lines, color, color_));
  }
  void add(std::string_view label, const std::optional<std::int64_t>& value,
           std::string_view unit = "") {
    if (value) add(label, fmt::format("{}{}", *value, unit));
  }
  const std::string& text() const { return text_; }

 private:
  bool color_;
  std::string text_;
};

std::string report_types(const FileSummary& summary, bool color) {
  using enum TextTable::Align;
  double total = 0;
  for (const TypeShare& type : summary.types) total += static_cast<double>(type.elements);
  TextTable table({Left, Right, Right, Right, Right});
  table.add_row({"type", "tensors", "elements", "share", "size"}, Color::Dim);
  for (const TypeShare& type : summary.types) {
    const double percent = total > 0 ? 100 * static_cast<double>(type.elements) / total : 0;
    table.add_row({std::string(tensor::name(type.dtype)), fmt::format("{}", type.tensors),
                   base::human_count(type.elements),
                   percent < 0.1 ? std::string("<0.1 %") : fmt::format("{:.1f} %", percent),
                   base::human_bytes(type.bytes)});
  }
  return table.render(2, color);
}

std::string report_tensors(const formats::WeightFile& file, bool color) {
  using enum TextTable::Align;
  TextTable table({Left, Left, Right, Right});
  table.add_row({"tensor", "type", "shape", "size"}, Color::Dim);
  for (const WeightTensor& tensor : file.tensors()) {
    table.add_row({base::printable(tensor.name), std::string(tensor::name(tensor.dtype)),
                   tensor.shape.to_string(),
                   base::human_bytes(static_cast<std::int64_t>(tensor.bytes.size()))});
  }
  return table.render(2, color);
}

template <class T>
json::Value or_null(const std::optional<T>& value) {
  return value ? json::Value(*value) : json::Value(nullptr);
}

json::Value text_or_null(std::string_view text) {
  return text.empty() ? json::Value(nullptr) : json::Value(base::to_valid_utf8(text));
}

json::Value tokenizer_json(const std::optional<formats::TokenizerSummary>& tokenizer) {
  if (!tokenizer) return nullptr;
  json::Object ids;
  for (const auto& [name, id] : tokenizer->special_ids) ids[name] = id;
  return json::Object{
      {"source", tokenizer->source},         {"kind", text_or_null(tokenizer->kind)},
      {"pre", text_or_null(tokenizer->pre)}, {"size", tokenizer->size},
      {"special_ids", std::move(ids)},       {"chat_template", tokenizer->has_chat_template}};
}

json::Array types_json(const FileSummary& summary) {
  json::Array types;
  for (const TypeShare& type : summary.types) {
    types.push_back(json::Object{{"type", tensor::name(type.dtype)},
                                 {"tensors", type.tensors},
                                 {"elements", type.elements},
                                 {"bytes", type.bytes}});
  }
  return types;
}

json::Array tensors_json(const formats::WeightFile& file) {
  json::Array tensors;
  for (const WeightTensor& tensor : file.tensors()) {
    json::Array shape;
    for (const std::int64_t dim : tensor.shape.dims()) shape.emplace_back(dim);
    tensors.push_back(json::Object{{"name", base::to_valid_utf8(tensor.name)},
                                   {"type", tensor::name(tensor.dtype)},
                                   {"shape", std::move(shape)},
                                   {"bytes", tensor.bytes.size()}});
  }
  return tensors;
}

}  // namespace

Result<Inspection> inspect(const std::filesystem::path& path) {
  Result<formats::WeightFile> file = formats::open_weights(path);
  if (!file.ok()) return file.error();
  FileSummary summary = formats::summarize(file.value());
  Inspection inspection{path, file.take(), std::move(summary), {}, {}, {}};
  check_weights(inspection);
  check_tokenizer(inspection);
  return inspection;
}

std::string report_text(const Inspection& inspection, bool tensors, bool color) {
  const FileSummary& summary = inspection.summary;
  FactList facts(color);
  facts.add("name", summary.name);
  facts.add("architecture", summary.architecture.empty() ? "not stated" : summary.architecture);
  facts.add("format", describe_files(summary));
  if (summary.num_tensors > 0) {
    facts.add("parameters", fmt::format("{} in {}", base::human_count(summary.parameters),
                                        plural(summary.num_tensors, "tensor")));
    facts.add("quantisation", describe_quantization(summary));
  }
  facts.add("context", summary.context_length, " tokens");
  facts.add("vocabulary", summary.vocab_size, " tokens");
  facts.add("layers", summary.num_layers);
  facts.add("embedding", summary.embedding_length);
  if (summary.num_heads) facts.add("heads", describe_heads(summary));
  facts.add("feed-forward", summary.ffn_length);
  facts.add("tokenizer", describe_tokenizer(summary));
  if (summary.tokenizer) {
    facts.add("special ids", describe_special_ids(*summary.tokenizer));
    if (inspection.template_error.empty()) {
      facts.add("chat template", summary.tokenizer->has_chat_template ? "yes" : "no");
    } else {
      facts.add("chat template", "not usable: " + inspection.template_error, Color::Red);
    }
  }
  facts.add("defaults", fmt::format("{}", fmt::join(inspection.assumed, ", ")));
  std::string text = base::paint(base::printable(inspection.path.string()), Color::Bold, color) +
                     "\n" + facts.text();
  if (summary.types.size() > 1) text += "\n" + report_types(summary, color);
  if (tensors && summary.num_tensors > 0) text += "\n" + report_tensors(inspection.file, color);
  FactList verdict(color);
  if (inspection.runs_here()) verdict.add("runs here:", "yes", Color::Green);
  for (const std::string& obstacle : inspection.obstacles) {
    verdict.add(&obstacle == &inspection.obstacles.front() ? "runs here:" : "", "no: " + obstacle,
                Color::Red);
  }
  return text + "\n" + verdict.text();
}

json::Object report_json(const Inspection& inspection) {
  const FileSummary& summary = inspection.summary;
  json::Array files;
  for (const auto& file : inspection.file.files())
    files.emplace_back(base::to_valid_utf8(file->path().string()));
  json::Array obstacles;
  for (const std::string& obstacle : inspection.obstacles)
    obstacles.emplace_back(base::to_valid_utf8(obstacle));
  json::Array assumed;
  for (const std::string& value : inspection.assumed) assumed.emplace_back(value);
  return {{"path", base::to_valid_utf8(inspection.path.string())},
          {"format", formats::name(summary.format)},
          {"files", std::move(files)},
          {"file_bytes", summary.file_bytes},
          {"name", text_or_null(summary.name)},
          {"architecture", text_or_null(summary.architecture)},
          {"parameters", summary.parameters},
          {"quantization", text_or_null(summary.quantization)},
          {"context_length", or_null(summary.context_length)},
          {"vocab_size", or_null(summary.vocab_size)},
          {"num_layers", or_null(summary.num_layers)},
          {"embedding_length", or_null(summary.embedding_length)},
          {"num_heads", or_null(summary.num_heads)},
          {"num_kv_heads", or_null(summary.num_kv_heads)},
          {"head_dim", or_null(summary.head_dim)},
          {"ffn_length", or_null(summary.ffn_length)},
          {"tokenizer", tokenizer_json(summary.tokenizer)},
          {"tensor_bytes", summary.tensor_bytes},
          {"types", types_json(summary)},
          {"tensors", tensors_json(inspection.file)},
          {"runs_here", inspection.runs_here()},
          {"obstacles", std::move(obstacles)},
          {"chat_template_error", text_or_null(inspection.template_error)},
          {"assumed", std::move(assumed)}};
}

}  // namespace llorch::tools
