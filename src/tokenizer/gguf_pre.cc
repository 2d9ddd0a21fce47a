#include "tokenizer/gguf_pre.h"

#include <algorithm>
#include <utility>

#include "tokenizer/pretokenize.h"

namespace llorch::tokenizer {
namespace {

// The expressions are facts of the models: each is what the model's own tokenizer.json says.
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepSeek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct Entry {
  std::vector<std::string_view> names;
  GgufPre pre;
};

std::vector<Entry> make_entries() {
  std::vector<Entry> entries;
  const auto add = [&](std::vector<std::string_view> names, GgufPre pre) {
    entries.push_back({std::move(names), std::move(pre)});
  };
  add({"gpt-2", "phi-2", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "gigachat", "a.x-4.0",
       "mellum", "modern-bert", "mpt", "olmo", "jais", "trillion", "granite-docling"},
      {.expressions = {kGpt2Expression}});
  add({"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"},
      {.expressions = {kLlama3Expression}, .ignore_merges = true, .adds_bos = true});
  add({"dbrx", "smaug-bpe", "glm4", "chatglm-bpe"}, {.expressions = {kLlama3Expression}});
  add({"qwen2", "deepseek-r1-qwen"}, {.expressions = {kQwen2Expression}, .composes = true});
  add({"qwen35"}, {.expressions = {kQwen35}, .composes = true});
  add({"stablelm2", "megrez", "kormo", "hunyuan", "grok-2"}, {.expressions = {kQwen2Expression}});
  add({"smollm", "starcoder", "refact", "codeshell", "minerva-7b"},
      {.expressions = {R"(\p{N})", kGpt2Expression}});
  add({"command-r"}, {.expressions = {R"(\p{N})", kGpt2Expression}, .composes = true});
  add({"tekken"}, {.expressions = {kTekken}, .ignore_merges = true, .adds_bos = true});
  add({"gpt-4o", "llama4", "minimax-m2"}, {.expressions = {kGpt4o}});
  add({"deepseek-v3", "hunyuan-dense"},
      {.expressions = {R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+", kDeepSeek3}});
  add({"deepseek-coder"}, {.expressions = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)",
                                           "[一-龥ࠀ-一가-퟿]+", R"(\p{N})"}});
  return entries;
}

const std::vector<Entry>& all_entries() {
  static const std::vector<Entry> entries = make_entries();
  return entries;
}

}  // namespace

std::vector<std::string_view> published_expressions() {
  std::vector<std::string_view> all;
  for (const Entry& entry : all_entries())
    all.insert(all.end(), entry.pre.expressions.begin(), entry.pre.expressions.end());
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

std::string_view find_gguf_pre_name(const GgufPre& rules) {
  for (const Entry& entry : all_entries()) {
    if (entry.pre.expressions == rules.expressions && entry.pre.composes == rules.composes &&
        entry.pre.ignore_merges == rules.ignore_merges) {
      return entry.names.front();
    }
  }
  return {};
}

const GgufPre* find_gguf_pre(std::string_view name) {
  for (const Entry& entry : all_entries()) {
    if (std::find(entry.names.begin(), entry.names.end(), name) != entry.names.end())
      return &entry.pre;
  }
  return nullptr;
}

}  // namespace llorch::tokenizer
