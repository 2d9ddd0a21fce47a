#include "orchestrator/relay.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

#include "base/log.h"
#include "contract/error_table.h"
#include "http/url.h"
#include "orchestrator/answer_reader.h"
#include "orchestrator/attempt_body.h"

namespace llorch::orchestrator {

using fleet::AttemptEnd;
using fleet::AttemptEnded;
using fleet::LossCause;
using Clock = std::chrono::steady_clock;

namespace {

constexpr std::size_t kWholeBytesMax = std::size_t{64} << 20;
constexpr std::size_t kRefusalBytesMax = std::size_t{64} << 10;
// A longer body is rewritten elsewhere than on the io threads.
constexpr std::size_t kLongBodyBytes = std::size_t{32} << 10;
// To pools, between attempts.
constexpr std::size_t kIdleConnections = 64;

const base::Logger& logger() {
  static const base::Logger instance("relay");
  return instance;
}

std::uint32_t age_ms(Clock::time_point since, Clock::time_point now) {
  return static_cast<std::uint32_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(now - since).count());
}

bool is_openai(fleet::JobKind kind) {
  return kind != fleet::JobKind::Execute;
}

http::Task<Result<std::string>> read_all(http::ResponseStream& stream, std::size_t max_bytes) {
  std::string body;
  while (true) {
    const Result<std::string> piece = co_await stream.read_some();
    if (!piece.ok()) co_return piece.error();
    if (piece->empty()) co_return body;
    if (piece->size() > max_bytes - body.size())
      co_return Error{ErrorCode::TooLarge, "a worker's answer is larger than is kept"};
    body += *piece;
  }
}

// When an attempt was sent, and when the first and the last of its tokens came.
struct SeenTimes {
  Clock::time_point opened;
  Clock::time_point first_token;
  Clock::time_point last_token;
};

// What the worker said of its answer; of times that it did not tell, what was seen here.
void note_facts(const AttemptFacts& facts, const SeenTimes& seen, AttemptEnded& ended) {
  ended.stop_reason = facts.stop_reason;
  ended.prompt_tokens = facts.prompt_tokens;
  ended.prefill_ms = facts.prefill_ms;
  ended.decode_ms = facts.decode_ms;
  if (ended.decode_ms == 0 && seen.last_token > seen.first_token)
    ended.decode_ms = fleet::millis_between(seen.first_token, seen.last_token);
  // What the cache had is no measure of the prefill.
  const bool is_first_known = seen.first_token > seen.opened;
  if (ended.prefill_ms == 0 && is_first_known && facts.cached_tokens * 4 < facts.prompt_tokens)
    ended.prefill_ms = fleet::millis_between(seen.opened, seen.first_token);
}

}  // namespace

AttemptEnded judge_error(const WorkerSaid& said) {
  AttemptEnded ended{.code = said.error.code, .message = said.error.message};
  if (said.was_cut) {
    ended.end = AttemptEnd::Cut;
  } else if (said.error.code == ErrorCode::DeadlineExceeded) {
    ended.end = AttemptEnd::Failed;  // its time is over everywhere
  } else if (said.is_retriable || said.error.code == ErrorCode::Cancelled) {
    // Cancelled, and not by us: the worker is going.
    ended.end = AttemptEnd::Lost;
    ended.cause = said.error.code == ErrorCode::DeviceOutOfMemory ? LossCause::OutOfMemory
                                                                  : LossCause::WorkerError;
  } else {
    ended.end = AttemptEnd::Failed;
  }
  return ended;
}

AttemptEnded judge_refusal(int status, const Error& error, bool is_pools_own) {
  AttemptEnded ended{.end = AttemptEnd::Failed, .code = error.code, .message = error.message};
  if (status == 429 || status == 503) {
    ended.end = AttemptEnd::Refused;
  } else if (is_pools_own && (status == 401 || status == 403 || status == 404 || status == 409)) {
    // The pool does not know us or the worker: says nothing about the request.
    ended.end = AttemptEnd::Lost;
    if (status != 404) ended.cause = LossCause::Host;
  } else if (error.code == ErrorCode::Cancelled || (status >= 500 && status != 504)) {
    // Cancelled, and not by us: as in judge_error.
    ended.end = AttemptEnd::Lost;
    ended.cause = LossCause::WorkerError;
  }
  return ended;
}

