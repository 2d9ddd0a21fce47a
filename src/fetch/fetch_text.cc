#include "fetch/fetch_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/clock.h"

namespace llorch::fetch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLookUp{100};

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
  Retries retries(retry);
  Attempts attempts;
  Waiting waiting(request);
  for (;;) {
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
    const Result<std::chrono::milliseconds> pause =
        retries.fail(attempts, what, outcome.retry_after);
    if (!pause.ok()) return pause.error();
    if (!sleep_unless_stopped(*pause, waiting, *options.clock, stop)) return cancelled(url);
  }
}

}  // namespace llorch::fetch
