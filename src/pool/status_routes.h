// The endpoints about the pool as a whole. Private to pool/.
#pragma once

#include "pool/service.h"

namespace llorch::pool {

Result<http::Response> show_health(const Service& service, const http::Request& request);
Result<http::Response> show_metrics(const Service& service, const http::Request& request);
Result<http::Response> shut_down(const Service& service, const http::Request& request);
Result<http::Response> show_document(const Service& service, const http::Request& request);

}  // namespace llorch::pool
