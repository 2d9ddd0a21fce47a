// Requests through libcurl: several side by side on one thread, redirects followed with care, a
// connection that stalls cut. Private to catalog/; knows nothing of models.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "catalog/retry.h"

namespace llorch::catalog {

using HeaderFields = std::vector<std::pair<std::string, std::string>>;

struct FetchOptions {
  std::chrono::milliseconds connect_timeout{10'000};
  std::chrono::milliseconds stall_timeout = kStallTimeout;
  // Of all connections together: each must bring its share over every stall_timeout. 0: no minimum.
  std::int64_t min_bytes_per_second = kMinBytesPerSecond;
  std::string ca_file{};                           // empty: the system's
  const base::Clock* clock = &base::real_clock();  // of the pauses between attempts of fetch_text
};

struct ByteRange {
  std::int64_t offset = 0;
  std::int64_t bytes = 0;  // at least 1
};

struct FetchRequest {
  std::string url;
  HeaderFields headers;         // secrets among them
  std::string headers_for_url;  // they go to this URL's origin and nowhere else
  std::optional<ByteRange> range;
  std::string if_range;  // an ETag
};

// The head of an answer that is not a redirect.
struct FetchHead {
  int status = 0;
  std::string url;      // that answered, behind all redirects
  HeaderFields fields;  // names in lower case

  std::string_view find(std::string_view name) const;  // empty: not there
  std::optional<std::int64_t> content_length() const;
};

// "bytes 0-99/1234"; a total of "*" is not known.
struct ContentRange {
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::optional<std::int64_t> total;
};
std::optional<ContentRange> parse_content_range(std::string_view text);

// Gets what a server sends with a status of 2xx. Called from HttpFetcher::run.
class FetchSink {
 public:
  virtual ~FetchSink() = default;
  // False: not wanted, the request ends.
  virtual bool on_head(const FetchHead& head) = 0;
  virtual bool on_body(std::span<const std::byte> bytes) = 0;
};

struct FetchOutcome {
  int id = 0;
  FetchHead head;          // status 0: no answer came
  bool complete = false;   // the body ended where the server had said
  bool unwanted = false;   // the sink ended it
  bool may_pass = false;   // the connection failed in a way that may be gone next time
  std::string problem;     // what went wrong with the connection or the redirects; or empty
  std::string error_text;  // the beginning of the body of an answer that is not 2xx
  std::chrono::seconds retry_after{0};
};

// "https://host/path" without the query, which may hold a signature.
std::string shown_url(std::string_view url);
// "https://host:443"; empty when it is not an http or https URL.
std::string origin_of(const std::string& url);

// "host" or "host:port", as the URL has it; for people.
std::string host_of(const std::string& url);

// Why a redirect is not followed, empty when it is: only to http and https, and never from https to
// http.
std::string redirect_problem(const std::string& from, const std::string& to);
// Unauthorized, Forbidden, NotFound or Unavailable: what the server said, in one sentence.
Error status_error(const FetchHead& head, std::string_view body);

// The same of a host that `asked` redirected to, and what to do about it: such addresses are signed
// and live for a while only, so no token and no permission of ours is the reason.
Error refused_elsewhere(const std::string& asked, const FetchHead& head, std::string_view body);

class HttpFetcher {
 public:
  explicit HttpFetcher(FetchOptions options);
  ~HttpFetcher();  // drops what is under way
  HttpFetcher(const HttpFetcher&) = delete;
  HttpFetcher& operator=(const HttpFetcher&) = delete;

  // The sink must live until the outcome was returned or the request dropped.
  int start(FetchRequest request, FetchSink& sink);
  void drop(int id);
  int num_active() const;
  // The URL of the request that has been silent for longest, behind its redirects; empty: none.
  std::string silent_url() const;

  // Moves data until something ended or `patience` is over.
  std::vector<FetchOutcome> run(std::chrono::milliseconds patience);
  // Ends a wait in run() early; the only function for other threads.
  void wake();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Called about once a second while a server's answer is overdue: who, and for how long so far.
using OnWait = std::function<void(const std::string& host, std::chrono::milliseconds waited)>;

struct TextAnswer {
  FetchHead head;
  std::string body;  // of any status
};

// One small answer in memory, tried again while the failure may pass. Answers of 4xx that will not
// pass are returned for the caller to explain. TooLarge above max_bytes; Unavailable with the last
// failure; Cancelled. `deadline` bounds each attempt.
struct TextRequest {
  FetchRequest request;
  std::size_t max_bytes = 0;
  bool head_only = false;  // the body is not wanted
  std::chrono::milliseconds deadline{60'000};
  OnWait on_wait{};
  std::chrono::milliseconds wait_shown = kWaitShown;
};
Result<TextAnswer> fetch_text(const TextRequest& request, const FetchOptions& options,
                              const RetryPolicy& retry, std::stop_token stop);

}  // namespace llorch::catalog
