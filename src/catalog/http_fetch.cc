#include "catalog/http_fetch.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

#include "base/check.h"
#include "base/header_text.h"
#include "base/terminal.h"
#include "base/utf8.h"
#include "base/version.h"

namespace llorch::catalog {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRedirectsMax = 5;
constexpr long kBufferBytes = 64L << 10;
constexpr std::size_t kErrorTextBytes = 2048;
constexpr std::size_t kHeaderFieldsMax = 200;
constexpr std::size_t kHeaderBytesMax = std::size_t{64} << 10;
constexpr std::chrono::milliseconds kLookUp{100};

void start_libcurl_once() {
  static const CURLcode kStarted = curl_global_init(CURL_GLOBAL_DEFAULT);
  CHECK(kStarted == CURLE_OK, "libcurl");
}

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return result;
}

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

bool transport_may_pass(CURLcode code) {
  switch (code) {
    case CURLE_UNSUPPORTED_PROTOCOL:  // schemes were checked before: what came is not HTTP
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_PARTIAL_FILE:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2:
    case CURLE_AGAIN:
      return true;
    default:
      return false;
  }
}

bool is_redirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

}  // namespace

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
  const std::string scheme = lower(parsed.part(CURLUPART_SCHEME));
  if (scheme != "http" && scheme != "https") return {};
  return fmt::format("{}://{}:{}", scheme, lower(parsed.part(CURLUPART_HOST)),
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

// One request and the libcurl handle that serves it.
struct Exchange {
  int id = 0;
  CURL* easy = nullptr;
  curl_slist* header_list = nullptr;
  FetchRequest request;
  FetchSink* sink = nullptr;
  std::string url;  // where this hop goes
  int redirects = 0;
  FetchHead head;
  std::size_t header_bytes = 0;
  bool head_ended = false;
  bool head_given = false;
  bool unwanted = false;
  std::string refused;  // a head that breaks the bounds
  std::string error_text;
  Clock::time_point last_byte;
  Clock::time_point window_begin;  // the rate is looked at over one stall timeout after the other
  std::int64_t window_bytes = 0;
  std::array<char, CURL_ERROR_SIZE> curl_error{};

  void count(std::size_t bytes) {
    last_byte = Clock::now();
    window_bytes += static_cast<std::int64_t>(bytes);
  }

  bool is_answer() const { return head.status >= 200 && head.status < 300; }

  void begin_head() {
    head = {};
    head.url = url;
    head_ended = false;
    header_bytes = 0;
  }

  bool give_head() {
    if (head_given || !is_answer()) return true;
    head_given = true;
    if (sink->on_head(head)) return true;
    unwanted = true;
    return false;
  }
};

namespace {

std::size_t on_header(char* data, std::size_t size, std::size_t count, void* user) {
  auto& exchange = *static_cast<Exchange*>(user);
  exchange.count(size * count);
  const std::string_view line(data, size * count);
  if (line.starts_with("HTTP/")) {
    exchange.begin_head();  // of an interim answer, a proxy's or the real one: the last one counts
    const std::size_t space = line.find(' ');
    if (space != std::string_view::npos)
      exchange.head.status = static_cast<int>(parse_count(line.substr(space + 1, 3)).value_or(0));
    return line.size();
  }
  exchange.header_bytes += line.size();
  if (exchange.header_bytes > kHeaderBytesMax || exchange.head.fields.size() > kHeaderFieldsMax) {
    exchange.refused = "the answer's head is too large";
    return 0;
  }
  const std::size_t colon = line.find(':');
  if (colon != std::string_view::npos) {
    exchange.head.fields.emplace_back(lower(trimmed(line.substr(0, colon))),
                                      std::string(trimmed(line.substr(colon + 1))));
    return line.size();
  }
  if (!trimmed(line).empty()) return line.size();
  exchange.head_ended = true;
  return exchange.give_head() ? line.size() : 0;
}

std::size_t on_data(char* data, std::size_t size, std::size_t count, void* user) {
  auto& exchange = *static_cast<Exchange*>(user);
  const std::size_t bytes = size * count;
  exchange.count(bytes);
  if (!exchange.is_answer()) {
    const std::size_t room = kErrorTextBytes - exchange.error_text.size();
    if (!is_redirect(exchange.head.status)) exchange.error_text.append(data, std::min(room, bytes));
    return bytes;
  }
  if (exchange.sink->on_body(std::as_bytes(std::span(data, bytes)))) return bytes;
  exchange.unwanted = true;
  return 0;
}

}  // namespace

struct HttpFetcher::Impl {
  FetchOptions options;
  CURLM* multi = nullptr;
  std::map<int, std::unique_ptr<Exchange>> exchanges;
  std::vector<CURL*> idle;  // handles to use again
  int next_id = 1;

  void prepare(Exchange& exchange);
  void release(Exchange& exchange);
  std::string follow(Exchange& exchange);
  FetchOutcome outcome_of(Exchange& exchange, CURLcode code);
  void collect_ended(std::vector<FetchOutcome>& outcomes);
  std::string stall_of(Exchange& exchange, Clock::time_point now) const;
  void cut_stalled(std::vector<FetchOutcome>& outcomes);
};

void HttpFetcher::Impl::prepare(Exchange& exchange) {
  CURL* easy = exchange.easy;
  curl_easy_reset(easy);
  curl_slist_free_all(exchange.header_list);
  exchange.header_list = nullptr;
  exchange.begin_head();
  exchange.error_text.clear();
  exchange.last_byte = Clock::now();
  exchange.window_begin = exchange.last_byte;
  exchange.window_bytes = 0;
  const auto add_header = [&](const std::string& line) {
    if (base::has_control_characters(line)) return;  // it would forge others
    exchange.header_list = curl_slist_append(exchange.header_list, line.c_str());
  };
  const FetchRequest& request = exchange.request;
  if (!request.headers.empty() && origin_of(exchange.url) == origin_of(request.headers_for_url)) {
    for (const auto& [name, value] : request.headers) add_header(name + ": " + value);
  }
  if (!request.if_range.empty()) add_header("If-Range: " + request.if_range);
  curl_easy_setopt(easy, CURLOPT_URL, exchange.url.c_str());
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, exchange.header_list);
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(easy, CURLOPT_DISALLOW_USERNAME_IN_URL, 1L);
  // One connection for each request: eight streams over one connection would be one stream.
  curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  curl_easy_setopt(easy, CURLOPT_USERAGENT, ("llorch/" + std::string(base::version())).c_str());
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS,
                   static_cast<long>(options.connect_timeout.count()));
  curl_easy_setopt(easy, CURLOPT_BUFFERSIZE, kBufferBytes);
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L);  // a name server that hangs does not hold us
  curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, exchange.curl_error.data());
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, &exchange);
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_data);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, &exchange);
  curl_easy_setopt(easy, CURLOPT_PRIVATE, &exchange);
  curl_easy_setopt(easy, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
  if (!options.ca_file.empty()) curl_easy_setopt(easy, CURLOPT_CAINFO, options.ca_file.c_str());
  if (request.range) {
    const std::string range = fmt::format("{}-{}", request.range->offset,
                                          request.range->offset + request.range->bytes - 1);
    curl_easy_setopt(easy, CURLOPT_RANGE, range.c_str());
  }
}

