#include "worker_http/fake_backend.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <utility>

#include "api/answers.h"
#include "base/check.h"
#include "base/utf8.h"
#include "http/test_server.h"

namespace llorch::worker_http::test {
namespace {

constexpr std::chrono::seconds kPatience{10};

// What was prepared, as it was asked: tests look at it.
template <class Request>
struct Remembered final : PreparedRequest {
  explicit Remembered(Request asked) : request(std::move(asked)) {}
  std::int64_t prompt_tokens() const override { return 3; }
  const Request request;
};

}  // namespace

void FakeJob::start(std::int64_t prompt_tokens, std::int64_t cached_tokens) const {
  contract::StartedEvent started;
  started.job_id = request.job_id;
  started.model = "fake";
  started.started_at = "2026-01-02T03:04:05Z";
  started.seed = request.sampling.seed.value_or(7);
  started.prompt_tokens = prompt_tokens;
  started.cached_tokens = cached_tokens;
  started.queue_ms = 0.5;
  listener->on_started(started);
}

bool FakeJob::say(std::string text, std::vector<TokenReport> tokens) const {
  return listener->on_text({std::move(text), std::move(tokens)});
}

bool FakeJob::say_ids(std::string text, std::vector<std::int32_t> ids, bool is_tail) const {
  return listener->on_text({.text = std::move(text), .ids = std::move(ids), .is_tail = is_tail});
}

void FakeJob::tell(
    const std::vector<std::pair<std::string, std::vector<std::int32_t>>>& pieces) const {
  openai::ToldText told;
  for (const auto& [text, ids] : pieces) told.pieces.push_back({.text = text, .ids = ids});
  listener->on_told(std::move(told));
}

bool FakeJob::score(std::vector<TokenReport> tokens) const {
  if (!tokens.empty()) tokens.front().is_unscored = true;
  TextPiece piece;
  piece.tokens = std::move(tokens);
  piece.is_prompt = true;
  return listener->on_text(std::move(piece));
}

void FakeJob::end(contract::StopReason reason, std::int64_t tokens_out,
                  std::vector<std::int32_t> ids) const {
  contract::InferenceResult result;
  result.ids = std::move(ids);
  result.tokens_out = tokens_out;
  result.decode_time_ms = 12;
  result.stop_reason = reason;
  if (reason == contract::StopReason::StopSequence) result.stop_sequence_matched = "\n\n";
  result.prompt_tokens = 3;
  result.prefill_ms = 1.5;
  result.ttft_ms = 2.5;
  result.seed = request.sampling.seed.value_or(7);
  listener->on_end(result);
}

void FakeJob::fail(Error error) const {
  listener->on_end(std::move(error));
}

ModelInfo fake_model() {
  ModelInfo info;
  info.id = "fake";
  info.architecture = "gpt2";
  info.quant_kind = "F32";
  info.tokenizer_kind = "bpe";
  info.backend = "cpu";
  info.device = "test";
  info.device_class = "test-class";
  info.build = "0.1.0+test";
  info.memory_type = "cpu";
  info.vocab_size = 100;
  info.context_length = 64;
  info.memory_bytes = 4096;
  info.created = 1700000000;
  info.has_chat_template = true;
  info.embedding_width = 3;
  info.style.dialect = openai::ToolDialect::Hermes;
  info.style.template_takes_tools = true;
  return info;
}

FakeBackend::FakeBackend() {
  info = std::make_shared<const ModelInfo>(fake_model());
  WorkerStats initial;
  initial.slots_total = 4;
  initial.kv_blocks_total = 10;
  initial.kv_blocks_free = 10;
  numbers = initial;
}

const ModelInfo* FakeBackend::model() const {
  std::shared_ptr<const ModelInfo> now = info.get();
  const base::MutexLock lock(mutex_);
  if (now != nullptr && (shown_.empty() || shown_.back() != now)) shown_.push_back(now);
  return now.get();
}

FakeBackend::~FakeBackend() = default;

Preparation FakeBackend::prepare(const TextRequest& request, const base::WorkLimit& limit) const {
  ++num_prepared_;
  if (const auto run = work.get()) run();
  if (const Status goes_on = limit.check(); !goes_on.ok()) return PrepareError{goes_on.error()};
  if (const auto make = preparation.get()) {
    Preparation made = make(request);
    if (std::holds_alternative<PrepareError>(made)) return made;
  }
  return std::make_shared<const Remembered<TextRequest>>(request);
}

Preparation FakeBackend::prepare(const EmbedRequest& request, const base::WorkLimit&) const {
  if (const auto run = work.get()) run();
  return std::make_shared<const Remembered<EmbedRequest>>(request);
}

std::optional<PrepareError> FakeBackend::check_told(const TextRequest& request,
                                                    const base::WorkLimit&) const {
  const auto check = told.get();
  return check ? check(request) : std::nullopt;
}

Result<std::vector<Ticket>> FakeBackend::submit(std::vector<Submission> submissions) {
  for (Submission& submission : submissions) {
    const TextRequest& asked =
        static_cast<const Remembered<TextRequest>&>(*submission.request.prepared).request;
    submission.request.prompt = asked.prompt;
    submission.request.format = asked.format;
    const auto ask = admit.get();
    if (Status admitted = ask ? ask(submission.request) : ok_status(); !admitted.ok())
      return admitted.error();
  }
  const base::MutexLock lock(mutex_);
  std::vector<Ticket> tickets;
  for (Submission& submission : submissions) {
    auto job = std::make_shared<FakeJob>();
    job->request = std::move(submission.request);
    job->listener = std::move(submission.listener);
    tickets.push_back(Ticket{jobs_.size()});
    jobs_.push_back(job);
    if (auto play = script.get()) CHECK(thread_.post([play, job] { play(*job); }));
  }
  changed_.notify_all();
  return tickets;
}

Result<Ticket> FakeBackend::embed(EmbedRequest request,
                                  std::shared_ptr<EmbeddingListener> listener) {
  request.input = static_cast<const Remembered<EmbedRequest>&>(*request.prepared).request.input;
  CHECK(thread_.post([this, request = std::move(request), listener = std::move(listener)] {
    listener->on_end(embedding.get()(request));
  }));
  return Ticket{1'000'000};
}

void FakeBackend::abandon(Ticket ticket) {
  const base::MutexLock lock(mutex_);
  if (ticket < jobs_.size()) jobs_[ticket]->abandoned = true;
  changed_.notify_all();
}

Status FakeBackend::cancel(std::string_view job_id) {
  const base::MutexLock lock(mutex_);
  const bool known = std::any_of(jobs_.begin(), jobs_.end(),
                                 [&](const auto& job) { return job->request.job_id == job_id; });
  if (!known) return Error{ErrorCode::NotFound, "no such job"};
  cancelled_.emplace_back(job_id);
  return ok_status();
}

Result<TextRequest::Prompt> FakeBackend::render_chat(const json::Object& context,
                                                     const base::WorkLimit&) const {
  const auto render = chat.get();
  Result<std::string> text = render ? render(context) : json::serialize(context);
  if (!text.ok()) return text.error();
  TextRequest::Prompt prompt;
  prompt.kind = TextRequest::Prompt::Kind::Rendered;
  prompt.text = text.take();
  return prompt;
}

Result<TokenizedText> FakeBackend::tokenize(std::string_view text, bool add_special,
                                            bool parse_special, const base::WorkLimit&) const {
  if (const auto run = work.get()) run();
  if (model() == nullptr) return Error{ErrorCode::Unavailable, "loading"};
  TokenizedText out;
  if (add_special) out = {{1}, {"<s>"}};
  out.ids.push_back(static_cast<std::int32_t>(text.size()) + (parse_special ? 1000 : 0));
  out.pieces.emplace_back(text);
  return out;
}

Result<std::string> FakeBackend::detokenize(const std::vector<std::int32_t>& ids) const {
  std::string text;
  for (const std::int32_t id : ids) text += fmt::format("<{}>", id);
  return text;
}

std::optional<std::chrono::seconds> FakeBackend::shutdown_patience() {
  const base::MutexLock lock(mutex_);
  return shutdown_patience_;
}

void FakeBackend::request_shutdown(std::optional<std::chrono::seconds> patience) {
  const base::MutexLock lock(mutex_);
  shutdown_requested_ = true;
  shutdown_patience_ = patience;
}

std::shared_ptr<FakeJob> FakeBackend::job(std::size_t index) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  const base::MutexLock lock(mutex_);
  while (jobs_.size() <= index) {
    CHECK(changed_.wait_until(mutex_, deadline), "a request never came");
  }
  return jobs_[index];
}

