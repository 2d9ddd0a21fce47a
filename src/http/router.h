// Router: method and path pattern → handler.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "http/message.h"
#include "http/stream.h"
#include "http/task.h"

namespace llorch::http {

// Runs on an io thread and must not block it. Answers through the Responder, once. An error it
// returns before answering is rendered for it; after a stream was opened, an error breaks the
// stream off visibly. Exceptions become errors.
using Handler = std::function<Task<Status>(const Request& request, Responder& responder)>;

// For answers that need no waiting.
using PlainHandler = std::function<Result<Response>(const Request& request)>;

struct RouteOptions {
  std::optional<std::size_t> max_body_bytes;  // instead of the server's
  RenderError render_error;                   // instead of the server's
  // The pattern's last parameter stands for the whole rest of the path, slashes and all, which may
  // be empty. It is not among path_params: Request::path has it as it was sent.
  bool takes_rest = false;
};

// Filled at start, then read by every io thread.
class Router {
 public:
  struct Segment {
    std::string text;  // literal text, or the name of a parameter
    bool is_param = false;
  };
  struct Route {
    Method method;
    std::vector<Segment> segments;
    Handler handler;
    RouteOptions options;
  };
  struct Match {
    const Route* route = nullptr;  // null: not found, or `allow` says which methods there are
    const RouteOptions* options =
        nullptr;  // the route's; without one, those of answer_below, or null
    std::map<std::string, std::string> params;
    std::string allow;
    // For a path that no route has: the patterns that may be meant, "/v1/models, /v1/models/{id}".
    std::string near;
  };

  // `pattern`: "/v2/workers/{id}". A parameter matches one non-empty segment; a literal wins over a
  // parameter. A GET route also answers HEAD. Adding the same method and pattern twice is a bug.
  void add(Method method, std::string_view pattern, Handler handler, RouteOptions options = {});
  void add(Method method, std::string_view pattern, PlainHandler handler,
           RouteOptions options = {});

  // How the server answers for paths below `folder` ("/v1") that no route takes.
  void answer_below(std::string_view folder, RouteOptions options);

  Match find(Method method, const std::vector<std::string>& segments) const;
  const std::vector<Route>& routes() const { return routes_; }  // in the order they were added

 private:
  struct Folder {
    std::vector<Segment> segments;
    RouteOptions options;
  };

  std::string find_near(const std::vector<std::string>& segments, const Folder* folder) const;

  std::vector<Route> routes_;
  std::vector<Folder> folders_;
};

}  // namespace llorch::http