AttemptEnded judge_break(const Error& error, bool had_answered) {
  AttemptEnded ended{.end = AttemptEnd::Lost, .code = error.code, .message = error.message};
  if (error.code == ErrorCode::OutOfMemory) {
    ended.end = AttemptEnd::Refused;  // we are short of something; the worker is not to blame
  } else if (error.code == ErrorCode::Corrupt || error.code == ErrorCode::TooLarge) {
    ended.cause = LossCause::WorkerError;
  } else if (error.code == ErrorCode::DeadlineExceeded || !had_answered) {
    ended.cause = LossCause::Link;
  }
  return ended;  // cut in the middle: its pool will say why
}

struct Relays::Live {
  AttemptRequest request;
  std::stop_source stop;  // ends its stream at once
  std::atomic<bool> is_cut{false};
  std::atomic<bool> has_ended{false};  // AttemptEnded was posted
  std::atomic<bool> has_started{false};
  std::atomic<Clock::time_point> opened_at{Clock::now()};
  std::atomic<Clock::time_point> byte_at{Clock::now()};
  std::atomic<Clock::time_point> token_at{Clock::now()};
  std::atomic<std::uint64_t> told{0};
  std::uint64_t told_before = 0;  // by others
  http::Waker ended;              // for the one who cuts it
  base::Mutex mutex;
  std::string worker_job_id LLORCH_GUARDED_BY(mutex);  // under which it can be cancelled

  const fleet::AttemptId& id() const { return request.order.attempt; }
};

Relays::Relays(http::IoThreads& io, http::WorkThreads& work, AnswerBook& book, PostEvent post,
               RelayTimes times)
    : io_(io),
      work_(work),
      book_(book),
      post_(std::move(post)),
      times_(times),
      client_({.max_idle_connections = kIdleConnections}) {
  io_.spawn([this] { return tick_forever(); });
}

Relays::~Relays() = default;

void Relays::open(AttemptRequest request) {
  const LivePtr live = std::make_shared<Live>();
  live->request = std::move(request);
  ++attempts_;
  {
    const base::MutexLock lock(mutex_);
    live_[live->id()] = live;
  }
  const auto body = [this, live] { return run(live); };
  {
    const base::MutexLock lock(spawn_mutex_);
    if (spawn_ && spawn_(body)) return;
  }
  io_.spawn(body);
}

void Relays::run_beside(Spawn spawn) {
  const base::MutexLock lock(spawn_mutex_);
  spawn_ = std::move(spawn);
}

void Relays::cut(const fleet::AttemptId& attempt) {
  LivePtr live;
  {
    const base::MutexLock lock(mutex_);
    const auto found = live_.find(attempt);
    if (found == live_.end()) return;
    live = found->second;
  }
  if (live->is_cut.exchange(true)) return;
  io_.spawn([this, live] { return cancel(live); });
}

RelayCounters Relays::counters() const {
  const base::MutexLock lock(mutex_);
  return {attempts_, live_.size(), odd_events_};
}

http::ClientRequest Relays::request_to(const Live& live, std::string_view path) const {
  const AttemptRequest& request = live.request;
  http::ClientRequest out(http::Method::Post,
                          fmt::format("{}/v2/workers/{}/api/{}", request.pool.url,
                                      http::percent_encode(request.order.worker), path));
  if (!request.pool.token.empty()) out.headers.add("Authorization", "Bearer " + request.pool.token);
  out.headers.add("X-Llorch-Boot", std::to_string(live.id().boot));
  if (!request.facts.correlation_id.empty())
    out.headers.add("X-Correlation-Id", request.facts.correlation_id);
  out.connect_timeout = times_.connect;
  return out;
}