std::size_t FakeBackend::num_jobs() {
  const base::MutexLock lock(mutex_);
  return jobs_.size();
}

bool FakeBackend::wait_until_abandoned(std::size_t index) {
  const auto job_ptr = job(index);
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  const base::MutexLock lock(mutex_);
  while (!job_ptr->abandoned && changed_.wait_until(mutex_, deadline)) {
  }
  return job_ptr->abandoned;
}

std::vector<std::string> FakeBackend::cancelled() {
  const base::MutexLock lock(mutex_);
  return cancelled_;
}

bool FakeBackend::shutdown_requested() {
  const base::MutexLock lock(mutex_);
  return shutdown_requested_;
}

TokenReport token_report(const std::string& text, float logprob,
                         const std::vector<std::pair<std::string, float>>& top) {
  TokenReport report;
  report.token = {text, text, logprob};
  report.chars = base::count_scalars(text);
  for (const auto& [other, value] : top) report.top.push_back({other, other, value});
  return report;
}

void say_hello(const FakeJob& job) {
  job.start();
  job.say("Hel");
  job.say("lo");
  job.end(contract::StopReason::Eos, 2);
}

TestWorker::TestWorker(const RouteSettings& settings) {
  http::ServerOptions options = http::test::plain_options();
  options.render_error = api::render_error;
  server = http::test::start(make_router(backend, settings), std::move(options));
}

std::string TestWorker::ask(std::string_view request) const {
  http::test::RawSocket socket(server->port());
  EXPECT_TRUE(socket.send(request));
  return socket.read_all();
}

std::string TestWorker::get(std::string_view path) const {
  return ask(http::test::get(path, "Connection: close\r\n"));
}

std::string TestWorker::post(std::string_view path, std::string_view body,
                             std::string_view headers) const {
  return ask(http::test::post(path, body, fmt::format("Connection: close\r\n{}", headers)));
}

}  // namespace llorch::worker_http::test
