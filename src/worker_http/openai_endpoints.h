// OpenAI's endpoints: models, completions, chat completions, embeddings. Private to worker_http/.
#pragma once

#include "http/router.h"
#include "worker_http/service.h"

namespace llorch::worker_http {

http::Handler models_handler(const ServicePtr& service);
http::Handler model_handler(const ServicePtr& service);
http::Handler completions_handler(const ServicePtr& service);
http::Handler chat_handler(const ServicePtr& service);
http::Handler embeddings_handler(const ServicePtr& service);

}  // namespace llorch::worker_http
