// Whether a request can run on this engine at all, before it is queued.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "engine/request.h"

namespace llorch::engine {

struct RequestBounds {
  std::int32_t vocab_size = 0;
  std::int32_t context_length = 0;
  std::int32_t max_sequence_tokens = 0;  // what the whole cache can hold of one sequence
};

// InvalidArgument: counts, ids or numbers out of range; OutOfMemory: never fits the cache.
Status check_request(const GenerationRequest& request, const RequestBounds& bounds);
Status check_request(const EmbeddingRequest& request, const RequestBounds& bounds);

}  // namespace llorch::engine