void Relays::end(Live& live, AttemptEnded ended) {
  if (live.has_ended.exchange(true)) return;
  {
    const base::MutexLock lock(mutex_);
    live_.erase(live.id());
  }
  ended.attempt = live.id();
  if (live.is_cut && ended.end != AttemptEnd::Completed) ended.end = AttemptEnd::Cut;
  ended.told = live.told;
  ended.new_tokens = static_cast<std::uint32_t>(live.told - live.told_before);
  if (ended.end == AttemptEnd::Lost || ended.end == AttemptEnd::Failed) {
    logger().info("attempt ended", {{"attempt", fleet::text(live.id())},
                                    {"worker", live.request.order.worker},
                                    {"host", live.request.order.host},
                                    {"code", contract::error_row(ended.code).wire},
                                    {"message", ended.message}});
  }
  post_(std::move(ended));
  live.ended.notify();
}

void Relays::note_started(Live& live, const AttemptFacts& facts) {
  if (!facts.has_started || live.has_started.exchange(true)) return;
  post_(fleet::AttemptStarted{live.id(), facts.prompt_tokens, facts.cached_tokens});
}

http::Task<void> Relays::run(LivePtr live) {
  Result<std::shared_ptr<AnswerLog>> log = co_await book_.read(live->id().job);
  if (log.ok()) {
    co_await ask_worker(live, *log);
    // Nothing more is taken from it, and what it told goes to the store first.
    live->told = (*log)->end_attempt(live->id());
  }
  end(*live, {.end = AttemptEnd::Failed,
              .code = log.ok() ? ErrorCode::Internal : log.error().code,
              .message = log.ok() ? "the attempt ended without a word" : log.error().message});
}

http::Task<void> Relays::ask_worker(LivePtr live, std::shared_ptr<AnswerLog> log) {
  AnswerLog::Resume resume = log->begin_attempt(live->id());
  live->told = live->told_before = resume.total;
  if (resume.is_whole) {
    note_started(*live, {.has_started = true});
    end(*live, {.end = AttemptEnd::Completed, .stop_reason = resume.stop_reason});
    co_return;
  }
  const AttemptRequest& request = live->request;
  http::ClientRequest ask = request_to(*live, endpoint_of(request.facts.kind));
  // No X-Deadline: our own clock keeps it. That of the host may be wrong.
  if (is_openai(request.facts.kind)) ask.headers.add("X-Llorch-Ids", "1");
  // So it may use a kept connection: a worker that gets it twice knows it by its name.
  ask.headers.add("Idempotency-Key", fleet::text(live->id()));
  ask.total_timeout = std::chrono::milliseconds(0);
  ask.idle_timeout = times_.silence;
  ask.stop = live->stop.get_token();
  std::function<Result<std::string>()> write = [&request, ids = std::move(resume.ids)] {
    return attempt_body(*request.body, request.facts.kind, request.facts.seed,
                        request.order.attempt, ids);
  };
  // `request` is the live attempt's, which the coroutine holds; the work may outlive the coroutine
  // only when the threads are going, and they finish it first.
  std::function<Result<std::string>()> held = [live, write = std::move(write)] { return write(); };
  Result<std::string> body = std::string();
  if (request.body->size() < kLongBodyBytes) {
    body = held();
  } else {
    body = co_await work_.run<std::string>(std::move(held));
  }
  if (!body.ok()) {
    end(*live,
        {.end = AttemptEnd::Failed, .code = body.error().code, .message = body.error().message});
    co_return;
  }
  ask.body = body.take();
  live->opened_at = Clock::now();
  Result<http::ResponseStream> stream = co_await client_.async_open(std::move(ask));
  if (!stream.ok()) {
    live->told = log->end_attempt(live->id());
    end(*live, judge_break(stream.error(), /*had_answered=*/false));
  } else if (stream->status() != 200) {
    co_await take_refusal(live, std::move(log), stream.take());
  } else if (request.facts.kind == fleet::JobKind::Embedding) {
    co_await take_whole(live, std::move(log), stream.take());
  } else {
    log->note_worker(request.order.host + "/" + request.order.worker);
    co_await read_stream(live, std::move(log), stream.take(), std::move(resume.told));
  }
}

