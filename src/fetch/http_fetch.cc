#include "fetch/http_fetch.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>

#include "base/check.h"
#include "base/header_text.h"
#include "base/version.h"

namespace llorch::fetch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRedirectsMax = 5;
constexpr long kBufferBytes = 64L << 10;
constexpr std::size_t kErrorTextBytes = 2048;
constexpr std::size_t kHeaderFieldsMax = 200;
constexpr std::size_t kHeaderBytesMax = std::size_t{64} << 10;

void start_libcurl_once() {
  static const CURLcode started = curl_global_init(CURL_GLOBAL_DEFAULT);
  CHECK(started == CURLE_OK, "libcurl");
}

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
    exchange.head.status = parse_status_line(line);
    return line.size();
  }
  exchange.header_bytes += line.size();
  if (exchange.header_bytes > kHeaderBytesMax || exchange.head.fields.size() > kHeaderFieldsMax) {
    exchange.refused = "the answer's head is too large";
    return 0;
  }
  const bool is_blank = line.find_first_not_of(" \t\r\n") == std::string_view::npos;
  if (!is_blank) {
    exchange.head.add_field(line);
    return line.size();
  }
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

}  // namespace llorch::fetch