void HttpFetcher::Impl::release(Exchange& exchange) {
  curl_multi_remove_handle(multi, exchange.easy);
  curl_easy_reset(exchange.easy);
  curl_slist_free_all(exchange.header_list);
  exchange.header_list = nullptr;
  idle.push_back(exchange.easy);
  exchange.easy = nullptr;
}

// Sets out for where the answer points. Returns why not, empty when it is under way.
std::string HttpFetcher::Impl::follow(Exchange& exchange) {
  char* location = nullptr;
  curl_easy_getinfo(exchange.easy, CURLINFO_REDIRECT_URL, &location);
  if (location == nullptr || *location == '\0') {
    return fmt::format("{} answered {} without saying where to go", shown_url(exchange.url),
                       exchange.head.status);
  }
  const std::string next = location;
  std::string problem = redirect_problem(exchange.url, next);
  if (!problem.empty()) return problem;
  if (++exchange.redirects > kRedirectsMax) {
    return fmt::format("{} redirects more than {} times", shown_url(exchange.request.url),
                       kRedirectsMax);
  }
  curl_multi_remove_handle(multi, exchange.easy);
  exchange.url = next;
  prepare(exchange);
  CHECK(curl_multi_add_handle(multi, exchange.easy) == CURLM_OK, "curl_multi_add_handle");
  return {};
}

