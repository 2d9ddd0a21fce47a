// Prompts → ids, within what a model's own files may cost.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "base/work_limit.h"
#include "engine/request.h"
#include "worker/serving_model.h"
#include "worker_http/backend.h"

namespace llorch::worker {

// The context is to blame.
worker_http::PrepareError too_long(std::string message);

// A model's tokenizer and template are files of strangers: what they take for one text is bounded
// in time. Real ones take milliseconds for a megabyte.
base::WorkLimit per_text(base::WorkLimit limit);

// The ids of a text, or a list of ids that are all in the vocabulary.
std::variant<std::vector<engine::TokenId>, worker_http::PrepareError> encode_prompt(
    const ServingModel& model, const openai::Prompt& prompt, const base::WorkLimit& limit);

}  // namespace llorch::worker
