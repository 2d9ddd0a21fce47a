// Output that must be JSON: the grammar as the engine's constraint.
#pragma once

#include <memory>

#include "base/result.h"
#include "engine/request.h"
#include "worker/serving_model.h"
#include "worker_http/backend.h"

namespace llorch::worker {

// Null for plain text. Unsupported, naming it, for a keyword of the schema that cannot be enforced
// or a vocabulary that cannot write JSON; InvalidArgument for a schema that makes no sense.
Result<std::unique_ptr<engine::TokenConstraint>> make_constraint(
    const worker_http::OutputFormat& format, const ServingModel& model);

}  // namespace llorch::worker
