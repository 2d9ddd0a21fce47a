// Output that must be JSON: the grammar as the engine's constraint.
#pragma once

#include <memory>

#include "base/result.h"
#include "engine/request.h"
#include "worker/serving_model.h"
#include "worker_http/backend.h"

namespace llorch::worker {

// Null for plain text. Unsupported for a schema that the output cannot be held to, naming the
// keyword and its place, and for a vocabulary that cannot write JSON.
Result<std::unique_ptr<engine::TokenConstraint>> make_constraint(
    const worker_http::OutputFormat& format, const ServingModel& model);

}  // namespace llorch::worker
