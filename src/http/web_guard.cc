#include "http/web_guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio/ip/address.hpp>
#include <utility>

#include "base/header_text.h"
#include "base/utf8.h"

namespace llorch::http {
namespace {

constexpr std::uint16_t kUsualPort = 80;
constexpr std::uint16_t kUsualTlsPort = 443;
constexpr std::string_view kAny = "*";
constexpr std::size_t kAskedHeadersMax = 2048;
constexpr std::string_view kMethods = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
constexpr std::string_view kExposed = "X-Correlation-Id, Retry-After";
constexpr std::string_view kMaxAgeSeconds = "600";

std::string to_lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return out;
}

bool contains(const std::vector<std::string>& list, std::string_view text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

bool is_origin_text(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return c > 0x20 && c < 0x7F &&
           std::string_view("/?#@,*\\\"'<>").find(c) == std::string_view::npos;
  });
}

bool is_allowed(const WebRules& rules, std::string_view origin) {
  if (origin != "null" && contains(rules.origins, kAny)) return true;
  if (contains(rules.origins, origin)) return true;
  return !rules.has_token && origin.starts_with(rules.scheme) &&
         contains(rules.hosts, origin.substr(rules.scheme.size()));
}

Refusal forbid(std::string message) {
  return {.error = {ErrorCode::Forbidden, std::move(message)}};
}

// What a browser must be told before it lets a page send a request, or read the answer.
void add_cors(Headers& out, const Headers& request, std::string_view origin, bool is_preflight) {
  out.add("Access-Control-Allow-Origin", std::string(origin));
  if (!is_preflight) {
    out.add("Access-Control-Expose-Headers", std::string(kExposed));
    return;
  }
  out.add("Access-Control-Allow-Methods", std::string(kMethods));
  const std::string_view asked =
      request.find("Access-Control-Request-Headers").value_or("authorization, content-type");
  if (asked.size() <= kAskedHeadersMax) out.add("Access-Control-Allow-Headers", std::string(asked));
  out.add("Access-Control-Max-Age", std::string(kMaxAgeSeconds));
  if (request.find("Access-Control-Request-Private-Network"))
    out.add("Access-Control-Allow-Private-Network", "true");
}

std::optional<Refusal> find_web_refusal(const WebRules& rules, const Headers& headers) {
  const auto host = headers.find("Host");
  if (!rules.has_token && !contains(rules.hosts, to_lower(host.value_or("")))) {
    return forbid(
        fmt::format("this server answers to {}, not to {}; a server that is reached by "
                    "another name needs a token (--api-token-file)",
                    fmt::join(rules.hosts, ", "), base::quoted(host.value_or(""))));
  }
  const auto origin = headers.find("Origin");
  if (headers.count("Origin") > 1) return forbid("the request has more than one Origin");
  if (origin && !is_allowed(rules, *origin)) {
    return forbid(
        fmt::format("pages of {} may not use this server; --allow-origin names those "
                    "that may",
                    base::quoted(*origin)));
  }
  const auto site = headers.find("Sec-Fetch-Site");
  if (!rules.has_token && !origin && site && equals_ignoring_case(*site, "cross-site"))
    return forbid("pages of other sites may not use this server");
  return std::nullopt;
}

}  // namespace

Result<std::string> parse_origin(std::string_view text) {
  if (text == kAny) return std::string(kAny);
  const std::string origin = to_lower(text);
  const std::size_t scheme_end = origin.find("://");
  const std::string_view host = scheme_end == std::string::npos
                                    ? std::string_view()
                                    : std::string_view(origin).substr(scheme_end + 3);
  if (scheme_end == 0 || host.empty() || host.starts_with(':') || !is_origin_text(host) ||
      !is_origin_text(std::string_view(origin).substr(0, scheme_end))) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("allow-origin {}: expected a scheme and a host, as in "
                             "https://app.example or http://localhost:3000, without a path",
                             base::quoted(text))};
  }
  for (const auto& [scheme, port] :
       {std::pair<std::string_view, std::string_view>("http://", ":80"), {"https://", ":443"}}) {
    if (origin.starts_with(scheme) && origin.ends_with(port))
      return origin.substr(0, origin.size() - port.size());
  }
  return origin;
}

namespace {

// 0.0.0.0 and ::, on which a server listens everywhere. Nobody's name for it: a page may ask it
// and would reach this machine.
bool is_any_address(std::string_view listen_host) {
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(std::string(listen_host), error);
  return !error && address.is_unspecified();
}

}  // namespace

Result<WebRules> make_web_rules(bool has_token, std::string_view listen_host, std::uint16_t port,
                                const std::vector<std::string>& more_hosts,
                                const std::vector<std::string>& origins, bool is_tls) {
  WebRules rules;
  if (is_tls) rules.scheme = "https://";
  rules.has_token = has_token;
  std::vector<std::string> names = {"127.0.0.1", "localhost", "[::1]"};
  const bool is_v6 = listen_host.find(':') != std::string_view::npos;
  std::string own = is_v6 ? fmt::format("[{}]", listen_host) : std::string(listen_host);
  if (!contains(names, own) && !is_any_address(listen_host)) names.push_back(std::move(own));
  for (const std::string& name : names) {
    rules.hosts.push_back(fmt::format("{}:{}", name, port));
    if (port == (is_tls ? kUsualTlsPort : kUsualPort)) rules.hosts.push_back(name);
  }
  rules.hosts.insert(rules.hosts.end(), more_hosts.begin(), more_hosts.end());
  for (const std::string& text : origins) {
    Result<std::string> origin = parse_origin(text);
    if (!origin.ok()) return origin.error();
    if (*origin == kAny && !has_token) {
      return Error{ErrorCode::InvalidArgument,
                   "allow-origin '*' lets every web page use this server, so it needs a token "
                   "(--api-token-file); or name the origins"};
    }
    rules.origins.push_back(origin.take());
  }
  return rules;
}

WebVerdict check_web(const WebRules& rules, Method method, const Headers& headers) {
  WebVerdict verdict;
  if (!rules.origins.empty()) verdict.headers.add("Vary", "Origin");
  verdict.refusal = find_web_refusal(rules, headers);
  const auto origin = headers.find("Origin");
  if (verdict.refusal || !origin) return verdict;
  verdict.is_preflight =
      method == Method::Options && headers.find("Access-Control-Request-Method").has_value();
  add_cors(verdict.headers, headers, *origin, verdict.is_preflight);
  return verdict;
}

Status check_media(Method method, const Headers& headers) {
  const auto coding = headers.find("Content-Encoding");
  if (coding && !equals_ignoring_case(*coding, "identity")) {
    return Error{ErrorCode::UnsupportedMedia,
                 fmt::format("a body must come as it is, not in the coding {}; send it without "
                             "Content-Encoding",
                             base::quoted(*coding))};
  }
  const auto type = headers.find("Content-Type");
  const bool is_change = method == Method::Post || method == Method::Put ||
                         method == Method::Patch || method == Method::Delete;
  if (!is_change || (type && base::is_json_type(*type))) return ok_status();
  if (!type && method != Method::Post) return ok_status();
  return Error{
      ErrorCode::UnsupportedMedia,
      fmt::format("a {} must be application/json{}; send 'Content-Type: application/json'",
                  method_name(method),
                  type ? fmt::format(", not {}", base::quoted(*type)) : ", also without a body")};
}

}  // namespace llorch::http
