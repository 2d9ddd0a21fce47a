// OpenAI's endpoints for the whole fleet: a request becomes a job that lives with its connection,
// and is answered from the job's log as every task is.
#pragma once

#include <cstdint>

#include "http/message.h"
#include "http/stream.h"
#include "http/task.h"
#include "http/work_threads.h"
#include "orchestrator/answer_book.h"
#include "orchestrator/keys.h"
#include "orchestrator/orchestrator.h"

namespace llorch::orchestrator {

// All of them outlive the server.
struct OpenAiParts {
  Orchestrator& core;
  AnswerBook& answers;
  http::WorkThreads& threads;
  std::int64_t started_s = 0;  // since 1970; models are said to be as old
};

// Handlers, once the caller's key was looked at. Errors that they return are for OpenAI's form
// (api::render_openai_error).
http::Task<Status> answer_openai_models(OpenAiParts parts, Caller caller,
                                        const http::Request& request, http::Responder& responder);
http::Task<Status> answer_openai_model(OpenAiParts parts, Caller caller,
                                       const http::Request& request, http::Responder& responder);
// Completions, chats and embeddings.
http::Task<Status> answer_openai(OpenAiParts parts, Caller caller, fleet::JobKind kind,
                                 const http::Request& request, http::Responder& responder);

}  // namespace llorch::orchestrator