http::Task<void> Relays::take_refusal(LivePtr live, std::shared_ptr<AnswerLog> log,
                                      http::ResponseStream stream) {
  const int status = stream.status();
  const std::string type(stream.headers().find("Content-Type").value_or("application/json"));
  const Result<std::string> body = co_await read_all(stream, kRefusalBytesMax);
  if (!body.ok()) {
    end(*live, judge_break(body.error(), /*had_answered=*/false));
    co_return;
  }
  // The pool speaks in our envelope; a worker's OpenAI endpoint in OpenAI's.
  const Result<contract::ErrorReport> report = contract::parse_error_body(*body);
  const bool is_envelope =
      report.ok() && (!is_openai(live->request.facts.kind) || !report->correlation_id.empty());
  const Error error = is_envelope ? report->error : openai_failure(*body);
  AttemptEnded ended = judge_refusal(status, error, is_envelope);
  if (ended.end == AttemptEnd::Failed && !is_envelope)
    log->keep_whole(live->id(), {status, type, *body});
  end(*live, std::move(ended));
}

http::Task<void> Relays::take_whole(LivePtr live, std::shared_ptr<AnswerLog> log,
                                    http::ResponseStream stream) {
  note_started(*live, {.has_started = true});
  const std::string type(stream.headers().find("Content-Type").value_or("application/json"));
  Result<std::string> body = co_await read_all(stream, kWholeBytesMax);
  if (!body.ok()) {
    end(*live, judge_break(body.error(), /*had_answered=*/true));
    co_return;
  }
  log->note_worker(live->request.order.host + "/" + live->request.order.worker);
  const std::uint32_t tokens = embedding_tokens(*body);
  log->keep_whole(live->id(), {200, type, body.take()});
  end(*live, {.end = AttemptEnd::Completed, .stop_reason = "stop", .prompt_tokens = tokens});
}

http::Task<void> Relays::read_stream(LivePtr live, std::shared_ptr<AnswerLog> log,
                                     http::ResponseStream stream, AnswerProgress told) {
  const fleet::AttemptOrder& order = live->request.order;
  AnswerReader reader(log->form(), std::move(told));
  Clock::time_point first_token{};
  Clock::time_point last_token{};
  bool must_say_moved = !order.from_worker.empty() || (order.resumes && !order.is_exact);
  http::Waker pause;
  live->byte_at = live->token_at = Clock::now();
  AttemptEnded ended;
  while (reader.state() == AnswerReader::State::Open) {
    const Result<std::string> piece = co_await stream.read_some();
    const Clock::time_point now = Clock::now();
    if (!piece.ok() || piece->empty()) {
      ended = judge_break(
          piece.ok() ? Error{ErrorCode::Unavailable, "its stream broke off"} : piece.error(),
          /*had_answered=*/true);
      break;
    }
    live->byte_at = now;
    std::vector<AnswerStep> steps;
    const Status read = reader.feed(*piece, steps);
    if (!steps.empty()) {
      if (std::exchange(must_say_moved, false)) {
        log->note_moved(live->id(),
                        {.kind = fleet::NoticeKind::Migrated,
                         .host = order.host,
                         .worker = order.worker,
                         .from_host = order.from_host,
                         .from_worker = order.from_worker,
                         .gap_ms = order.lost_for_ms + fleet::millis_between(live->opened_at, now),
                         .is_exact = order.is_exact});
      }
      if (first_token == Clock::time_point()) first_token = now;
      last_token = now;
      live->token_at = now;
      live->told = log->append(live->id(), std::move(steps), reader.told());
    }
    // Its followers first. OpenAI's streams have nothing before the first ids but keep-alives.
    if (is_openai(log->form().kind)) note_started(*live, {.has_started = true});
    note_started(*live, reader.facts());
    {
      const base::MutexLock lock(live->mutex);
      if (live->worker_job_id.empty()) live->worker_job_id = reader.worker_job_id();
    }
    if (!read.ok()) {
      ended = judge_break(read.error(), /*had_answered=*/true);
      break;
    }
    while (log->must_pause(pause) && !live->has_ended)
      co_await pause.wait_until(Clock::now() + times_.progress);
  }
  odd_events_ += reader.facts().odd_events;
  const bool is_whole = reader.state() == AnswerReader::State::Whole;
  if (reader.state() == AnswerReader::State::Failed)
    ended = judge_error({reader.error(), reader.is_retriable(), live->is_cut});
  // All was said but the last word.
  const bool is_finished = !is_whole && is_openai(log->form().kind) && reader.is_finished();
  if (is_whole || is_finished) ended = {.end = AttemptEnd::Completed};
  live->told = log->end_attempt(
      live->id(), is_whole ? reader.end_text() : (is_finished ? missing_end(log->form()) : ""));
  note_facts(reader.facts(), {live->opened_at, first_token, last_token}, ended);
  end(*live, std::move(ended));
  // Nobody waits for the end of the stream, but behind it the connection is free for the next.
  if (is_whole) std::ignore = co_await stream.read_some();
}

