#include "http/router.h"

#include <algorithm>
#include <set>

#include "base/check.h"

namespace llorch::http {
namespace {

using Route = Router::Route;
using Segment = Router::Segment;

std::vector<Segment> parse_pattern(std::string_view pattern) {
  CHECK(pattern.starts_with('/'), pattern);
  pattern.remove_prefix(1);
  std::vector<Segment> segments;
  while (!pattern.empty()) {
    const std::size_t end = std::min(pattern.find('/'), pattern.size());
    const std::string_view text = pattern.substr(0, end);
    const bool is_param = text.starts_with('{') && text.ends_with('}') && text.size() > 2;
    CHECK(!text.empty() && (is_param || text.find_first_of("{}") == std::string_view::npos),
          pattern);
    segments.push_back({std::string(is_param ? text.substr(1, text.size() - 2) : text), is_param});
    pattern.remove_prefix(std::min(end + 1, pattern.size()));
  }
  return segments;
}

bool same_pattern(const std::vector<Segment>& a, const std::vector<Segment>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Segment& x, const Segment& y) {
    return x.is_param == y.is_param && (x.is_param || x.text == y.text);
  });
}

// The segments of a route that stand for one of the path each.
std::size_t num_single(const Route& route) {
  return route.segments.size() - (route.options.takes_rest ? 1 : 0);
}

bool fits(const Route& route, const std::vector<std::string>& segments) {
  const std::size_t single = num_single(route);
  if (route.options.takes_rest ? segments.size() <= single : segments.size() != single)
    return false;
  return std::equal(route.segments.begin(),
                    route.segments.begin() + static_cast<std::ptrdiff_t>(single), segments.begin(),
                    [](const Segment& want, const std::string& have) {
                      return want.is_param ? !have.empty() : want.text == have;
                    });
}

std::string pattern_of(const Route& route) {
  std::string pattern;
  for (const Segment& segment : route.segments)
    pattern += segment.is_param ? "/{" + segment.text + "}" : "/" + segment.text;
  return pattern;
}

bool begins_with(const Route& route, const std::vector<Segment>& folder) {
  return route.segments.size() > folder.size() &&
         std::equal(folder.begin(), folder.end(), route.segments.begin(),
                    [](const Segment& a, const Segment& b) { return a.text == b.text; });
}

// One is the other with something in front: a base URL lacks its "/v1", or has it twice.
bool ends_alike(const Route& route, const std::vector<std::string>& segments) {
  const auto common = static_cast<std::ptrdiff_t>(std::min(route.segments.size(), segments.size()));
  return common > 0 &&
         std::equal(route.segments.end() - common, route.segments.end(), segments.end() - common,
                    [](const Segment& want, const std::string& have) {
                      return !want.is_param && want.text == have;
                    });
}

bool is_below(const std::vector<Segment>& folder, const std::vector<std::string>& segments) {
  return segments.size() >= folder.size() &&
         std::equal(folder.begin(), folder.end(), segments.begin(),
                    [](const Segment& want, const std::string& have) { return want.text == have; });
}

// Both fit the same path; the first segment that is literal in only one of them decides.
bool more_literal(const Route& a, const Route& b) {
  for (std::size_t i = 0; i < std::min(a.segments.size(), b.segments.size()); ++i) {
    if (a.segments[i].is_param != b.segments[i].is_param) return b.segments[i].is_param;
  }
  return b.options.takes_rest && !a.options.takes_rest;
}

bool answers(const Route& route, Method method) {
  return route.method == method || (method == Method::Head && route.method == Method::Get);
}

}  // namespace

void Router::add(Method method, std::string_view pattern, Handler handler, RouteOptions options) {
  Route route{method, parse_pattern(pattern), std::move(handler), std::move(options)};
  CHECK(!route.options.takes_rest || (!route.segments.empty() && route.segments.back().is_param),
        pattern);
  for (const Route& other : routes_) {
    CHECK(other.method != method || !same_pattern(other.segments, route.segments), pattern);
  }
  routes_.push_back(std::move(route));
}

void Router::add(Method method, std::string_view pattern, PlainHandler handler,
                 RouteOptions options) {
  Handler answer = [plain = std::move(handler)](const Request& request,
                                                Responder& responder) -> Task<Status> {
    Result<Response> response = plain(request);
    if (!response.ok()) co_return response.error();
    co_return co_await responder.send(response.take());
  };
  add(method, pattern, std::move(answer), std::move(options));
}

void Router::answer_below(std::string_view folder, RouteOptions options) {
  folders_.push_back({parse_pattern(folder), std::move(options)});
}

std::string Router::find_near(const std::vector<std::string>& segments,
                              const Folder* folder) const {
  std::set<std::string> patterns;
  for (const Route& route : routes_) {
    if (ends_alike(route, segments)) patterns.insert(pattern_of(route));
  }
  const bool is_whole_folder = patterns.empty() && folder != nullptr;
  for (const Route& route : routes_) {
    if (is_whole_folder && begins_with(route, folder->segments)) patterns.insert(pattern_of(route));
  }
  std::string list;
  for (const std::string& pattern : patterns) list += (list.empty() ? "" : ", ") + pattern;
  return list;
}

Router::Match Router::find(Method method, const std::vector<std::string>& segments) const {
  Match match;
  std::set<std::string_view> allowed;
  for (const Route& route : routes_) {
    if (!fits(route, segments)) continue;
    allowed.insert(method_name(route.method));
    if (route.method == Method::Get) allowed.insert(method_name(Method::Head));
    if (!answers(route, method)) continue;
    if (match.route == nullptr || more_literal(route, *match.route)) match.route = &route;
  }
  if (match.route == nullptr) {
    for (const std::string_view name : allowed) {
      if (!match.allow.empty()) match.allow += ", ";
      match.allow += name;
    }
    const Folder* within = nullptr;
    for (const Folder& folder : folders_) {
      if (is_below(folder.segments, segments)) within = &folder;
    }
    if (within != nullptr) match.options = &within->options;
    if (match.allow.empty()) match.near = find_near(segments, within);
    return match;
  }
  match.options = &match.route->options;
  for (std::size_t i = 0; i < num_single(*match.route); ++i) {
    const Segment& segment = match.route->segments[i];
    if (segment.is_param) match.params.emplace(segment.text, segments[i]);
  }
  return match;
}

}  // namespace llorch::http