FetchOutcome HttpFetcher::Impl::outcome_of(Exchange& exchange, CURLcode code) {
  FetchOutcome outcome;
  outcome.id = exchange.id;
  outcome.unwanted = exchange.unwanted;
  outcome.complete = code == CURLE_OK;
  if (code != CURLE_OK && !exchange.unwanted) {
    const std::string_view detail = exchange.curl_error.data();
    outcome.problem = !exchange.refused.empty()
                          ? exchange.refused
                          : fmt::format("{}: {}", shown_url(exchange.url),
                                        detail.empty() ? curl_easy_strerror(code) : detail);
    outcome.may_pass = exchange.refused.empty() && transport_may_pass(code);
  }
  curl_off_t retry_after = 0;
  curl_easy_getinfo(exchange.easy, CURLINFO_RETRY_AFTER, &retry_after);
  outcome.retry_after = std::chrono::seconds(retry_after);
  outcome.head = std::move(exchange.head);
  outcome.error_text = std::move(exchange.error_text);
  return outcome;
}

void HttpFetcher::Impl::collect_ended(std::vector<FetchOutcome>& outcomes) {
  int left = 0;
  while (const CURLMsg* message = curl_multi_info_read(multi, &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    const CURLcode code = message->data.result;
    Exchange* exchange = nullptr;
    curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &exchange);
    std::string redirect_problem;
    if (code == CURLE_OK && is_redirect(exchange->head.status)) {
      redirect_problem = follow(*exchange);
      if (redirect_problem.empty()) continue;
    }
    FetchOutcome outcome = outcome_of(*exchange, code);
    if (!redirect_problem.empty()) {
      outcome.problem = std::move(redirect_problem);
      outcome.complete = false;
    }
    const int id = exchange->id;
    release(*exchange);
    exchanges.erase(id);
    outcomes.push_back(std::move(outcome));
  }
}

// Why the connection counts as stalled; empty: it does not.
std::string HttpFetcher::Impl::stall_of(Exchange& exchange, Clock::time_point now) const {
  if (now - exchange.last_byte >= options.stall_timeout) {
    return fmt::format("{}: nothing came for {} ms", shown_url(exchange.url),
                       options.stall_timeout.count());
  }
  const auto window =
      std::chrono::duration_cast<std::chrono::milliseconds>(now - exchange.window_begin);
  if (window < options.stall_timeout) return {};
  exchange.window_begin = now;
  const std::int64_t came = std::exchange(exchange.window_bytes, 0);
  if (!is_too_slow(came, window, static_cast<std::int64_t>(exchanges.size()),
                   options.min_bytes_per_second))
    return {};
  return fmt::format("{}: {} bytes came in {} ms, less than {} bytes a second",
                     shown_url(exchange.url), came, window.count(), options.min_bytes_per_second);
}

void HttpFetcher::Impl::cut_stalled(std::vector<FetchOutcome>& outcomes) {
  const Clock::time_point now = Clock::now();
  std::map<int, std::string> stalled;  // judged before the first is cut: they share the line
  for (const auto& [id, exchange] : exchanges) {
    if (std::string why = stall_of(*exchange, now); !why.empty()) stalled[id] = std::move(why);
  }
  for (auto& [id, why] : stalled) {
    Exchange& exchange = *exchanges.at(id);
    FetchOutcome outcome = outcome_of(exchange, CURLE_OPERATION_TIMEDOUT);
    outcome.problem = std::move(why);
    release(exchange);
    exchanges.erase(id);
    outcomes.push_back(std::move(outcome));
  }
}

