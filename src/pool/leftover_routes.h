// The endpoints of what downloads left behind, and of other programs' caches. Private to pool/.
#pragma once

#include "pool/service.h"

namespace llorch::pool {

Result<http::Response> list_leftovers(const Service& service, const http::Request& request);
Result<http::Response> remove_leftovers(const Service& service, const http::Request& request);
Result<http::Response> adopt_models(const Service& service, const http::Request& request);

}  // namespace llorch::pool
