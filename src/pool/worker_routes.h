// The endpoints below /v2/workers. Private to pool/.
#pragma once

#include "pool/service.h"

namespace llorch::pool {

Result<http::Response> list_workers(const Service& service, const http::Request& request);
Result<http::Response> show_worker(const Service& service, const http::Request& request);
Result<http::Response> start_worker(const Service& service, const http::Request& request);
Result<http::Response> stop_worker(const Service& service, const http::Request& request);
Result<http::Response> restart_worker(const Service& service, const http::Request& request);
Result<http::Response> take_ready_callback(const Service& service, const http::Request& request);
http::Task<Status> send_worker_log(ServicePtr service, const http::Request& request,
                                   http::Responder& responder);

// The callback's work, also for a server that has no more than this.
Result<http::Response> answer_ready(Workers& workers, const http::Request& request);

}  // namespace llorch::pool