HttpFetcher::HttpFetcher(FetchOptions options) : impl_(std::make_unique<Impl>()) {
  start_libcurl_once();
  impl_->options = std::move(options);
  impl_->multi = curl_multi_init();
  CHECK(impl_->multi != nullptr, "curl_multi_init");
}

HttpFetcher::~HttpFetcher() {
  for (const auto& [id, exchange] : impl_->exchanges) impl_->release(*exchange);
  for (CURL* easy : impl_->idle) curl_easy_cleanup(easy);
  curl_multi_cleanup(impl_->multi);
}

int HttpFetcher::start(FetchRequest request, FetchSink& sink) {
  auto exchange = std::make_unique<Exchange>();
  exchange->id = impl_->next_id++;
  exchange->url = request.url;
  exchange->request = std::move(request);
  exchange->sink = &sink;
  if (impl_->idle.empty()) {
    exchange->easy = curl_easy_init();
    CHECK(exchange->easy != nullptr, "curl_easy_init");
  } else {
    exchange->easy = impl_->idle.back();
    impl_->idle.pop_back();
  }
  impl_->prepare(*exchange);
  CHECK(curl_multi_add_handle(impl_->multi, exchange->easy) == CURLM_OK, "curl_multi_add_handle");
  const int id = exchange->id;
  impl_->exchanges.emplace(id, std::move(exchange));
  return id;
}

void HttpFetcher::drop(int id) {
  const auto found = impl_->exchanges.find(id);
  if (found == impl_->exchanges.end()) return;
  impl_->release(*found->second);
  impl_->exchanges.erase(found);
}

int HttpFetcher::num_active() const {
  return static_cast<int>(impl_->exchanges.size());
}

std::string HttpFetcher::silent_url() const {
  const Exchange* oldest = nullptr;
  for (const auto& [id, exchange] : impl_->exchanges) {
    if (oldest == nullptr || exchange->last_byte < oldest->last_byte) oldest = exchange.get();
  }
  return oldest != nullptr ? oldest->url : std::string();
}

std::vector<FetchOutcome> HttpFetcher::run(std::chrono::milliseconds patience) {
  std::vector<FetchOutcome> outcomes;
  int running = 0;
  curl_multi_perform(impl_->multi, &running);
  impl_->collect_ended(outcomes);
  if (!outcomes.empty()) return outcomes;
  curl_multi_poll(impl_->multi, nullptr, 0, static_cast<int>(patience.count()), nullptr);
  curl_multi_perform(impl_->multi, &running);
  impl_->collect_ended(outcomes);
  impl_->cut_stalled(outcomes);
  return outcomes;
}

void HttpFetcher::wake() {
  curl_multi_wakeup(impl_->multi);
}

namespace {

class TextSink : public FetchSink {
 public:
  TextSink(std::size_t max_bytes, bool head_only) : max_bytes_(max_bytes), head_only_(head_only) {}

  bool on_head(const FetchHead& head) override {
    head_ = head;
    return !head_only_;
  }
  bool on_body(std::span<const std::byte> bytes) override {
    if (body_.size() + bytes.size() > max_bytes_) {
      too_large_ = true;
      return false;
    }
    body_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return true;
  }

  bool too_large() const { return too_large_; }
  std::string take_body() { return std::move(body_); }

 private:
  std::size_t max_bytes_;
  bool head_only_;
  bool too_large_ = false;
  FetchHead head_;
  std::string body_;
};

Error cancelled(const std::string& url) {
  return Error{ErrorCode::Cancelled, fmt::format("asking {} was cancelled", shown_url(url))};
}

// Tells about an answer that is overdue, through all attempts and the pauses between them.
class Waiting {
 public:
  explicit Waiting(const TextRequest& request)
      : request_(request), next_(began_ + request.wait_shown) {}

