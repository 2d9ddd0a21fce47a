#include "model/architectures/defaults.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "model/architectures/decoder.h"

namespace llorch::model {
namespace {

using formats::Metadata;

constexpr std::string_view kPrefix = "config.";

constexpr KeyRule<std::int32_t> context(std::int32_t tokens) {
  return {"max_position_embeddings", tokens};
}
// As many as query heads, also where null says so.
constexpr KeyRule<std::int32_t> kOnePerQuery = {"num_key_value_heads", 0, 0};
constexpr KeyRule<std::int32_t> kQwenHeads = {"num_key_value_heads", 32, 0};
constexpr KeyRule<std::int32_t> kDerivedHead = {"head_dim", 0, 0};
constexpr KeyRule<float> epsilon(float value) {
  return {"rms_norm_eps", value};
}
constexpr KeyRule<std::string_view> kSilu = {"hidden_act", "silu"};
constexpr KeyRule<std::string_view> kGelu = {"hidden_activation", "gelu_pytorch_tanh"};
constexpr KeyRule<bool> tied(bool value) {
  return {"tie_word_embeddings", value};
}
constexpr KeyRule<std::int32_t> window(std::int32_t tokens) {
  return {"sliding_window", tokens, 0};
}
constexpr KeyRule<float> attention_cap(float value) {
  return {"attn_logit_softcapping", value, 0.0F};
}
constexpr KeyRule<float> logit_cap(float value) {
  return {"final_logit_softcapping", value, 0.0F};
}

constexpr KeyRule<std::int32_t> heads(std::int32_t count) {
  return {"num_key_value_heads", count};
}
constexpr KeyRule<std::int32_t> head_of(std::int32_t size) {
  return {"head_dim", size};
}

// Llama and its relatives.
constexpr FamilyDefaults silu_family(std::string_view family, std::int32_t context_length,
                                     const KeyRule<std::int32_t>& kv_heads,
                                     const KeyRule<std::int32_t>& head_dim,
                                     const KeyRule<std::int32_t>& sliding) {
  return {.family = family,
          .context_length = context(context_length),
          .num_kv_heads = kv_heads,
          .head_dim = head_dim,
          .norm_epsilon = epsilon(1e-6F),
          .activation = kSilu,
          .tied_output = tied(false),
          .window = sliding};
}

constexpr FamilyDefaults gemma_family(std::string_view family, std::int32_t context_length,
                                      float attention_softcap, float logit_softcap) {
  return {.family = family,
          .context_length = context(context_length),
          .num_kv_heads = heads(4),
          .head_dim = head_of(256),
          .norm_epsilon = epsilon(1e-6F),
          .activation = kGelu,
          .tied_output = tied(true),
          .window = window(4096),
          .query_scalar = {"query_pre_attn_scalar", 256},
          .attention_softcap = attention_cap(attention_softcap),
          .logit_softcap = logit_cap(logit_softcap)};
}

constexpr FamilyDefaults phi3_family() {
  FamilyDefaults phi3 = silu_family("phi3", 4096, kOnePerQuery, head_of(0), window(0));
  phi3.norm_epsilon = epsilon(1e-5F);
  phi3.original_context = 4096;
  return phi3;
}

constexpr FamilyDefaults gemma3_family() {
  FamilyDefaults gemma3 = gemma_family("gemma3", 131072, 0, 0);
  gemma3.rope_theta = 1e6;
  gemma3.local_rope_theta = 10000;
  return gemma3;
}

constexpr std::array kFamilies = {
    FamilyDefaults{.family = "gpt2",
                   .context_length = {"n_positions", 1024},
                   .norm_epsilon = {"layer_norm_epsilon", 1e-5F},
                   .activation = {"activation_function", "gelu_new"},
                   .tied_output = tied(true)},
    silu_family("llama", 2048, kOnePerQuery, kDerivedHead, {}),
    silu_family("mistral", 131072, heads(8), kDerivedHead, window(4096)),
    silu_family("qwen2", 32768, kQwenHeads, head_of(0), window(4096)),
    silu_family("qwen3", 32768, kQwenHeads, head_of(128), window(4096)),
    phi3_family(),
    gemma_family("gemma2", 8192, 50, 30),
    gemma3_family(),
};

std::string full_key(std::string_view key) {
  return fmt::format("{}{}", kPrefix, key);
}

// Nothing: the key has a value of its own to read.
template <class T>
Result<std::optional<T>> unstated(const Metadata& metadata, const KeyRule<T>& rule) {
  const std::string key = full_key(rule.key);
  if (metadata.contains(key)) return std::optional<T>();
  if (!metadata.is_null(key)) return std::optional<T>(rule.absent);
  if (rule.null) return std::optional<T>(*rule.null);
  return refuse_null(metadata, key).error();
}

// `read` reads the key where it has a value.
template <class T, class Read>
Status read_by_rule(const Metadata& metadata, const KeyRule<T>& rule, ModelConfig& config, T& out,
                    Read read) {
  Result<std::optional<T>> taken = unstated(metadata, rule);
  if (!taken.ok()) return taken.error();
  if (!taken->has_value()) return read(metadata, full_key(rule.key), out);
  out = **taken;
  const bool is_value = std::is_same_v<T, bool> || out != T{};
  if (is_value && !metadata.is_null(full_key(rule.key)))
    config.assumed.push_back(fmt::format("{} = {}", rule.key, out));
  return ok_status();
}

}  // namespace

const FamilyDefaults& defaults_of(std::string_view family) {
  for (const FamilyDefaults& row : kFamilies) {
    if (row.family == family) return row;
  }
  CHECK(false, "a family without defaults");
}

Status read_key(const Metadata& metadata, const KeyRule<std::int32_t>& rule, ModelConfig& config,
                std::int32_t& out) {
  return read_by_rule(metadata, rule, config, out, read_int);
}

Status read_key(const Metadata& metadata, const KeyRule<float>& rule, ModelConfig& config,
                float& out) {
  return read_by_rule(metadata, rule, config, out, read_optional_float);
}

Status read_key(const Metadata& metadata, const KeyRule<bool>& rule, ModelConfig& config,
                bool& out) {
  return read_by_rule(metadata, rule, config, out, read_optional_flag);
}

Status read_common_keys(const Metadata& metadata, const FamilyDefaults& defaults,
                        ModelConfig& config) {
  std::string_view name;
  const auto read_text = [](const Metadata& from, const std::string& key, std::string_view& out) {
    Result<std::string_view> text = from.text(key);
    if (!text.ok()) return Status(text.error());
    out = text.value();
    return ok_status();
  };
  for (const Status& read :
       {read_key(metadata, defaults.norm_epsilon, config, config.norm_epsilon),
        read_key(metadata, defaults.tied_output, config, config.tied_output),
        read_by_rule(metadata, defaults.activation, config, name, read_text)}) {
    if (!read.ok()) return read;
  }
  Result<compute::Activation> activation = parse_activation(defaults.activation.key, name);
  if (!activation.ok()) return activation.error();
  config.activation = activation.value();
  return ok_status();
}

void assume(ModelConfig& config, std::string_view key, double value) {
  config.assumed.push_back(fmt::format("{} = {}", key, value));
}

Status refuse_null(const Metadata& metadata, std::string_view key) {
  if (!metadata.is_null(key)) return ok_status();
  return Error{ErrorCode::Corrupt,
               fmt::format("{} is null, expected a value; leave the key out where the family's "
                           "default is meant",
                           key)};
}

Error with_assumed(Error error, const ModelConfig& config) {
  if (!config.assumed.empty()) {
    error.message += fmt::format("; the file does not state these, {}'s defaults were taken: {}",
                                 config.architecture, fmt::join(config.assumed, ", "));
  }
  return error;
}

}  // namespace llorch::model
