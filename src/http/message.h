// The values that travel: methods, headers, requests as handlers see them, responses.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace llorch::http {

enum class Method : std::uint8_t { Get, Head, Post, Put, Patch, Delete, Options, Other };

std::string_view method_name(Method method);

// Header fields in the order they came. Names compare without regard to case; a name may occur
// twice.
class Headers {
 public:
  using Field = std::pair<std::string, std::string>;

  void add(std::string name, std::string value);
  void set(std::string_view name, std::string value);  // replaces every field of that name
  std::optional<std::string_view> find(
      std::string_view name) const;  // the first; valid until a change
  std::size_t count(std::string_view name) const;
  std::size_t size() const { return fields_.size(); }
  auto begin() const { return fields_.begin(); }
  auto end() const { return fields_.end(); }

 private:
  std::vector<Field> fields_;
};

bool equals_ignoring_case(std::string_view a, std::string_view b);  // ASCII letters only

// A request whose head was checked, whose route was found and whose body is whole.
struct Request {
  Method method = Method::Other;
  std::string path;  // as sent, still percent-encoded, without the query
  std::map<std::string, std::string> path_params;  // decoded, by the names of the route's pattern
  std::map<std::string, std::string> query;        // decoded; a name given twice never gets here
  std::string raw_query;                           // as sent, without the '?'
  Headers headers;
  std::string body;
  std::string correlation_id;  // [A-Za-z0-9-]{1,64}: the client's or a new one
  std::optional<std::chrono::system_clock::time_point>
      deadline;  // X-Deadline, not yet past on arrival
  bool from_loopback = false;
};

// Has constructors so that it may be built inside a co_await expression: see task.h.
struct Response {
  Response() = default;
  Response(int code, std::string content_type, std::string content);

  int status = 200;
  Headers
      headers;  // the framing (Content-Length, Transfer-Encoding, Connection) is the server's own
  std::string body;
};

// How an Error looks on the wire. This module does not know the codes: whoever starts a server
// says.
struct ErrorBody {
  int status = 500;
  std::string content_type;
  std::string body;
  Headers headers;
};
using RenderError = std::function<ErrorBody(const Error& error, std::string_view correlation_id)>;

}  // namespace llorch::http
