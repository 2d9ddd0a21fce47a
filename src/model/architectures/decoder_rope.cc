// Rotary positions as config.json (old and new spelling) and GGUF files state them.
#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "base/utf8.h"
#include "compute/dequantize.h"
#include "model/architectures/decoder.h"
#include "model/architectures/defaults.h"
#include "model/rope.h"

namespace llorch::model {
namespace {

using formats::FileFormat;
using formats::Metadata;
using formats::WeightFile;

constexpr std::string_view kFreqs = "rope_freqs.weight";
constexpr std::string_view kLongFactors = "rope_factors_long.weight";
constexpr std::string_view kShortFactors = "rope_factors_short.weight";

// Reads the first of these keys that is there; null is refused.
Status read_first(const Metadata& metadata, std::initializer_list<std::string> keys, double& out) {
  for (const std::string& key : keys) {
    if (Status stated = refuse_null(metadata, key); !stated.ok()) return stated;
    if (!metadata.contains(key)) continue;
    Result<double> value = metadata.number(key);
    if (!value.ok()) return value.error();
    out = value.value();
    return ok_status();
  }
  return ok_status();
}

// The same for a key that null leaves to its formula.
Status read_or_derive(const Metadata& metadata, const std::string& key, double& out) {
  return metadata.is_null(key) ? ok_status() : read_first(metadata, {key}, out);
}

bool has_section(const Metadata& metadata, std::string_view section) {
  const std::string begin = fmt::format("{}.", section);
  const auto found = metadata.entries().lower_bound(begin);
  if (found != metadata.entries().end() && found->first.starts_with(begin)) return true;
  const auto null = metadata.nulls().lower_bound(begin);
  return null != metadata.nulls().end() && null->starts_with(begin);
}

// The object of config.json that describes the rotation; empty where none does. Where a file has
// both spellings, the old one counts, as in transformers.
std::string find_section(const Metadata& metadata, std::string_view layer_type) {
  const std::string own = fmt::format("config.rope_parameters.{}", layer_type);
  if (!layer_type.empty() && has_section(metadata, own)) return own;
  if (has_section(metadata, "config.rope_parameters.full_attention") ||
      has_section(metadata, "config.rope_parameters.sliding_attention"))
    return {};
  return has_section(metadata, "config.rope_scaling") ||
                 !has_section(metadata, "config.rope_parameters")
             ? "config.rope_scaling"
             : "config.rope_parameters";
}

// A family with a rotation for each kind of layer has a section for each. What stands beside them,
// transformers ignores or mixes in, another way in each version: refused.
Status refuse_odd_sections(const Metadata& metadata, std::string_view layer_type) {
  if (layer_type.empty()) return ok_status();
  const std::string own = "config.rope_parameters";
  const bool for_layers = has_section(metadata, own + ".full_attention") ||
                          has_section(metadata, own + ".sliding_attention") ||
                          metadata.is_null(own + ".full_attention") ||
                          metadata.is_null(own + ".sliding_attention");
  if (has_section(metadata, own) && !for_layers) {
    return Error{ErrorCode::Unsupported,
                 fmt::format("{0} has neither {0}.full_attention nor {0}.sliding_attention: this "
                             "family has a rotation for each kind of layer",
                             own)};
  }
  if (for_layers && has_section(metadata, "config.rope_scaling")) {
    return Error{ErrorCode::Unsupported,
                 "config.rope_scaling beside config.rope_parameters: state the rotation in one of "
                 "them"};
  }
  if (metadata.contains("config.rope_scaling.type") &&
      !metadata.contains("config.rope_scaling.rope_type")) {
    return Error{ErrorCode::Unsupported,
                 "config.rope_scaling.type: this family's key is config.rope_scaling.rope_type; "
                 "transformers takes the other one for no scaling"};
  }
  return ok_status();
}

Result<RopeScaling> parse_scaling(std::string_view key, std::string_view name,
                                  bool yarn_is_longrope) {
  if (name == "default" || name == "none") return RopeScaling::None;
  if (name == "linear") return RopeScaling::Linear;
  if (name == "llama3") return RopeScaling::Llama3;
  if (name == "longrope" || name == "su") return RopeScaling::LongRope;
  if (name == "yarn") return yarn_is_longrope ? RopeScaling::LongRope : RopeScaling::Yarn;
  return Error{ErrorCode::Unsupported,
               fmt::format("{} {} is not supported; known: default, linear, llama3, yarn, longrope",
                           key, base::quoted(name))};
}

Result<RopeScaling> read_hf_scaling(const Metadata& metadata, const std::string& section,
                                    bool yarn_is_longrope) {
  for (const char* name : {"rope_type", "type"}) {
    const std::string key = fmt::format("{}.{}", section, name);
    if (Status stated = refuse_null(metadata, key); !stated.ok()) return stated.error();
    if (!metadata.contains(key)) continue;
    Result<std::string_view> type = metadata.text(key);
    if (!type.ok()) return type.error();
    return parse_scaling(key, type.value(), yarn_is_longrope);
  }
  return RopeScaling::None;
}

bool wants_long(const ModelConfig& config, const RopeOptions& options, double original) {
  const std::int32_t context = options.context_wanted > 0
                                   ? std::min(options.context_wanted, config.context_length)
                                   : config.context_length;
  return context > original;
}

// YaRN's attention factor from two weights of its logarithm, where both are given.
Status read_mscale(const Metadata& metadata, const std::string& section, RopeParameters& rope) {
  double numerator = 0;
  double denominator = 0;
  for (const Status& read : {read_or_derive(metadata, section + ".mscale", numerator),
                             read_or_derive(metadata, section + ".mscale_all_dim", denominator)}) {
    if (!read.ok()) return read;
  }
  if (rope.attention_factor || numerator == 0 || denominator == 0) return ok_status();
  const auto weighted = [&rope](double weight) {
    return rope.factor <= 1 ? 1.0 : 0.1 * weight * std::log(rope.factor) + 1;
  };
  rope.attention_factor = weighted(numerator) / weighted(denominator);
  return ok_status();
}

Status read_rotary_part(const Metadata& metadata, const std::string& section,
                        const ModelConfig& config, const RopeOptions& options,
                        RopeParameters& rope) {
  double part = 1;
  const Status read = read_first(
      metadata, {section + ".partial_rotary_factor", "config.partial_rotary_factor"}, part);
  if (!read.ok()) return read;
  if (part != 1 && !options.may_be_partial) {
    return Error{ErrorCode::Unsupported,
                 fmt::format("partial_rotary_factor = {} is not supported for {}", part,
                             config.architecture)};
  }
  if (!(part > 0 && part <= 1)) {
    return Error{ErrorCode::Corrupt,
                 fmt::format("partial_rotary_factor is {}, expected above 0, at most 1", part)};
  }
  rope.rotary_dim = static_cast<std::int32_t>(config.head_dim * part);
  return ok_status();
}

// The context before it was stretched. Phi-3 always has a key of its own for it, by default too, so
// that the section's never counts.
Status read_original_context(const Metadata& metadata, const std::string& section,
                             const ModelConfig& config, const RopeOptions& options,
                             RopeParameters& rope) {
  const std::string own = "config.original_max_position_embeddings";
  if (options.original_context > 0) {
    rope.original_context = options.original_context;
    return read_first(metadata, {own}, rope.original_context);
  }
  rope.original_context = config.context_length;
  return read_first(metadata, {own, section + ".original_max_position_embeddings"},
                    rope.original_context);
}

// What each kind of scaling cannot do without.
Status require_scaling_keys(const Metadata& metadata, const std::string& section,
                            RopeScaling scaling) {
  std::vector<std::string_view> names;
  if (scaling == RopeScaling::LongRope) {
    names = {"long_factor", "short_factor"};
  } else {
    names = {"factor"};
  }
  if (scaling == RopeScaling::Llama3)
    names.insert(names.end(), {"low_freq_factor", "high_freq_factor"});
  for (const std::string_view name : names) {
    const std::string key = fmt::format("{}.{}", section, name);
    const bool derived = scaling == RopeScaling::Yarn && metadata.is_null(key);
    if (!metadata.contains(key) && !derived)
      return Error{ErrorCode::Corrupt, fmt::format("{} is missing", key)};
  }
  return ok_status();
}

// The numbers of a scaled rotation.
Status read_hf_scaling_numbers(const Metadata& metadata, const std::string& section,
                               const ModelConfig& config, const RopeOptions& options,
                               RopeParameters& rope) {
  double attention_factor = 0;
  for (const Status& read :
       {require_scaling_keys(metadata, section, rope.scaling),
        read_original_context(metadata, section, config, options, rope),
        read_first(metadata, {section + ".low_freq_factor"}, rope.low_freq_factor),
        read_first(metadata, {section + ".high_freq_factor"}, rope.high_freq_factor),
        read_or_derive(metadata, section + ".beta_fast", rope.beta_fast),
        read_or_derive(metadata, section + ".beta_slow", rope.beta_slow),
        read_or_derive(metadata, section + ".attention_factor", attention_factor)}) {
    if (!read.ok()) return read;
  }
  rope.truncate = !metadata.is_null(section + ".truncate");
  if (Result<bool> read = metadata.flag_or(section + ".truncate", rope.truncate); read.ok()) {
    rope.truncate = read.value();
  } else {
    return read.error();
  }
  if (metadata.contains(section + ".attention_factor")) rope.attention_factor = attention_factor;
  if (rope.original_context > 0) rope.factor = config.context_length / rope.original_context;
  if (Status read = read_or_derive(metadata, section + ".factor", rope.factor); !read.ok())
    return read;
  if (rope.scaling == RopeScaling::Yarn) return read_mscale(metadata, section, rope);
  if (rope.scaling != RopeScaling::LongRope) return ok_status();
  rope.long_factors = wants_long(config, options, rope.original_context);
  const std::string key =
      fmt::format("{}.{}", section, *rope.long_factors ? "long_factor" : "short_factor");
  Result<std::vector<double>> factors = metadata.numbers(key);
  if (!factors.ok()) return factors.error();
  rope.divisors = factors.take();
  return ok_status();
}

// Theta of a section, or of the whole file; sliding layers with a theta of their own have a key of
// their own.
Status read_theta(const Metadata& metadata, const std::string& section, ModelConfig& config,
                  const RopeOptions& options, double& theta) {
  const bool local = options.local_theta > 0;
  const std::string own = local ? "rope_local_base_freq" : "rope_theta";
  theta = 0;
  const Status read = read_first(metadata, {section + ".rope_theta", "config." + own}, theta);
  if (!read.ok()) return read;
  if (metadata.contains(section + ".rope_theta") || metadata.contains("config." + own))
    return ok_status();
  theta = local ? options.local_theta : options.theta;
  assume(config, own, theta);
  return ok_status();
}

Result<RopeParameters> read_hf(const Metadata& metadata, ModelConfig& config,
                               const RopeOptions& options) {
  if (Status even = refuse_odd_sections(metadata, options.layer_type); !even.ok())
    return even.error();
  std::string section = find_section(metadata, options.layer_type);
  RopeParameters rope;
  rope.rotary_dim = config.head_dim;
  const bool unscaled =
      options.local_theta > 0 && !section.ends_with(fmt::format(".{}", options.layer_type));
  if (unscaled) section.clear();
  if (Status read = read_theta(metadata, section, config, options, rope.theta); !read.ok())
    return read.error();
  if (section.empty()) return rope;
  if (Status read = read_rotary_part(metadata, section, config, options, rope); !read.ok())
    return read.error();
  Result<RopeScaling> scaling = read_hf_scaling(metadata, section, options.yarn_is_longrope);
  if (!scaling.ok()) return scaling.error();
  rope.scaling = scaling.value();
  if (rope.scaling == RopeScaling::None) {
    // A family with this key never has it null, whether its rotation is scaled or not.
    const Status stated = options.original_context > 0
                              ? refuse_null(metadata, "config.original_max_position_embeddings")
                              : ok_status();
    if (!stated.ok()) return stated.error();
    return rope;
  }
  if (Status read = read_hf_scaling_numbers(metadata, section, config, options, rope); !read.ok())
    return read.error();
  return rope;
}

Result<std::vector<double>> read_divisors(const WeightFile& file, std::string_view name) {
  const formats::WeightTensor& tensor = *file.find(name);
  std::vector<float> values(static_cast<std::size_t>(tensor.shape.elements()));
  const Status decoded = compute::dequantize(tensor.dtype, tensor.bytes, values);
  if (!decoded.ok()) return decoded.error().in(name);
  return std::vector<double>(values.begin(), values.end());
}

// YaRN as llama.cpp applies it: its own factor times the one the file states.
Status read_gguf_yarn(const Metadata& metadata, const std::string& prefix, double stated,
                      RopeParameters& rope) {
  double log_multiplier = 0;
  double extrapolation = 1;
  double own_attention = 1;
  for (const Status& read :
       {read_first(metadata, {prefix + "yarn_log_multiplier"}, log_multiplier),
        read_first(metadata, {prefix + "yarn_ext_factor"}, extrapolation),
        read_first(metadata, {prefix + "yarn_attn_factor"}, own_attention),
        read_first(metadata, {prefix + "yarn_beta_fast"}, rope.beta_fast),
        read_first(metadata, {prefix + "yarn_beta_slow"}, rope.beta_slow),
        read_optional_flag(metadata, prefix + "yarn_truncate", rope.truncate)}) {
    if (!read.ok()) return read;
  }
  for (const auto& [name, value, allowed] : {std::tuple{"yarn_log_multiplier", log_multiplier, 0.0},
                                             std::tuple{"yarn_ext_factor", extrapolation, 1.0},
                                             std::tuple{"yarn_attn_factor", own_attention, 1.0}}) {
    if (value != allowed) {
      return Error{ErrorCode::Unsupported,
                   fmt::format("{}{} = {} is not supported", prefix, name, value)};
    }
  }
  rope.attention_factor = stated * (rope.factor > 1 ? 0.1 * std::log(rope.factor) + 1 : 1.0);
  return ok_status();
}

// `rope_prefix` begins the keys of the rotation: "llama.rope.".
Status read_gguf_scaling(const WeightFile& file, const std::string& rope_prefix,
                         const ModelConfig& config, const RopeOptions& options,
                         RopeParameters& rope) {
  const Metadata& metadata = file.metadata();
  const std::string prefix = rope_prefix + "scaling.";
  const std::string older_factor = rope_prefix + "scale_linear";
  if (metadata.contains(prefix + "type")) {
    Result<std::string_view> type = metadata.text(prefix + "type");
    if (!type.ok()) return type.error();
    Result<RopeScaling> scaling = parse_scaling(prefix + "type", type.value(), false);
    if (!scaling.ok()) return scaling.error();
    rope.scaling = scaling.value();
  }
  double attention_factor = 1;
  rope.original_context = config.context_length;
  double factor = 0;
  for (const Status& read :
       {read_first(metadata, {prefix + "factor", older_factor}, factor),
        read_first(metadata, {prefix + "original_context_length"}, rope.original_context),
        read_first(metadata, {prefix + "attn_factor"}, attention_factor)}) {
    if (!read.ok()) return read;
  }
  // As in llama.cpp, 0 is none, and a factor without a type is linear.
  if (factor != 0) rope.factor = factor;
  if (factor != 0 && !metadata.contains(prefix + "type")) rope.scaling = RopeScaling::Linear;
  if (rope.scaling == RopeScaling::Yarn)
    return read_gguf_yarn(metadata, prefix, attention_factor, rope);
  rope.attention_factor = attention_factor;
  std::string_view table;
  if (file.find(kFreqs) != nullptr) table = kFreqs;
  if (file.find(kLongFactors) != nullptr && file.find(kShortFactors) != nullptr) {
    rope.long_factors = wants_long(config, options, rope.original_context);
    table = *rope.long_factors ? kLongFactors : kShortFactors;
  } else if (rope.scaling == RopeScaling::LongRope) {
    return Error{ErrorCode::Corrupt,
                 fmt::format("LongRoPE without {} and {}", kLongFactors, kShortFactors)};
  }
  if (table.empty()) return ok_status();
  Result<std::vector<double>> divisors = read_divisors(file, table);
  if (!divisors.ok()) return divisors.error();
  rope.divisors = divisors.take();
  return ok_status();
}

Result<RopeParameters> read_gguf(const WeightFile& file, ModelConfig& config,
                                 const RopeOptions& options) {
  const Metadata& metadata = file.metadata();
  Result<std::string> architecture = declared_architecture(file);
  if (!architecture.ok()) return architecture.error();
  const std::string prefix = architecture.value() + ".rope.";
  RopeParameters rope;
  rope.rotary_dim = config.head_dim;
  if (Status read = read_optional_int(metadata, prefix + "dimension_count", rope.rotary_dim);
      !read.ok())
    return read.error();
  if (rope.rotary_dim != config.head_dim && !options.may_be_partial) {
    return Error{ErrorCode::Unsupported,
                 fmt::format("{}dimension_count = {} with heads of {} is not supported", prefix,
                             rope.rotary_dim, config.head_dim)};
  }
  const bool local = options.local_theta > 0;
  const std::string theta_key = prefix + (local ? "freq_base_swa" : "freq_base");
  rope.theta = local ? options.local_theta : options.theta;
  if (!metadata.contains(theta_key)) assume(config, theta_key, rope.theta);
  if (Status read = read_first(metadata, {theta_key}, rope.theta); !read.ok()) return read.error();
  if (local) return rope;
  if (Status read = read_gguf_scaling(file, prefix, config, options, rope); !read.ok())
    return read.error();
  return rope;
}

}  // namespace

Result<RopeConfig> read_rope(const WeightFile& file, ModelConfig& config,
                             const RopeOptions& options) {
  const bool gguf = file.format() == FileFormat::Gguf;
  Result<RopeParameters> rope =
      gguf ? read_gguf(file, config, options) : read_hf(file.metadata(), config, options);
  if (!rope.ok()) return rope.error();
  Result<const Architecture*> architecture = find_architecture(file);
  if (!architecture.ok()) return architecture.error();
  const bool neighbours = gguf && architecture.value()->gguf_form.paired_rows;
  return make_rope(rope.value(),
                   neighbours ? compute::RopeStyle::Adjacent : compute::RopeStyle::Half);
}

bool is_rotary_tensor(std::string_view name) {
  return name == kFreqs || name == kLongFactors || name == kShortFactors ||
         name.ends_with(".rotary_emb.inv_freq") || name.ends_with(".attn_rot_embd.weight");
}

Status add_rope(const WeightFile& file, const RopeOptions& options, ModelConfig& config) {
  Result<RopeConfig> rope = read_rope(file, config, options);
  if (!rope.ok()) return rope.error();
  config.ropes.push_back(rope.take());
  return ok_status();
}

}  // namespace llorch::model
