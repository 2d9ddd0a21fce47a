// The worker's own endpoints: health, execute, cancel, shutdown, metrics, tokenize, detokenize.
// Private to worker_http/.
#pragma once

#include "http/router.h"
#include "worker_http/service.h"

namespace llorch::worker_http {

http::Response answer_health(const Service& service, const RequestText& request);
http::Response answer_cancel(const Service& service, const RequestText& request);
http::Response answer_shutdown(const Service& service, const RequestText& request);
http::Response answer_metrics(const Service& service, const RequestText& request,
                              const base::WorkLimit& limit);
http::Response answer_tokenize(const Service& service, const RequestText& request,
                               const base::WorkLimit& limit);
http::Response answer_detokenize(const Service& service, const RequestText& request,
                                 const base::WorkLimit& limit);
http::Task<Status> execute(ServicePtr service, const http::Request& request,
                           http::Responder& responder);

}  // namespace llorch::worker_http
