#include "pool/join_routes.h"

#include <utility>

#include "contract/fleet_api.h"
#include "contract/join_api.h"
#include "pool/joiner.h"

namespace llorch::pool {
namespace {

Result<http::Response> answer(const Result<contract::PoolJoinState>& state) {
  if (!state.ok()) return state.error();
  return json_response(200, contract::write_fields(*state));
}

Error cannot_join() {
  return {ErrorCode::Unsupported, "this pool has no unix socket and cannot join"};
}

}  // namespace

Result<http::Response> show_join(const Service& service, const http::Request&) {
  if (service.pool.joiner == nullptr) return answer(contract::PoolJoinState{});
  return answer(service.pool.joiner->state());
}

Result<http::Response> join_fleet(const Service& service, const http::Request& request) {
  const Result<json::Object> body = read_body(request);
  if (!body.ok()) return body.error();
  std::vector<json::FieldError> errors;
  const auto wanted = contract::read_described<contract::PoolJoinRequest>(*body, errors);
  if (!errors.empty()) return failures_response(request, std::move(errors));
  if (service.pool.joiner == nullptr) return cannot_join();
  return answer(service.pool.joiner->join(wanted));
}

Result<http::Response> leave_fleet(const Service& service, const http::Request&) {
  if (service.pool.joiner == nullptr) return cannot_join();
  return answer(service.pool.joiner->leave());
}

}  // namespace llorch::pool
