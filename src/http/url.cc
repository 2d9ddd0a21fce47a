#include "http/url.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace llorch::http {
namespace {

std::optional<unsigned> hex_digit(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a') + 10;
  if (c >= 'A' && c <= 'F') return static_cast<unsigned>(c - 'A') + 10;
  return std::nullopt;
}

bool is_unreserved(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '.' || c == '_' || c == '~';
}

Error bad(std::string message) {
  return {ErrorCode::InvalidArgument, std::move(message)};
}

// Cuts `text` at the first `separator` and returns what was before; the rest stays, empty when
// there was none.
std::string_view cut(std::string_view& text, char separator) {
  const std::size_t at = text.find(separator);
  const std::string_view head = text.substr(0, at);
  text.remove_prefix(at == std::string_view::npos ? text.size() : at + 1);
  return head;
}

Result<std::string> decode_query_part(std::string_view part) {
  std::string spaced(part);
  std::replace(spaced.begin(), spaced.end(), '+', ' ');
  return percent_decode(spaced);
}

constexpr std::string_view kScheme = "http://";

// What follows the authority of an absolute-form target; check_head has looked at that.
std::string_view without_authority(std::string_view target) {
  const std::optional<std::string_view> authority = authority_of(target);
  if (!authority) return target;
  target.remove_prefix(kScheme.size() + authority->size());
  return target.empty() || target.front() == '#' ? "/" : target;
}

bool is_visible_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7F; });
}

Result<std::uint16_t> parse_port(std::string_view text, std::string_view url) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port == 0) {
    return bad(fmt::format("URL '{}': the port '{}' is not a number from 1 to 65535", url, text));
  }
  return port;
}

constexpr std::uint16_t kTlsPort = 443;
constexpr std::string_view kUnixScheme = "http+unix://";

// Behind the scheme: the socket's path, then the target.
Result<Url> parse_unix_url(std::string_view rest, std::string_view text) {
  const std::size_t end = std::min(rest.find_first_of("/?#"), rest.size());
  const std::size_t colon = std::min(rest.find(':'), end);
  Result<std::string> path = percent_decode(rest.substr(0, colon));
  if (!path.ok()) return path.error();
  Url url;
  if (colon < end) {
    const Result<std::uint16_t> port = parse_port(rest.substr(colon + 1, end - colon - 1), text);
    if (!port.ok()) return port.error();
    url.port = *port;
  }
  if (!path->starts_with('/')) {
    return bad(
        fmt::format("URL '{}': expected the absolute path of a unix socket behind {}, with %2F for "
                    "each slash, as in {}%2Frun%2Fllorch%2Fpool.sock/health",
                    text, kUnixScheme, kUnixScheme));
  }
  if (path->size() > kUnixPathBytesMax) {
    return bad(fmt::format("URL '{}': the path of a unix socket has at most {} bytes, not {}", text,
                           kUnixPathBytesMax, path->size()));
  }
  rest.remove_prefix(end);
  rest = rest.substr(0, rest.find('#'));
  url.host = "localhost";
  url.unix_path = path.take();
  if (!rest.empty())
    url.target = rest.starts_with('/') ? std::string(rest) : fmt::format("/{}", rest);
  return url;
}

}  // namespace

Result<std::string> percent_decode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    const auto high = text.size() - i > 2 ? hex_digit(text[i + 1]) : std::nullopt;
    const auto low = text.size() - i > 2 ? hex_digit(text[i + 2]) : std::nullopt;
    if (!high || !low) return bad("a '%' in the URL is not followed by two hexadecimal digits");
    if (*high == 0 && *low == 0) return bad("the URL contains an encoded NUL (%00)");
    out += static_cast<char>(*high * 16 + *low);
    i += 2;
  }
  return out;
}