http::Task<void> Relays::cancel(LivePtr live) {
  const Clock::time_point until = Clock::now() + times_.cut;
  std::vector<std::string> names;
  if (is_openai(live->request.facts.kind)) {
    const base::MutexLock lock(live->mutex);
    const std::uint32_t choices = std::max(1U, live->request.facts.choices);
    for (std::uint32_t i = 0; i < choices && !live->worker_job_id.empty(); ++i)
      names.push_back(choices == 1 ? live->worker_job_id
                                   : fmt::format("{}-{}", live->worker_job_id, i));
  } else {
    names.push_back(fleet::text(live->id()));
  }
  for (const std::string& name : names) {
    if (live->has_ended) break;
    http::ClientRequest ask = request_to(*live, "cancel");
    ask.body = fmt::format(R"({{"job_id":"{}"}})", name);
    ask.total_timeout = times_.cut;
    const Result<http::Response> answer = co_await client_.async_send(std::move(ask));
    if (!answer.ok()) break;  // closing the stream says the same
  }
  while (!live->has_ended && !names.empty() && Clock::now() < until)
    co_await live->ended.wait_until(until);
  live->stop.request_stop();
  const Clock::time_point last = Clock::now() + times_.cut;
  while (!live->has_ended && Clock::now() < last) co_await live->ended.wait_until(last);
  if (live->has_ended) co_return;
  // It waits for something else than its stream. Whatever it still brings is dropped.
  if (const std::shared_ptr<AnswerLog> log = book_.find(live->id().job))
    live->told = log->end_attempt(live->id());
  end(*live, {.end = AttemptEnd::Cut});
}

void Relays::report_progress() {
  fleet::Progress progress;
  const Clock::time_point now = Clock::now();
  {
    const base::MutexLock lock(mutex_);
    for (const auto& [id, live] : live_) {
      if (!live->has_started) continue;
      progress.items.push_back(
          {id, live->told, age_ms(live->byte_at, now), age_ms(live->token_at, now)});
    }
  }
  if (!progress.items.empty()) post_(std::move(progress));
}

http::Task<void> Relays::tick_forever() {
  http::Waker never;
  Clock::time_point next_progress = Clock::now() + times_.progress;
  while (true) {
    co_await never.wait_until(Clock::now() + times_.tick);
    const Clock::time_point now = Clock::now();
    book_.tick(now);
    if (now < next_progress) continue;
    next_progress = now + times_.progress;
    report_progress();
  }
}

}  // namespace llorch::orchestrator
