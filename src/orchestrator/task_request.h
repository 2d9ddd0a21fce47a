// The body of POST /v2/tasks → a submission. Pure, and as long as the body is: for work threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fields.h"
#include "base/result.h"
#include "http/message.h"
#include "orchestrator/keys.h"
#include "orchestrator/orchestrator.h"

namespace llorch::orchestrator {

// Every failure is in `errors`; the Error says them in one sentence.
Result<Submission> read_task_request(const http::Request& request, const Caller& caller,
                                     std::vector<json::FieldError>& errors);

// A prompt by its beginnings, as fleet/prefix_table.h wants it: hash i covers i + 1 blocks.
std::vector<std::uint64_t> prefix_hashes(std::string_view prompt);

}  // namespace llorch::orchestrator
