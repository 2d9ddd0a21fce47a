// The worker's own endpoints: health, execute, cancel, shutdown, metrics, tokenize, detokenize.
// Private to worker_http/.
#pragma once

#include "http/router.h"
#include "worker_http/service.h"

namespace llorch::worker_http {

http::Handler health_handler(const ServicePtr& service);
http::Handler execute_handler(const ServicePtr& service);
http::Handler cancel_handler(const ServicePtr& service);
http::Handler shutdown_handler(const ServicePtr& service);
http::Handler metrics_handler(const ServicePtr& service);
http::Handler tokenize_handler(const ServicePtr& service);
http::Handler detokenize_handler(const ServicePtr& service);

}  // namespace llorch::worker_http