  void look(const std::string& url) {
    const Clock::time_point now = Clock::now();
    if (!request_.on_wait || now < next_) return;
    next_ = now + std::min(kTellEvery, request_.wait_shown);
    request_.on_wait(host_of(url.empty() ? request_.request.url : url),
                     std::chrono::duration_cast<std::chrono::milliseconds>(now - began_));
  }

 private:
  static constexpr std::chrono::milliseconds kTellEvery{1'000};
  const TextRequest& request_;
  const Clock::time_point began_ = Clock::now();
  Clock::time_point next_;
};

// One attempt. An outcome without a status and without a problem was cancelled or late.
FetchOutcome attempt_text(HttpFetcher& fetcher, const TextRequest& request, TextSink& sink,
                          Waiting& waiting, const std::stop_token& stop) {
  const int id = fetcher.start(request.request, sink);
  const Clock::time_point until = Clock::now() + request.deadline;
  while (!stop.stop_requested()) {
    std::vector<FetchOutcome> outcomes = fetcher.run(kLookUp);
    if (!outcomes.empty()) return std::move(outcomes.front());
    waiting.look(fetcher.silent_url());
    if (Clock::now() < until) continue;
    fetcher.drop(id);
    FetchOutcome late;
    late.may_pass = true;
    late.problem = fmt::format("{}: no whole answer within {} ms", shown_url(request.request.url),
                               request.deadline.count());
    return late;
  }
  fetcher.drop(id);
  return {};
}

// Looks at `waiting` every now and then.
bool sleep_unless_stopped(std::chrono::milliseconds pause, Waiting& waiting,
                          const base::Clock& clock, const std::stop_token& stop) {
  const Clock::time_point until = clock.now() + pause;
  while (clock.now() < until) {
    if (!clock.sleep_until(std::min(until, clock.now() + kLookUp), stop)) return false;
    waiting.look({});
  }
  return !stop.stop_requested();
}

}  // namespace

Result<TextAnswer> fetch_text(const TextRequest& request, const FetchOptions& options,
                              const RetryPolicy& retry, std::stop_token stop) {
  const std::string& url = request.request.url;
  HttpFetcher fetcher(options);
  const std::stop_callback wake(stop, [&fetcher] { fetcher.wake(); });
  std::uint64_t jitter = retry.jitter_seed;
  Waiting waiting(request);
  for (int failures = 1;; ++failures) {
    TextSink sink(request.max_bytes, request.head_only);
    FetchOutcome outcome = attempt_text(fetcher, request, sink, waiting, stop);
    if (stop.stop_requested()) return cancelled(url);
    if (sink.too_large()) {
      return Error{ErrorCode::TooLarge,
                   fmt::format("{} answers more than the {} bytes that are taken", shown_url(url),
                               request.max_bytes)};
    }
    const bool has_answer = outcome.complete || (outcome.unwanted && request.head_only);
    if (has_answer && !may_pass(outcome.head.status)) {
      const bool ok = outcome.head.status < 300;
      return TextAnswer{std::move(outcome.head),
                        ok ? sink.take_body() : std::move(outcome.error_text)};
    }
    const std::string what =
        has_answer ? fmt::format("{} answered {}", shown_url(url), outcome.head.status)
                   : outcome.problem;
    if (!has_answer && !outcome.may_pass) return Error{ErrorCode::Unavailable, what};
    const auto pause = pause_after(retry, failures, outcome.retry_after, jitter);
    if (!pause) {
      return Error{ErrorCode::Unavailable, fmt::format("{} and asks to wait {} s: try again later",
                                                       what, outcome.retry_after.count())};
    }
    if (failures >= retry.max_attempts) {
      return Error{ErrorCode::Unavailable,
                   fmt::format("{}, {} times in a row: try again later", what, failures)};
    }
    if (!sleep_unless_stopped(*pause, waiting, *options.clock, stop)) return cancelled(url);
  }
}

}  // namespace llorch::catalog
