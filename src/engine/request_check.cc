#include "engine/request_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

namespace llorch::engine {
namespace {

Error invalid(std::string message) {
  return {ErrorCode::InvalidArgument, std::move(message)};
}

Status check_ids(std::span<const TokenId> ids, const RequestBounds& bounds,
                 std::string_view where = "the prompt") {
  const auto bad =
      std::ranges::find_if(ids, [&](TokenId id) { return id < 0 || id >= bounds.vocab_size; });
  if (bad == ids.end()) return ok_status();
  return invalid(fmt::format("token {} of {} has id {}: expected 0 to {}", bad - ids.begin(), where,
                             *bad, bounds.vocab_size - 1));
}

// The lengths are compared as 64 bits: max_tokens may be the largest integer.
Status check_lengths(std::size_t prompt, std::int64_t max_tokens, const RequestBounds& bounds) {
  if (prompt == 0) return invalid("the prompt has no tokens: expected at least one");
  const std::int64_t wanted = static_cast<std::int64_t>(prompt) + max_tokens;
  if (wanted > bounds.context_length) {
    return invalid(fmt::format(
        "the prompt has {} tokens and max_tokens is {}: together {}, but the context of the model "
        "holds {}; shorten the prompt or ask for fewer tokens",
        prompt, max_tokens, wanted, bounds.context_length));
  }
  if (wanted > bounds.max_sequence_tokens) {
    return Error{ErrorCode::OutOfMemory,
                 fmt::format("the prompt has {} tokens and max_tokens is {}: together {}, but the "
                             "whole cache holds {}; ask for fewer tokens or start the worker with "
                             "a larger cache",
                             prompt, max_tokens, wanted, bounds.max_sequence_tokens)};
  }
  return ok_status();
}

Status check_range(const char* name, float value, float low, float high) {
  if (value >= low && value <= high) return ok_status();  // Not for NaN.
  return invalid(fmt::format("{} is {}: expected a number from {} to {}", name, value, low, high));
}

Status check_sampling(const SamplingParams& params, const RequestBounds& bounds) {
  // Ranges of the wire are narrower; these are the ones in which the arithmetic holds.
  struct Range {
    const char* name;
    float value, low, high;
  };
  for (const Range& range : {Range{"temperature", params.temperature, 0, 1e6F},
                             Range{"top_p", params.top_p, 0, 1}, Range{"min_p", params.min_p, 0, 1},
                             Range{"repetition_penalty", params.repetition_penalty, 1e-6F, 1e6F},
                             Range{"frequency_penalty", params.frequency_penalty, -1e6F, 1e6F},
                             Range{"presence_penalty", params.presence_penalty, -1e6F, 1e6F}}) {
    Status status = check_range(range.name, range.value, range.low, range.high);
    if (!status.ok()) return status;
  }
  if (params.top_k < 0)
    return invalid(fmt::format("top_k is {}: expected 0 or more", params.top_k));
  if (params.top_logprobs && *params.top_logprobs < 0) {
    return invalid(fmt::format("top_logprobs is {}: expected 0 or more", *params.top_logprobs));
  }
  for (const auto& [id, bias] : params.logit_bias) {
    if (id < 0 || id >= bounds.vocab_size) {
      return invalid(
          fmt::format("logit_bias names id {}: expected 0 to {}", id, bounds.vocab_size - 1));
    }
    Status status = check_range("a logit_bias", bias, -1e6F, 1e6F);
    if (!status.ok()) return status;
  }
  return ok_status();
}

}  // namespace

Status check_request(const GenerationRequest& request, const RequestBounds& bounds) {
  const std::int32_t least = request.score_prompt ? 0 : 1;
  if (request.max_tokens < least) {
    return invalid(
        fmt::format("max_tokens is {}: expected at least {}", request.max_tokens, least));
  }
  if (request.score_prompt && !request.sampling.top_logprobs)
    return invalid("score_prompt without top_logprobs: expected how many alternatives to report");
  Status status = check_lengths(request.prompt.size(), request.max_tokens, bounds);
  if (status.ok()) status = check_ids(request.prompt, bounds);
  if (status.ok()) status = check_ids(request.told, bounds, "what was told");
  if (status.ok()) status = check_sampling(request.sampling, bounds);
  if (!status.ok() || request.told.empty()) return status;
  if (request.score_prompt) return invalid("score_prompt when the answer goes on: it was scored");
  if (std::cmp_less(request.told.size(), request.max_tokens)) return ok_status();
  return invalid(fmt::format("{} tokens were told and max_tokens is {}: nothing is left to make",
                             request.told.size(), request.max_tokens));
}

Status check_request(const EmbeddingRequest& request, const RequestBounds& bounds) {
  Status status = check_lengths(request.prompt.size(), 0, bounds);
  if (status.ok()) status = check_ids(request.prompt, bounds);
  return status;
}

}  // namespace llorch::engine
