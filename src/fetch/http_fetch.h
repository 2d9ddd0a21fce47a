// Requests through libcurl: several side by side on one thread, redirects followed with care, a
// connection that stalls cut. Private to fetch/; knows nothing of models.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "fetch/fetch_answer.h"
#include "fetch/retry.h"

namespace llorch::fetch {

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

}  // namespace llorch::fetch
