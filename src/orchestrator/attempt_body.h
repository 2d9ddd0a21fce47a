// The body of one attempt: the job's request with what the relay adds to it. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "fleet/ids.h"
#include "fleet/records.h"

namespace llorch::orchestrator {

// Ids that were told, for each choice; empty where nothing was.
using ToldIds = std::vector<std::vector<std::int32_t>>;

// For /execute, `body` is an object without job_id, seed and resume, and gets them. For OpenAI's
// text endpoints it is what the client sent: it gets the seed, streams with its usage, asks for the
// model that is there and goes on behind the ids. That of embeddings loses its model only.
// InvalidArgument where it is no object.
Result<std::string> attempt_body(std::string_view body, fleet::JobKind kind, std::uint64_t seed,
                                 const fleet::AttemptId& attempt, const ToldIds& told);

// The endpoint of the worker that takes it: "execute", "v1/chat/completions", …
std::string_view endpoint_of(fleet::JobKind kind);

}  // namespace llorch::orchestrator
