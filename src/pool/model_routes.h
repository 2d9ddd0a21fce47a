// The endpoints below /v2/models that answer from the catalog. Private to pool/.
#pragma once

#include "pool/bodies.h"
#include "pool/service.h"

namespace llorch::pool {

Result<http::Response> list_models(const Service& service, const http::Request& request);
Result<http::Response> list_outdated(const Service& service, const http::Request& request);
Result<http::Response> show_model(const Service& service, const http::Request& request);
Result<http::Response> register_model(const Service& service, const http::Request& request);
Result<http::Response> update_model(const Service& service, const http::Request& request);
Result<http::Response> remove_model(const Service& service, const http::Request& request);
Result<http::Response> plan_model(const Service& service, const http::Request& request);

// With how its files stand; one that is being fetched has none yet.
ShownModel show_model_entry(const Service& service, const contract::ModelEntry& entry);

}  // namespace llorch::pool
