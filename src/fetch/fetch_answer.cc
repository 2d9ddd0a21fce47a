#include "fetch/fetch_answer.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <charconv>

#include "base/ascii.h"
#include "base/terminal.h"
#include "base/utf8.h"

namespace llorch::fetch {
namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r' ||
                           text.back() == '\n')) {
    text.remove_suffix(1);
  }
  return text;
}

std::optional<std::int64_t> parse_count(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

// A URL in curl's hands, for the length of a scope.
class ParsedUrl {
 public:
  explicit ParsedUrl(const std::string& url) : handle_(curl_url()) {
    ok_ = handle_ != nullptr && curl_url_set(handle_, CURLUPART_URL, url.c_str(), 0) == CURLUE_OK;
  }
  ~ParsedUrl() { curl_url_cleanup(handle_); }
  ParsedUrl(const ParsedUrl&) = delete;
  ParsedUrl& operator=(const ParsedUrl&) = delete;

  std::string part(CURLUPart which, unsigned flags = 0) const {
    char* text = nullptr;
    if (!ok_ || curl_url_get(handle_, which, &text, flags) != CURLUE_OK) return {};
    std::string result = text;
    curl_free(text);
    return result;
  }

 private:
  CURLU* handle_;
  bool ok_ = false;
};

}  // namespace

int parse_status_line(std::string_view line) {
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos) return 0;
  return static_cast<int>(parse_count(line.substr(space + 1, 3)).value_or(0));
}

void FetchHead::add_field(std::string_view line) {
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos) return;
  fields.emplace_back(base::ascii_lower(trimmed(line.substr(0, colon))),
                      std::string(trimmed(line.substr(colon + 1))));
}

std::string_view FetchHead::find(std::string_view name) const {
  for (const auto& [field, value] : fields) {
    if (field == name) return value;
  }
  return {};
}

std::optional<std::int64_t> FetchHead::content_length() const {
  return parse_count(find("content-length"));
}

std::optional<ContentRange> parse_content_range(std::string_view text) {
  constexpr std::string_view kUnit = "bytes ";
  if (!text.starts_with(kUnit)) return std::nullopt;
  text.remove_prefix(kUnit.size());
  const std::size_t dash = text.find('-');
  const std::size_t slash = text.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos || dash > slash)
    return std::nullopt;
  const auto first = parse_count(text.substr(0, dash));
  const auto last = parse_count(text.substr(dash + 1, slash - dash - 1));
  const std::string_view total = text.substr(slash + 1);
  if (!first || !last || *last < *first) return std::nullopt;
  ContentRange range{*first, *last, std::nullopt};
  if (total != "*") {
    range.total = parse_count(total);
    if (!range.total || *range.total <= *last) return std::nullopt;
  }
  return range;
}

std::string shown_url(std::string_view url) {
  url = url.substr(0, url.find('#'));
  return base::quoted(url.substr(0, url.find('?')));
}

std::string origin_of(const std::string& url) {
  const ParsedUrl parsed(url);
  const std::string scheme = base::ascii_lower(parsed.part(CURLUPART_SCHEME));
  if (scheme != "http" && scheme != "https") return {};
  return fmt::format("{}://{}:{}", scheme, base::ascii_lower(parsed.part(CURLUPART_HOST)),
                     parsed.part(CURLUPART_PORT, CURLU_DEFAULT_PORT));
}

std::string host_of(const std::string& url) {
  const ParsedUrl parsed(url);
  const std::string port = parsed.part(CURLUPART_PORT);
  return base::printable(parsed.part(CURLUPART_HOST) + (port.empty() ? "" : ":" + port));
}

std::string redirect_problem(const std::string& from, const std::string& to) {
  const std::string origin = origin_of(to);
  if (origin.empty()) {
    return fmt::format("{} redirects to {}, which is neither http nor https", shown_url(from),
                       shown_url(to));
  }
  if (origin.starts_with("http:") && origin_of(from).starts_with("https:")) {
    return fmt::format("{} redirects to {}: from https to http is refused", shown_url(from),
                       shown_url(to));
  }
  return {};
}

Error status_error(const FetchHead& head, std::string_view body) {
  ErrorCode code = ErrorCode::Unavailable;
  if (head.status == 401) code = ErrorCode::Unauthorized;
  if (head.status == 403 || head.status == 451) code = ErrorCode::Forbidden;
  if (head.status == 404 || head.status == 410) code = ErrorCode::NotFound;
  // The hub puts its reason into a header; others write it into the body, as text or as a page.
  std::string_view reason = head.find("x-error-message");
  if (reason.empty() && !head.find("content-type").starts_with("text/html")) reason = body;
  return {code,
          fmt::format("{} answered {}{}{}", shown_url(head.url), head.status,
                      reason.empty() ? "" : ": ", reason.empty() ? "" : base::quoted(reason))};
}

Error refused_elsewhere(const std::string& asked, const FetchHead& head, std::string_view body) {
  const Error said = status_error(head, body);
  return {said.code,
          fmt::format("{}; {} had let us in and sent us there, so no token would help: the address "
                      "it gave has expired, or {} is refused to this network. Check this host's "
                      "clock, proxy and firewall, and try again later",
                      said.message, host_of(asked), host_of(head.url))};
}

}  // namespace llorch::fetch
