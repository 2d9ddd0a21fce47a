// The endpoints by which this pool joins a fleet. Private to pool/.
#pragma once

#include "pool/service.h"

namespace llorch::pool {

Result<http::Response> show_join(const Service& service, const http::Request& request);
Result<http::Response> join_fleet(const Service& service, const http::Request& request);
Result<http::Response> leave_fleet(const Service& service, const http::Request& request);

}  // namespace llorch::pool
