// Rotary positions as config.json (old and new spelling) and GGUF files state them.
#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "base/utf8.h"
#include "compute/dequantize.h"
#include "model/architectures/decoder.h"
#include "model/rope.h"

namespace llorch::model {
namespace {

using formats::FileFormat;
using formats::Metadata;
using formats::WeightFile;

constexpr std::string_view kFreqs = "rope_freqs.weight";
constexpr std::string_view kLongFactors = "rope_factors_long.weight";
constexpr std::string_view kShortFactors = "rope_factors_short.weight";

// The first of these keys that is there.
Status read_first(const Metadata& metadata, std::initializer_list<std::string> keys, double& out) {
  for (const std::string& key : keys) {
    if (!metadata.contains(key)) continue;
    Result<double> value = metadata.number(key);
    if (!value.ok()) return value.error();
    out = value.value();
    return ok_status();
  }
  return ok_status();
}

bool has_section(const Metadata& metadata, std::string_view section) {
  const std::string begin = fmt::format("{}.", section);
  const auto found = metadata.entries().lower_bound(begin);
  return found != metadata.entries().end() && found->first.starts_with(begin);
}

// The object of config.json that describes the rotation; empty where none does.
std::string find_section(const Metadata& metadata, std::string_view layer_type) {
  const std::string own = fmt::format("config.rope_parameters.{}", layer_type);
  if (!layer_type.empty() && has_section(metadata, own)) return own;
  if (has_section(metadata, "config.rope_parameters.full_attention") ||
      has_section(metadata, "config.rope_parameters.sliding_attention"))
    return {};
  return has_section(metadata, "config.rope_parameters") ? "config.rope_parameters"
                                                         : "config.rope_scaling";
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
  for (const Status& read : {read_first(metadata, {section + ".mscale"}, numerator),
                             read_first(metadata, {section + ".mscale_all_dim"}, denominator)}) {
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

// The numbers of a scaled rotation.
Status read_hf_scaling_numbers(const Metadata& metadata, const std::string& section,
                               const ModelConfig& config, const RopeOptions& options,
                               RopeParameters& rope) {
  rope.original_context =
      options.original_context > 0 ? options.original_context : config.context_length;
  double attention_factor = 0;
  for (const Status& read :
       {read_first(metadata,
                   {"config.original_max_position_embeddings",
                    section + ".original_max_position_embeddings"},
                   rope.original_context),
        read_first(metadata, {section + ".low_freq_factor"}, rope.low_freq_factor),
        read_first(metadata, {section + ".high_freq_factor"}, rope.high_freq_factor),
        read_first(metadata, {section + ".beta_fast"}, rope.beta_fast),
        read_first(metadata, {section + ".beta_slow"}, rope.beta_slow),
        read_first(metadata, {section + ".attention_factor"}, attention_factor),
        read_optional_flag(metadata, section + ".truncate", rope.truncate)}) {
    if (!read.ok()) return read;
  }
  if (metadata.contains(section + ".attention_factor")) rope.attention_factor = attention_factor;
  const bool may_derive =
      rope.scaling == RopeScaling::Yarn || rope.scaling == RopeScaling::LongRope;
  if (may_derive && rope.original_context > 0)
    rope.factor = config.context_length / rope.original_context;
  if (!may_derive && !metadata.contains(section + ".factor"))
    return Error{ErrorCode::Corrupt, fmt::format("{}.factor is missing", section)};
  if (Status read = read_first(metadata, {section + ".factor"}, rope.factor); !read.ok())
    return read;
  if (rope.scaling == RopeScaling::Yarn) return read_mscale(metadata, section, rope);
  if (rope.scaling != RopeScaling::LongRope) return ok_status();
  const std::string key = fmt::format(
      "{}.{}", section,
      wants_long(config, options, rope.original_context) ? "long_factor" : "short_factor");
  Result<std::vector<double>> factors = metadata.numbers(key);
  if (!factors.ok()) return factors.error();
  rope.divisors = factors.take();
  return ok_status();
}

Result<RopeParameters> read_hf(const Metadata& metadata, const ModelConfig& config,
                               const RopeOptions& options) {
  std::string section = find_section(metadata, options.layer_type);
  RopeParameters rope;
  rope.rotary_dim = config.head_dim;
  const bool local_default = options.local_theta > 0 &&
                             !section.ends_with(std::string(".") + std::string(options.layer_type));
  if (local_default || section.empty()) {
    rope.theta = local_default ? options.local_theta : rope.theta;
    const Status read =
        read_first(metadata, {local_default ? "config.rope_local_base_freq" : "config.rope_theta"},
                   rope.theta);
    if (!read.ok()) return read.error();
    return rope;
  }
  if (Status read =
          read_first(metadata, {section + ".rope_theta", "config.rope_theta"}, rope.theta);
      !read.ok())
    return read.error();
  if (Status read = read_rotary_part(metadata, section, config, options, rope); !read.ok())
    return read.error();
  Result<RopeScaling> scaling = read_hf_scaling(metadata, section, options.yarn_is_longrope);
  if (!scaling.ok()) return scaling.error();
  rope.scaling = scaling.value();
  if (rope.scaling == RopeScaling::None) return rope;
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

Status read_gguf_scaling(const WeightFile& file, const std::string& prefix,
                         const ModelConfig& config, const RopeOptions& options,
                         RopeParameters& rope) {
  const Metadata& metadata = file.metadata();
  if (metadata.contains(prefix + "type")) {
    Result<std::string_view> type = metadata.text(prefix + "type");
    if (!type.ok()) return type.error();
    Result<RopeScaling> scaling = parse_scaling(prefix + "type", type.value(), false);
    if (!scaling.ok()) return scaling.error();
    rope.scaling = scaling.value();
  }
  double attention_factor = 1;
  rope.original_context = config.context_length;
  for (const Status& read :
       {read_first(metadata, {prefix + "factor"}, rope.factor),
        read_first(metadata, {prefix + "original_context_length"}, rope.original_context),
        read_first(metadata, {prefix + "attn_factor"}, attention_factor)}) {
    if (!read.ok()) return read;
  }
  if (rope.scaling == RopeScaling::Yarn)
    return read_gguf_yarn(metadata, prefix, attention_factor, rope);
  rope.attention_factor = attention_factor;
  std::string_view table;
  if (file.find(kFreqs) != nullptr) table = kFreqs;
  if (file.find(kLongFactors) != nullptr && file.find(kShortFactors) != nullptr) {
    table = wants_long(config, options, rope.original_context) ? kLongFactors : kShortFactors;
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

Result<RopeParameters> read_gguf(const WeightFile& file, const ModelConfig& config,
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
  if (options.local_theta > 0) {
    rope.theta = options.local_theta;
    const Status read = read_first(metadata, {prefix + "freq_base_swa"}, rope.theta);
    if (!read.ok()) return read.error();
    return rope;
  }
  if (Status read = read_first(metadata, {prefix + "freq_base"}, rope.theta); !read.ok())
    return read.error();
  if (Status read = read_gguf_scaling(file, prefix + "scaling.", config, options, rope); !read.ok())
    return read.error();
  return rope;
}

}  // namespace

Result<RopeConfig> read_rope(const WeightFile& file, const ModelConfig& config,
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

}  // namespace llorch::model
