// What a request has made elsewhere, before it came here to go on.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/work_limit.h"
#include "engine/request.h"
#include "worker/json_constraint.h"
#include "worker/serving_model.h"
#include "worker/text_sink.h"
#include "worker_http/backend.h"

namespace llorch::worker {

// The output among these ids: all but an end token behind it.
std::span<const engine::TokenId> told_output(const ServingModel& model,
                                             std::span<const engine::TokenId> told);

// What the told ids are held against.
struct ToldBounds {
  std::int32_t max_tokens = 0;
  GrammarPtr grammar;  // may be null
  std::span<const engine::TokenId> prompt;
};

// Nothing when the request can have made them; `context` is its sink's.
std::optional<worker_http::PrepareError> check_told(const ServingModel& model,
                                                    std::span<const engine::TokenId> told,
                                                    const ToldBounds& bounds,
                                                    TextSinkContext context,
                                                    const base::WorkLimit& limit);

// Why the answer had ended with what was told; nothing when it goes on.
std::optional<engine::FinishReason> told_end(const ServingModel& model,
                                             std::span<const engine::TokenId> told,
                                             std::int32_t max_tokens, const TextSink& sink);

}  // namespace llorch::worker
