// Taking request targets and URLs apart. Everything here reads hostile text and never trusts a
// length.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace llorch::http {

// Every %XX becomes its byte. A broken escape or an encoded NUL is an error.
Result<std::string> percent_decode(std::string_view text);

// Keeps letters, digits and -._~, escapes the rest: safe as one path segment or one query value.
std::string percent_encode(std::string_view text);

// "a=1&b=%20" decoded, '+' meaning a space. A name given twice is an error.
Result<std::map<std::string, std::string>> parse_query(std::string_view query);

// A request target ("/a/b%20c?x=1", or in absolute form) in parts.
struct Target {
  std::string path;                   // encoded, begins with '/'
  std::vector<std::string> segments;  // decoded; "/" has none, "/a/" has "a" and ""
  std::map<std::string, std::string> query;
  std::string raw_query;  // as it was, without the '?'
};
Result<Target> parse_target(std::string_view target);
// The host and port in an absolute-form target (http://host:1/a); nothing in any other.
std::optional<std::string_view> authority_of(std::string_view target);

// An absolute http or https URL in parts. User names are refused.
// "http+unix://%2Frun%2Fllorch%2Fpool.sock/v2/state" leads to a unix socket: its absolute path,
// percent-encoded, stands for the host. A tunnel to a TCP port has that port behind the path.
struct Url {
  std::string host;  // without the brackets of an IPv6 address; "localhost" behind a unix socket
  std::uint16_t port = 80;
  std::string target = "/";    // path and query, encoded
  std::string unix_path = {};  // empty: TCP
  bool is_tls = false;         // https

  std::string authority() const;  // host:port as a Host header wants it
  std::string peer() const;       // for people: the authority, or the socket's path
};
Result<Url> parse_url(std::string_view text);

// The most bytes that the path of a unix socket has; the system's structure has no room for more.
inline constexpr std::size_t kUnixPathBytesMax = 107;
// The URL of a unix socket, without a target.
std::string unix_url(std::string_view path);

// Whether a URL's host, with or without the brackets of an IPv6 address, is this machine by its
// spelling alone: nobody is asked.
bool is_loopback(std::string_view host);

// Whether a server on `host` listens on every address of this machine.
bool is_any_address(std::string_view host);

}  // namespace llorch::http
