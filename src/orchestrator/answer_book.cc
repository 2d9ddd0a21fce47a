#include "orchestrator/answer_book.h"

#include <fmt/format.h>

#include <utility>

#include "base/log.h"
#include "http/sse.h"

namespace llorch::orchestrator {
namespace {

AnswerForm form_of(const fleet::JobId& job, const fleet::SubmittedRecord& facts, ClientWish wish) {
  const std::string_view prefix = facts.kind == fleet::JobKind::Completion ? "cmpl-" : "chatcmpl-";
  return {
      .kind = facts.kind,
      .choices = std::max(1U, facts.choices),
      .job_id = fleet::text(job),
      .head = {std::string(prefix) + fleet::text(job), facts.submitted_ms / 1000, facts.model_name},
      .keeps_ids = wish.ids,
      .keeps_usage = wish.usage};
}

// Nobody takes the end of an answer without its words for an empty answer.
Error not_kept(const fleet::JobId& job, fleet::Holder holder) {
  if (holder == fleet::Holder::Connection) {
    return {ErrorCode::Conflict, "the answer of job " + fleet::text(job) +
                                     " went to the connection that asked for it, and is not kept"};
  }
  return {ErrorCode::NotFound, "the answer of job " + fleet::text(job) +
                                   " is no longer kept: answers are for an hour after their job's "
                                   "end"};
}

}  // namespace

AnswerBook::AnswerBook(job_store::Store& store, http::WorkThreads& threads, PostEvent post,
                       BookLimits limits)
    : store_(store), threads_(threads), post_(std::move(post)), limits_(limits) {}

std::shared_ptr<AnswerLog> AnswerBook::make_log(const fleet::JobId& job,
                                                const fleet::SubmittedRecord& facts,
                                                ClientWish wish) const {
  return std::make_shared<AnswerLog>(job, facts.holder, form_of(job, facts, wish), limits_.log,
                                     [&store = store_](fleet::AnswerGroup group) {
                                       return store.append_answer(std::move(group));
                                     });
}

void AnswerBook::prepare(const fleet::JobId& job, ClientWish wish) {
  const base::MutexLock lock(mutex_);
  wishes_[job] = wish;
}

void AnswerBook::open(const fleet::JobId& job, const fleet::SubmittedRecord& facts,
                      const fleet::Position& stored) {
  // The events of a task of OpenAI's kinds say everything: nobody else's client reads them.
  ClientWish wish{.ids = false, .usage = true};
  const base::MutexLock lock(mutex_);
  if (const auto wished = wishes_.find(job); wished != wishes_.end()) {
    wish = wished->second;
    wishes_.erase(wished);
  }
  std::shared_ptr<AnswerLog> log = make_log(job, facts, wish);
  if (stored.total() > 0) log->await_restore();
  logs_[job] = std::move(log);
}

void AnswerBook::drop(const fleet::JobId& job) {
  const base::MutexLock lock(mutex_);
  logs_.erase(job);
  wishes_.erase(job);
}

std::shared_ptr<AnswerLog> AnswerBook::find(const fleet::JobId& job) const {
  const base::MutexLock lock(mutex_);
  const auto log = logs_.find(job);
  return log == logs_.end() ? nullptr : log->second;
}

void AnswerBook::tell(const fleet::JobId& job, const fleet::JobNotice& notice) {
  const std::shared_ptr<AnswerLog> log = find(job);
  if (log != nullptr) log->tell(notice);
}

void AnswerBook::note_written(const std::vector<job_store::AnswerWritten>& answers) {
  for (const job_store::AnswerWritten& written : answers)
    if (const std::shared_ptr<AnswerLog> log = find(written.attempt.job))
      log->note_written(written);
}

http::Task<Result<std::shared_ptr<AnswerLog>>> AnswerBook::read(fleet::JobId job) {
  std::shared_ptr<AnswerLog> log = find(job);
  if (log == nullptr) co_return co_await read_ended(job);
  if (log->needs_restore()) {
    std::function<Result<bool>()> restore = [&store = store_, log]() -> Result<bool> {
      const Result<std::vector<fleet::AnswerGroup>> groups = store.read_answer(log->job(), {});
      if (!groups.ok()) return groups.error();
      log->restore(*groups);
      return true;
    };
    const Result<bool> restored = co_await threads_.run<bool>(std::move(restore));
    if (!restored.ok()) co_return restored.error();
  }
  co_return log;
}

http::Task<Result<std::shared_ptr<AnswerLog>>> AnswerBook::read_ended(fleet::JobId job) {
  using Log = std::shared_ptr<AnswerLog>;
  std::function<Result<Log>()> read = [this, job]() -> Result<Log> {
    const Result<fleet::JobRecords> records = store_.read_job(job);
    if (!records.ok()) return records.error();
    const auto* facts = records->records.empty()
                            ? nullptr
                            : std::get_if<fleet::SubmittedRecord>(&records->records.front());
    const auto* end = records->records.empty()
                          ? nullptr
                          : std::get_if<fleet::EndedRecord>(&records->records.back());
    if (facts == nullptr || end == nullptr)
      return Error{ErrorCode::Unavailable,
                   "the job " + fleet::text(job) + " is not at hand now; try again"};
    const Result<std::vector<fleet::AnswerGroup>> groups = store_.read_answer(job, {});
    if (!groups.ok()) return groups.error();
    // Of one that was completed something is stored, its end at least.
    if (groups->empty() && end->state == fleet::JobState::Completed)
      return not_kept(job, facts->holder);
    fleet::SubmittedRecord stored = *facts;
    stored.holder = fleet::Holder::Detached;  // it is read, whoever it lived for
    Log log = make_log(job, stored, {.ids = false, .usage = true});
    log->await_restore();
    log->restore(*groups);
    log->tell({.kind = fleet::NoticeKind::Ended, .end = *end});
    return log;
  };
  co_return co_await threads_.run<Log>(std::move(read));
}

http::Task<Status> AnswerBook::follow(fleet::JobId job, std::string last_event_id,
                                      http::Responder& responder) {
  std::optional<fleet::Position> last;
  if (!last_event_id.empty()) {
    last = fleet::position_from_text(last_event_id);
    if (!last)
      co_return Error{ErrorCode::InvalidArgument,
                      "Last-Event-ID: '" + last_event_id +
                          "' is no position in an answer, such as 12 or 12.9.30"};
  }
  Result<std::shared_ptr<AnswerLog>> log = co_await read(job);
  if (!log.ok()) co_return log.error();
  if (!(*log)->is_stored())
    co_return Error{ErrorCode::Conflict,
                    "the answer of job " + fleet::text(job) +
                        " goes to the connection that asked for it, and to nobody else"};
  const std::uint32_t choices = (*log)->form().choices;
  if (last && last->told.size() > choices)
    co_return Error{
        ErrorCode::InvalidArgument,
        fmt::format("Last-Event-ID: '{}' is a position in {} answers, and job {} has {}",
                    last_event_id, last->told.size(), fleet::text(job), choices)};
  Follower follower(log.take(), follower_parts(), last);
  http::Headers headers;
  headers.add("Cache-Control", "no-store");
  Result<http::Stream> stream =
      co_await responder.open_stream(200, std::string(http::kEventStreamType), std::move(headers));
  if (!stream.ok()) co_return stream.error();
  stream->on_disconnect([waker = follower.waker()]() mutable { waker.notify(); });
  auto silent_since = std::chrono::steady_clock::now();
  while (!stream->is_closed()) {
    const auto deadline = silent_since + limits_.keep_alive;
    Result<Follower::Next> next = co_await follower.next(deadline);
    if (!next.ok()) co_return next.error();
    const bool is_silent = next->bytes.empty();
    if (is_silent && next->has_ended) co_return ok_status();
    if (is_silent && std::chrono::steady_clock::now() < deadline) continue;
    const Status written =
        co_await stream->write(is_silent ? http::kKeepAliveComment : std::string_view(next->bytes));
    if (!written.ok()) co_return written;
    if (next->has_ended) co_return ok_status();
    silent_since = std::chrono::steady_clock::now();
  }
  co_return Error{ErrorCode::Cancelled, "the client is gone"};
}

std::vector<std::shared_ptr<AnswerLog>> AnswerBook::all() const {
  std::vector<std::shared_ptr<AnswerLog>> logs;
  const base::MutexLock lock(mutex_);
  logs.reserve(logs_.size());
  for (const auto& [job, log] : logs_) logs.push_back(log);
  return logs;
}

void AnswerBook::tick(AnswerLog::Clock::time_point now) {
  std::size_t bytes = 0;
  const std::vector<std::shared_ptr<AnswerLog>> logs = all();
  for (const std::shared_ptr<AnswerLog>& log : logs) {
    log->give_due(now);
    bytes += log->memory_bytes();
    // Others are dropped by the request that they live with.
    if (log->is_stored() && log->is_settled()) drop(log->job());
  }
  for (const std::shared_ptr<AnswerLog>& log : logs) {
    if (bytes <= limits_.bytes) return;
    const std::size_t before = log->memory_bytes();
    log->shrink(0);
    bytes -= std::min(bytes, before - std::min(before, log->memory_bytes()));
  }
}

AnswerBook::Size AnswerBook::size() const {
  Size size;
  for (const std::shared_ptr<AnswerLog>& log : all()) {
    ++size.answers;
    size.bytes += log->memory_bytes();
  }
  return size;
}

}  // namespace llorch::orchestrator
