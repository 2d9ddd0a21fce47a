// What web pages may ask of a server. A browser sends requests for any page to any address it can
// reach, loopback included; what tells those apart from a user's own programs are the headers that
// a page cannot forge. Private to http/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "http/guard.h"
#include "http/message.h"

namespace llorch::http {

struct WebRules {
  bool has_token = false;
  std::vector<std::string> hosts;    // "127.0.0.1:8000": what Host may say where there is no token
  std::vector<std::string> origins;  // that pages may come from; "*": anywhere
  std::string_view scheme = "http://";  // of our own pages
};

// "scheme://host[:port]" as browsers write it: lower case, without the scheme's own port. A path, a
// list, "null" are errors; "*" stays.
Result<std::string> parse_origin(std::string_view text);

// `listen_host`: an address, or "localhost". `more_hosts`: other values of Host, with their port.
// "*" as an origin needs a token.
Result<WebRules> make_web_rules(bool has_token, std::string_view listen_host, std::uint16_t port,
                                const std::vector<std::string>& more_hosts,
                                const std::vector<std::string>& origins, bool is_tls = false);

struct WebVerdict {
  std::optional<Refusal> refusal;
  bool is_preflight = false;  // a browser asks whether a page may send a request: answer 204
  Headers headers;            // that every answer to this request has
};

// Without a token: Host is one of ours, Origin (where there is one) is our own or an allowed one,
// and a page of another site is an allowed one. With a token: Host is free, Origin is an allowed
// one. Else Forbidden.
WebVerdict check_web(const WebRules& rules, Method method, const Headers& headers);

// A page can send forms and plain text to any address without asking, JSON it cannot. So every POST
// says that it is JSON, also one without a body; other methods, which a page must always ask for,
// where they say anything. A coding (gzip) is none that we take. Else UnsupportedMedia.
Status check_media(Method method, const Headers& headers);

}  // namespace llorch::http
