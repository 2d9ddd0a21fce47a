// OpenAI's endpoints: models, completions, chat completions, embeddings. Private to worker_http/.
#pragma once

#include "http/router.h"
#include "worker_http/service.h"

namespace llorch::worker_http {

http::Task<Status> list_models(ServicePtr service, const http::Request& request,
                               http::Responder& responder);
http::Task<Status> show_model(ServicePtr service, const http::Request& request,
                              http::Responder& responder);
http::Task<Status> answer_completion(ServicePtr service, const http::Request& request,
                                     http::Responder& responder);
http::Task<Status> answer_chat(ServicePtr service, const http::Request& request,
                               http::Responder& responder);
http::Task<Status> answer_embeddings(ServicePtr service, const http::Request& request,
                                     http::Responder& responder);

}  // namespace llorch::worker_http
