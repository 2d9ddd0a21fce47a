// For tests and benchmarks: a pool with scripted workers, in process. It answers /v2/state with
// what it is given and /v2/workers/{id}/api/… as a worker would: /execute, OpenAI's text endpoints,
// embeddings, /cancel. What a worker says is a function of seed, choice and position, and a request
// that resumes with other ids than those is refused: so an answer that moves must come out the
// same.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/mutex.h"
#include "http/feed.h"
#include "http/router.h"
#include "http/server.h"
#include "orchestrator/ports.h"

namespace llorch::orchestrator::test {

// What a worker does with one request. A request may bring its own in the field `user` of its body,
// for programs that cannot call script(): "script tokens=200 pace_us=5000 cut_after=9"; one that
// resumes is not cut again.
struct Script {
  std::uint32_t tokens = 8;                  // of choice 0; each further choice has one less
  std::chrono::microseconds pace{0};         // between steps
  std::optional<std::uint32_t> cut_after;    // events, and its connection breaks
  std::optional<std::uint32_t> stall_after;  // events, and it is silent for ever
  std::optional<std::uint32_t> fail_after;   // events, and it says `error`
  Error error{ErrorCode::DeviceFailed, "scripted"};
  std::optional<int> refuse;  // this status, with refusal as its body
  std::string refusal = R"({"error":{"code":"UNAVAILABLE","message":"scripted","retriable":true,)"
                        R"("correlation_id":"c"}})";
  bool hears_cancel = true;
  bool tells_done = true;  // [DONE] at the end of chunks
};

// A request as it came.
struct Seen {
  std::string worker;
  std::string endpoint;
  json::Object body;
  http::Headers headers;
};

class TestPool {
 public:
  explicit TestPool(int io_threads = 1);
  ~TestPool();

  PoolAddress address() const;
  void stop();  // its connections break, nobody listens any more

  // The next requests to this worker; afterwards `usual`.
  void script(const std::string& worker, Script script);
  void set_usual(Script script);
  void set_state(std::string json);  // of GET /v2/state

  std::vector<Seen> seen() const;
  std::uint32_t running() const;  // streams under way
  std::uint32_t cancels() const;

 private:
  class Worker;

  http::Router make_router();
  Script next_script(const std::string& worker);
  http::Task<Status> answer(const http::Request& request, http::Responder& responder);
  http::Task<Status> stream(const http::Request& request, http::Responder& responder,
                            json::Object body, Script script);
  http::Task<Status> refuse(http::Responder& responder, int status, std::string body);
  void cancel(const std::string& job);

  mutable base::Mutex mutex_;
  std::map<std::string, std::deque<Script>> scripts_ LLORCH_GUARDED_BY(mutex_);
  Script usual_ LLORCH_GUARDED_BY(mutex_);
  std::string state_ LLORCH_GUARDED_BY(mutex_) = "{}";
  std::vector<Seen> seen_ LLORCH_GUARDED_BY(mutex_);
  std::uint32_t running_ LLORCH_GUARDED_BY(mutex_) = 0;
  std::uint32_t cancels_ LLORCH_GUARDED_BY(mutex_) = 0;
  std::map<std::string, http::Waker> waiting_ LLORCH_GUARDED_BY(mutex_);  // by job id
  std::map<std::string, bool> cancelled_ LLORCH_GUARDED_BY(mutex_);
  std::unique_ptr<http::Server> server_;
};

// The state of a pool with so many workers of the model "story": w0, w1, …
std::string scripted_state(std::uint32_t workers, std::int32_t slots);

// The id and the text of one token of such a worker.
std::int32_t scripted_id(std::uint64_t seed, std::uint32_t choice, std::uint32_t position);
std::string scripted_text(std::int32_t id);
// The whole text of a choice.
std::string scripted_answer(std::uint64_t seed, std::uint32_t choice, std::uint32_t tokens);

}  // namespace llorch::orchestrator::test
