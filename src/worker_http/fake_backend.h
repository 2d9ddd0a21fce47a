// For tests only: a backend that records what it is asked and says what it is told, on a thread of
// its own as an engine would, behind the real HTTP server.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/owner_loop.h"
#include "http/server.h"
#include "http/test_server.h"
#include "worker_http/backend.h"
#include "worker_http/routes.h"

namespace llorch::worker_http::test {

// A setting that the test changes while io threads may look at it.
template <class T>
class Setting {
 public:
  Setting() = default;
  explicit Setting(T value) : value_(std::move(value)) {}
  Setting& operator=(T value) {
    const base::MutexLock lock(mutex_);
    value_ = std::move(value);
    return *this;
  }
  T get() const {
    const base::MutexLock lock(mutex_);
    return value_;
  }

 private:
  mutable base::Mutex mutex_;
  T value_ LLORCH_GUARDED_BY(mutex_) = {};
};

// One accepted request, as the test sees it: say() and the others speak to the HTTP side from the
// calling thread.
struct FakeJob {
  TextRequest request;
  std::shared_ptr<TextListener> listener;
  bool abandoned = false;  // guarded by the backend's mutex

  void start(std::int64_t prompt_tokens = 3, std::int64_t cached_tokens = 1) const;
  void tell(const std::vector<std::pair<std::string, std::vector<std::int32_t>>>& pieces) const;
  bool say(std::string text, std::vector<TokenReport> tokens = {}) const;
  bool say_ids(std::string text, std::vector<std::int32_t> ids, bool is_tail = false) const;
  bool score(std::vector<TokenReport> tokens) const;  // all of the prompt's
  void end(contract::StopReason reason = contract::StopReason::Eos, std::int64_t tokens_out = 2,
           std::vector<std::int32_t> ids = {}) const;
  void fail(Error error) const;
};

class FakeBackend final : public InferenceBackend {
 public:
  FakeBackend();
  ~FakeBackend() override;

  // What a test sets before it asks.
  Setting<std::shared_ptr<const ModelInfo>> info;  // null: loading
  Setting<LoadStatus> load{LoadStatus{LoadStatus::State::Healthy, 1, ""}};
  Setting<WorkerStats> numbers;
  Setting<std::vector<base::GpuReading>> gpus;
  Setting<std::function<Status(const TextRequest&)>> admit;             // null: all are accepted
  Setting<std::function<Preparation(const TextRequest&)>> preparation;  // null: all succeed
  Setting<std::function<std::optional<PrepareError>(const TextRequest&)>> told;  // null: all are
  Setting<std::function<void()>> work;  // runs on the work thread of every request
  // Runs on the fake's own thread for each accepted request; null: the test speaks itself.
  Setting<std::function<void(const FakeJob&)>> script;
  Setting<std::function<Result<EmbeddingListener::Embedding>(const EmbedRequest&)>> embedding;
  Setting<std::function<Result<std::string>(const json::Object&)>> chat;

  // The n-th accepted request, waiting for it.
  std::shared_ptr<FakeJob> job(std::size_t index);
  std::size_t num_jobs();
  std::size_t num_prepared() const { return num_prepared_.load(); }
  bool wait_until_abandoned(std::size_t index);
  std::vector<std::string> cancelled();
  bool shutdown_requested();
  std::optional<std::chrono::seconds> shutdown_patience();

  LoadStatus status() const override { return load.get(); }
  WorkerStats stats() const override { return numbers.get(); }
  const ModelInfo* model() const override;
  std::vector<base::GpuReading> read_gpus() const override { return gpus.get(); }
  Preparation prepare(const TextRequest& request, const base::WorkLimit& limit) const override;
  Preparation prepare(const EmbedRequest& request, const base::WorkLimit& limit) const override;
  std::optional<PrepareError> check_told(const TextRequest& request,
                                         const base::WorkLimit& limit) const override;
  Result<std::vector<Ticket>> submit(std::vector<Submission> submissions) override;
  Result<Ticket> embed(EmbedRequest request, std::shared_ptr<EmbeddingListener> listener) override;
  void abandon(Ticket ticket) override;
  Status cancel(std::string_view job_id) override;
  Result<TextRequest::Prompt> render_chat(const json::Object& context,
                                          const base::WorkLimit& limit) const override;
  Result<TokenizedText> tokenize(std::string_view text, bool add_special, bool parse_special,
                                 const base::WorkLimit& limit) const override;
  Result<std::string> detokenize(const std::vector<std::int32_t>& ids) const override;
  void request_shutdown(std::optional<std::chrono::seconds> patience) override;

 private:
  mutable base::Mutex mutex_;
  mutable std::atomic<std::size_t> num_prepared_ = 0;
  base::CondVar changed_;
  // Whose pointers were given out.
  mutable std::vector<std::shared_ptr<const ModelInfo>> shown_ LLORCH_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<FakeJob>> jobs_ LLORCH_GUARDED_BY(mutex_);
  std::vector<std::string> cancelled_ LLORCH_GUARDED_BY(mutex_);
  bool shutdown_requested_ LLORCH_GUARDED_BY(mutex_) = false;
  std::optional<std::chrono::seconds> shutdown_patience_ LLORCH_GUARDED_BY(mutex_);
  base::OwnerLoop thread_{"fake-engine", 4096};  // last: its jobs use the others
};

ModelInfo fake_model();

TokenReport token_report(const std::string& text, float logprob,
                         const std::vector<std::pair<std::string, float>>& top = {});

void say_hello(const FakeJob& job);  // a script: "Hel", "lo", and the end

inline constexpr std::string_view kJson = "Content-Type: application/json\r\n";

// A fake behind a real server.
struct TestWorker {
  explicit TestWorker(const RouteSettings& settings = {});
  std::string ask(std::string_view request) const;  // the whole response of one request
  std::string get(std::string_view path) const;
  std::string post(std::string_view path, std::string_view body,
                   std::string_view headers = kJson) const;

  FakeBackend backend;
  std::unique_ptr<http::Server> server;
};

}  // namespace llorch::worker_http::test

namespace llorch::worker_http {

using http::test::body_of, http::test::data_of, http::test::events_of, http::test::Gate,
    http::test::header_of, http::test::json_of, http::test::parse, http::test::RawSocket,
    http::test::status_of;
using test::FakeJob;
using test::kJson;
using test::TestWorker;
using test::token_report;

}  // namespace llorch::worker_http