std::string percent_encode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (is_unreserved(c)) {
      out += c;
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

Result<std::map<std::string, std::string>> parse_query(std::string_view query) {
  std::map<std::string, std::string> out;
  while (!query.empty()) {
    std::string_view value = cut(query, '&');
    if (value.empty()) continue;
    const std::string_view name = cut(value, '=');
    Result<std::string> decoded_name = decode_query_part(name);
    if (!decoded_name.ok()) return decoded_name.error();
    Result<std::string> decoded_value = decode_query_part(value);
    if (!decoded_value.ok()) return decoded_value.error();
    if (!out.emplace(decoded_name.value(), decoded_value.take()).second) {
      return bad(fmt::format("the query gives '{}' more than once", *decoded_name));
    }
  }
  return out;
}

std::optional<std::string_view> authority_of(std::string_view target) {
  if (!target.starts_with(kScheme)) return std::nullopt;
  target.remove_prefix(kScheme.size());
  return target.substr(0, target.find_first_of("/?#"));
}

Result<Target> parse_target(std::string_view target) {
  target = without_authority(target);
  target = target.substr(0, target.find('#'));
  const std::size_t question = target.find('?');
  std::string_view path = target.substr(0, question);
  if (path.empty() && question == 0) path = "/";
  if (!path.starts_with('/')) return bad("the request target does not begin with '/'");

  Target out;
  out.path = path;
  path.remove_prefix(1);
  while (!path.empty()) {
    const bool ends_in_slash = path.find('/') == path.size() - 1;
    Result<std::string> segment = percent_decode(cut(path, '/'));
    if (!segment.ok()) return segment.error();
    out.segments.push_back(segment.take());
    if (ends_in_slash) out.segments.emplace_back();
  }
  if (question != std::string_view::npos) {
    auto query = parse_query(target.substr(question + 1));
    if (!query.ok()) return query.error();
    out.query = query.take();
    out.raw_query = target.substr(question + 1);
  }
  return out;
}

std::string Url::authority() const {
  const bool is_v6 = host.find(':') != std::string::npos;
  return is_v6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

std::string Url::peer() const {
  return unix_path.empty() ? authority() : unix_path;
}

std::string unix_url(std::string_view path) {
  return fmt::format("{}{}", kUnixScheme, percent_encode(path));
}

Result<Url> parse_url(std::string_view text) {
  if (!is_visible_ascii(text)) {
    return bad("a URL contains spaces, control characters or non-ASCII bytes; percent-encode them");
  }
  std::string_view rest = text;
  if (rest.starts_with(kUnixScheme)) return parse_unix_url(rest.substr(kUnixScheme.size()), text);
  Url url;
  url.is_tls = rest.starts_with("https://");
  if (url.is_tls) url.port = kTlsPort;
  const std::string_view scheme = url.is_tls ? "https://" : "http://";
  if (!rest.starts_with(scheme))
    return bad(fmt::format("URL '{}' does not begin with http:// or https://", text));
  rest.remove_prefix(scheme.size());
  const std::size_t authority_end = std::min(rest.find_first_of("/?#"), rest.size());
  std::string_view authority = rest.substr(0, authority_end);
  rest.remove_prefix(authority_end);
  rest = rest.substr(0, rest.find('#'));
  if (authority.find('@') != std::string_view::npos) {
    return bad("a URL carries a user name; give credentials in a header instead");
  }

  if (authority.starts_with('[')) {
    if (authority.find(']') == std::string_view::npos) {
      return bad(fmt::format("URL '{}': the '[' of the address is not closed", text));
    }
    authority.remove_prefix(1);
    url.host = cut(authority, ']');
    if (!authority.empty() && !authority.starts_with(':')) {
      return bad(fmt::format("URL '{}': text between ']' and the port", text));
    }
  } else {
    const std::size_t colon = std::min(authority.find(':'), authority.size());
    url.host = authority.substr(0, colon);
    authority.remove_prefix(colon);
  }
  if (url.host.empty()) return bad(fmt::format("URL '{}' names no host", text));
  if (url.host.find_first_of("[]") != std::string::npos) {
    return bad(fmt::format("URL '{}': a bracket inside the host", text));
  }
  if (!authority.empty()) {
    Result<std::uint16_t> port = parse_port(authority.substr(1), text);
    if (!port.ok()) return port.error();
    url.port = *port;
  }
  if (!rest.empty())
    url.target = rest.starts_with('/') ? std::string(rest) : fmt::format("/{}", rest);
  return url;
}

bool is_any_address(std::string_view host) {
  return host == "0.0.0.0" || host == "::";
}

bool is_loopback(std::string_view host) {
  if (host == "localhost" || host == "::1" || host == "[::1]") return true;
  // Four numbers of which the first is 127: "127.0.0.1.example.org" is somebody else.
  int parts = 0;
  for (std::string_view rest = host; parts < 5; ++parts) {
    const std::string_view part = rest.substr(0, rest.find('.'));
    unsigned number = 256;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    if (error != std::errc() || end != part.data() + part.size() || number > 255) return false;
    if (parts == 0 && number != 127) return false;
    if (part.size() == rest.size()) return parts == 3;
    rest.remove_prefix(part.size() + 1);
  }
  return false;
}

}  // namespace llorch::http
