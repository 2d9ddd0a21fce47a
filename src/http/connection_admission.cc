// Who may come in at a connection, and with what.
#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "http/connection.h"
#include "http/guard.h"
#include "http/url.h"

namespace llorch::http {
namespace {

using Clock = std::chrono::steady_clock;

const base::Logger& logger() {
  static const base::Logger instance("http");
  return instance;
}

}  // namespace

bool Connection::is_open_path(std::string_view path) const {
  const auto& open = shared_.options.paths_without_auth;
  return std::find(open.begin(), open.end(), path) != open.end();
}

bool Connection::has_good_token(const Request& request) const {
  const auto& accepts = shared_.options.accepts_token;
  const std::optional<std::string_view> token = bearer_of(request.headers);
  return accepts && token && accepts(*token);
}

Refusal Connection::refuse_stranger(const Request& request) const {
  const std::string key = name_key(request.headers);
  if (shared_.options.on_stranger) shared_.options.on_stranger(key, request);
  if (const auto left_out = shared_.refusal_lines.take(Clock::now())) {
    logger().warn("a request without the right token",
                  {{"path", request.path},
                   {"key", key},
                   {"from_loopback", from_loopback_},
                   {"left_out", *left_out},
                   {"correlation_id", request.correlation_id}});
  }
  Refusal refusal;
  refusal.error = {ErrorCode::Unauthorized,
                   "this server wants a bearer token: send 'Authorization: Bearer TOKEN'"};
  refusal.headers.add("WWW-Authenticate", "Bearer");
  return refusal;
}

std::optional<Refusal> Connection::find_refusal(const Request& request, const Router::Match& match,
                                                bool has_good_token) const {
  const bool wants_one_of_many = shared_.options.accepts_token && !from_loopback_;
  const bool wants_token = (shared_.web.has_token || wants_one_of_many) && !is_unix_;
  if (wants_token && !is_open_path(request.path) && !has_good_token &&
      !is_authorized(request.headers, shared_.options.bearer_token))
    return refuse_stranger(request);
  Refusal refusal;
  if (match.route == nullptr && match.allow.empty()) {
    refusal.error = {ErrorCode::NotFound,
                     fmt::format("nothing is served at {}{}{}", request.path,
                                 match.near.empty() ? "" : "; there is ", match.near)};
    return refusal;
  }
  if (match.route == nullptr) {
    refusal.error = {ErrorCode::MethodNotAllowed,
                     fmt::format("{} allows only {}", request.path, match.allow)};
    refusal.headers.add("Allow", match.allow);
    return refusal;
  }
  if (Status media = check_media(request.method, request.headers); !media.ok()) {
    refusal.error = media.error();
    return refusal;
  }
  return std::nullopt;
}

void Connection::drop_claims(Request& request, bool has_good_token) const {
  const std::vector<std::string>& claims = shared_.options.fields_of_known;
  const bool is_known =
      is_unix_ || has_good_token || is_authorized(request.headers, shared_.options.bearer_token);
  if (is_known || claims.empty()) return;
  Headers kept;
  for (const auto& [name, value] : request.headers) {
    const auto is_claim = [&name = name](const std::string& claim) {
      return equals_ignoring_case(claim, name);
    };
    if (std::none_of(claims.begin(), claims.end(), is_claim)) kept.add(name, value);
  }
  request.headers = std::move(kept);
}

Connection::Admission Connection::admit(const Parser& parser, Request& request) const {
  const ServerOptions& options = shared_.options;
  Admission admission;
  const RequestHead head{parser.get().version() >= 11,
                         {parser.get().target().data(), parser.get().target().size()},
                         request.headers};
  admission.refusal = check_head(head, {options.max_target_bytes, options.max_header_fields});
  if (admission.refusal) return admission;
  Result<Target> target = parse_target(head.target);
  if (!target.ok()) {
    admission.refusal = Refusal{.error = target.error()};
    return admission;
  }
  request.path = std::move(target->path);
  request.query = std::move(target->query);
  request.raw_query = std::move(target->raw_query);
  Router::Match match = shared_.router.find(request.method, target->segments);
  admission.options = match.options;
  // No page of a browser reaches a unix socket.
  const bool is_good = has_good_token(request);
  const bool needs_token = shared_.options.accepts_token && !from_loopback_;
  WebVerdict web;
  if (!is_unix_) {
    web = check_web(is_good || needs_token ? shared_.web_with_token : shared_.web, request.method,
                    request.headers);
  }
  admission.headers = std::move(web.headers);
  admission.is_preflight = web.is_preflight;
  admission.refusal = std::move(web.refusal);
  if (admission.refusal || admission.is_preflight) return admission;
  admission.refusal = find_refusal(request, match, is_good);
  if (admission.refusal) return admission;
  drop_claims(request, is_good);
  request.path_params = std::move(match.params);
  const auto deadline = deadline_of(request.headers, std::chrono::system_clock::now());
  if (!deadline.ok()) {
    admission.refusal = Refusal{.error = deadline.error()};
    return admission;
  }
  request.deadline = *deadline;
  admission.route = match.route;
  admission.max_body_bytes = match.route->options.max_body_bytes.value_or(
      is_open_path(request.path) ? 0 : options.max_body_bytes);
  return admission;
}

}  // namespace llorch::http
