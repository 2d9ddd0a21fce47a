#include "model/config.h"

#include <fmt/format.h>

#include <cmath>

namespace llorch::model {
namespace {

// Far above any published model, low enough that no product of two overflows an int32_t width or an
// int64_t size.
constexpr std::int32_t kVocabMax = 4'000'000;
constexpr std::int32_t kContextMax = 16'777'216;
constexpr std::int32_t kWidthMax = 1'000'000;
constexpr std::int32_t kLayersMax = 1'000;
constexpr std::int32_t kHeadsMax = 1'024;
constexpr std::int32_t kHeadDimMax = 1'024;

Status check_range(std::string_view what, std::int32_t value, std::int32_t max) {
  if (value >= 1 && value <= max) return ok_status();
  return Error{ErrorCode::Corrupt, fmt::format("{} is {}, expected 1..{}", what, value, max)};
}

}  // namespace

Status validate(const ModelConfig& config) {
  for (const auto& [what, value, max] :
       {std::tuple{"vocabulary size", config.vocab_size, kVocabMax},
        std::tuple{"context length", config.context_length, kContextMax},
        std::tuple{"embedding length", config.hidden_dim, kWidthMax},
        std::tuple{"layer count", config.num_layers, kLayersMax},
        std::tuple{"head count", config.num_heads, kHeadsMax},
        std::tuple{"key/value head count", config.num_kv_heads, kHeadsMax},
        std::tuple{"head dimension", config.head_dim, kHeadDimMax},
        std::tuple{"feed-forward length", config.ffn_dim, kWidthMax}}) {
    if (Status in_range = check_range(what, value, max); !in_range.ok()) return in_range;
  }
  if (config.num_heads % config.num_kv_heads != 0) {
    return Error{ErrorCode::Corrupt,
                 fmt::format("head count {} is not a multiple of the key/value head count {}",
                             config.num_heads, config.num_kv_heads)};
  }
  if (!std::isfinite(config.norm_epsilon) || config.norm_epsilon <= 0 ||
      config.norm_epsilon > 0.1F) {
    return Error{
        ErrorCode::Corrupt,
        fmt::format("norm epsilon is {}, expected a small positive number", config.norm_epsilon)};
  }
  return ok_status();
}

}  // namespace llorch::model
