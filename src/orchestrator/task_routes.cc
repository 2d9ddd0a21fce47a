#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "contract/fleet_api.h"
#include "contract/request_body.h"
#include "orchestrator/endpoint_table.h"
#include "orchestrator/task_request.h"
#include "orchestrator/views.h"

namespace llorch::orchestrator {
namespace {

Error no_such_job(std::string_view id) {
  return {ErrorCode::NotFound,
          "there is no job '" + std::string(id) + "'; `llorch jobs list` shows those there are"};
}

// Keys that may only infer see their own jobs.
bool may_see(const Caller& caller, std::string_view key_of_job) {
  return caller.scope == fleet::Scope::Admin || fleet::text(caller.key) == key_of_job;
}

Result<fleet::JobId> job_of(const http::Request& request) {
  const std::string& text = path_param(request, "id");
  const std::optional<fleet::JobId> id = fleet::job_id_from_text(text);
  if (!id) return no_such_job(text);
  return *id;
}

// What a request turned out to be.
struct ReadTask {
  std::shared_ptr<Submission> submission;         // or
  std::shared_ptr<http::Response> refusal;        // or
  std::optional<contract::TaskAccepted> earlier;  // the job that its idempotency word stands for
};

Result<std::optional<contract::TaskAccepted>> find_earlier(job_store::Store& store,
                                                           const fleet::SubmittedRecord& facts) {
  if (facts.idempotency.empty()) return std::optional<contract::TaskAccepted>();
  const Result<std::optional<fleet::JobId>> found =
      store.find_idempotent(facts.key, facts.idempotency, wall_now_ms());
  if (!found.ok()) return found.error();
  if (!*found) return std::optional<contract::TaskAccepted>();
  const Result<fleet::JobRecords> records = store.read_job(**found);
  if (!records.ok()) return records.error();
  const auto* stored = records->records.empty()
                           ? nullptr
                           : std::get_if<fleet::SubmittedRecord>(&records->records.front());
  const bool is_same =
      stored != nullptr && std::equal(std::begin(stored->body_hash), std::end(stored->body_hash),
                                      std::begin(facts.body_hash));
  if (!is_same) {
    return Error{ErrorCode::Conflict,
                 "this Idempotency-Key was sent with another body less than a day ago, for job " +
                     fleet::text(**found) + "; use another word for another request"};
  }
  const Result<contract::TaskView> view = view_of_records(*records);
  if (!view.ok()) return view.error();
  contract::TaskAccepted accepted;
  accepted.job_id = view->job_id;
  accepted.status = view->status;
  accepted.events_url = view->events_url;
  return std::optional(accepted);
}

Result<ReadTask> read_task(job_store::Store& store, const http::Request& request,
                           const Caller& caller) {
  std::vector<json::FieldError> errors;
  Result<Submission> submission = read_task_request(request, caller, errors);
  ReadTask task;
  if (!submission.ok()) {
    task.refusal = std::make_shared<http::Response>(
        api::error_response(submission.error(), request.correlation_id, errors));
    return task;
  }
  Result<std::optional<contract::TaskAccepted>> earlier = find_earlier(store, submission->facts);
  if (!earlier.ok()) return earlier.error();
  task.earlier = earlier.take();
  if (!task.earlier) task.submission = std::make_shared<Submission>(submission.take());
  return task;
}

// Adds what the owner knows to views of jobs that have not ended.
http::Task<Result<std::vector<contract::TaskView>>> with_live(
    const RouteParts& parts, std::vector<contract::TaskView> views) {
  const auto shared = std::make_shared<std::vector<contract::TaskView>>(std::move(views));
  std::function<Result<bool>(const fleet::Fleet&, fleet::TimePoint)> add =
      [shared](const fleet::Fleet& fleet, fleet::TimePoint now) -> Result<bool> {
    for (contract::TaskView& view : *shared) {
      if (!view.ended_at.empty()) continue;
      const std::optional<fleet::JobId> id = fleet::job_id_from_text(view.job_id);
      const fleet::Job* job = id ? fleet::find_job(fleet, *id) : nullptr;
      if (job != nullptr) add_live(fleet, *job, now, view);
    }
    return true;
  };
  const Result<bool> added = co_await parts.core.ask_for<bool>(std::move(add));
  if (!added.ok()) co_return added.error();
  co_return std::move(*shared);
}

// A job wherever it is known: stored, live, or both.
struct KnownJob {
  std::optional<fleet::JobRecords> records;
  contract::TaskView view;
};

http::Task<Result<KnownJob>> find_known(const RouteParts& parts, Caller caller, fleet::JobId id) {
  std::function<Result<fleet::JobRecords>()> read = [&store = parts.store, id] {
    return store.read_job(id);
  };
  Result<fleet::JobRecords> records = co_await parts.threads.run(std::move(read));
  KnownJob known;
  if (records.ok()) {
    Result<contract::TaskView> view = view_of_records(*records);
    if (!view.ok()) co_return view.error();
    known.records = records.take();
    std::vector<contract::TaskView> one;
    one.push_back(view.take());
    Result<std::vector<contract::TaskView>> live = co_await with_live(parts, std::move(one));
    if (!live.ok()) co_return live.error();
    known.view = std::move(live->front());
  } else if (records.error().code == ErrorCode::NotFound) {
    std::function<Result<contract::TaskView>(const fleet::Fleet&, fleet::TimePoint)> look =
        [id](const fleet::Fleet& fleet, fleet::TimePoint now) -> Result<contract::TaskView> {
      const fleet::Job* job = fleet::find_job(fleet, id);
      if (job == nullptr) return no_such_job(fleet::text(id));
      return view_of_live(fleet, *job, now);
    };
    Result<contract::TaskView> view =
        co_await parts.core.ask_for<contract::TaskView>(std::move(look));
    if (!view.ok()) co_return view.error();
    known.view = view.take();
  } else {
    co_return records.error();
  }
  if (!may_see(caller, known.view.key)) co_return no_such_job(fleet::text(id));
  co_return known;
}

// The job that the path names, where the caller may see it.
http::Task<Result<fleet::JobId>> visible_job_of(const RouteParts& parts, Caller caller,
                                                const http::Request& request) {
  const Result<fleet::JobId> id = job_of(request);
  if (!id.ok() || caller.scope == fleet::Scope::Admin) co_return id;
  const Result<KnownJob> known = co_await find_known(parts, caller, *id);
  if (!known.ok()) co_return known.error();
  co_return id;
}

// Nothing where there are errors.
fleet::JobFilter read_filter(const Caller& caller, const http::Request& request,
                             fleet::Cursor& after, std::string& status,
                             std::vector<json::FieldError>& errors) {
  const json::Object fields = api::read_query(request);
  json::FieldReader reader(fields);
  contract::FieldTaker taker(reader);
  contract::TaskQuery query;
  describe(taker, query);
  errors = reader.finish();
  fleet::JobFilter filter;
  if (!errors.empty()) return filter;
  filter.limit = query.limit;
  if (caller.scope != fleet::Scope::Admin) filter.key = caller.key;
  if (query.after) after.before = *query.after;
  if (query.status.empty()) return filter;
  const std::optional<fleet::JobState> state = fleet::job_state_from_name(query.status);
  filter.states = {state && fleet::is_end(*state) ? *state : fleet::JobState::Queued};
  if (state && !fleet::is_end(*state)) status = query.status;
  return filter;
}

Result<contract::TaskPage> read_page(job_store::Store& store, const fleet::JobFilter& filter,
                                     const fleet::Cursor& after) {
  const Result<fleet::JobPage> page = store.list_jobs(filter, after);
  if (!page.ok()) return page.error();
  contract::TaskPage shown;
  for (const fleet::JobRecords& records : page->jobs) {
    Result<contract::TaskView> view = view_of_records(records);
    if (view.ok()) shown.tasks.push_back(view.take());
  }
  if (page->next) shown.next = std::to_string(page->next->before);
  return shown;
}

// Whoever cancels what somebody else submitted is written down.
http::Task<Status> tell_of_others_job(const RouteParts& parts, Caller caller, fleet::JobId id) {
  if (parts.audit == nullptr || caller.scope != fleet::Scope::Admin) co_return ok_status();
  const std::string own_key = caller.key.value == 0 ? std::string() : fleet::text(caller.key);
  const Result<KnownJob> known = co_await find_known(parts, caller, id);
  if (!known.ok() || known->view.key == own_key) co_return ok_status();
  std::string whose = known->view.key.empty() ? "of nobody's key" : "of key " + known->view.key;
  co_return co_await write_down(parts, caller, "job.cancel", fleet::text(id), std::move(whose));
}

}  // namespace

http::Task<Status> submit_task(const RouteParts& parts, Caller caller, const http::Request& request,
                               http::Responder& responder) {
  std::function<Result<ReadTask>()> read = [&store = parts.store, request, caller] {
    return read_task(store, request, caller);
  };
  for (int tries = 0;; ++tries) {
    Result<ReadTask> task = co_await parts.threads.run(read);
    if (!task.ok()) co_return task.error();
    if (task->refusal) co_return co_await responder.send(std::move(*task->refusal));
    if (task->earlier) {
      http::Response earlier = described_response(202, *task->earlier);
      co_return co_await responder.send(std::move(earlier));
    }
    const bool is_idempotent = !task->submission->facts.idempotency.empty();
    const fleet::Reply reply = co_await parts.core.submit_and_wait(std::move(*task->submission));
    // Somebody sent the same word at the same time: theirs is stored now.
    const bool was_beaten = is_idempotent && !reply.status.ok() &&
                            reply.status.error().code == ErrorCode::Conflict && tries == 0;
    if (was_beaten) continue;
    if (!reply.status.ok()) {
      http::Response refusal = reply_error(reply, request);
      co_return co_await responder.send(std::move(refusal));
    }
    contract::TaskAccepted accepted;
    accepted.job_id = fleet::text(reply.job);
    accepted.queue_position = reply.position;
    accepted.predicted_start_ms = reply.predicted_start_ms;
    accepted.events_url = events_url(reply.job);
    http::Response response = described_response(202, accepted);
    response.headers.set("Location", "/v2/tasks/" + accepted.job_id);
    co_return co_await responder.send(std::move(response));
  }
}

http::Task<Status> list_tasks(const RouteParts& parts, Caller caller, const http::Request& request,
                              http::Responder& responder) {
  fleet::Cursor after;
  std::string status;
  std::vector<json::FieldError> errors;
  const fleet::JobFilter filter = read_filter(caller, request, after, status, errors);
  if (!errors.empty()) {
    http::Response failures = failures_response(request, std::move(errors));
    co_return co_await responder.send(std::move(failures));
  }
  // The store does not tell live states apart: pages without one that is wanted are passed over.
  for (;;) {
    std::function<Result<contract::TaskPage>()> read = [&store = parts.store, filter, after] {
      return read_page(store, filter, after);
    };
    Result<contract::TaskPage> page = co_await parts.threads.run(std::move(read));
    if (!page.ok()) co_return page.error();
    Result<std::vector<contract::TaskView>> tasks =
        co_await with_live(parts, std::move(page->tasks));
    if (!tasks.ok()) co_return tasks.error();
    page->tasks = tasks.take();
    if (!status.empty()) {
      std::erase_if(page->tasks,
                    [&status](const contract::TaskView& task) { return task.status != status; });
    }
    if (page->tasks.empty() && !page->next.empty()) {
      after.before = std::stoll(page->next);
      continue;
    }
    http::Response response = described_response(200, *page);
    co_return co_await responder.send(std::move(response));
  }
}

http::Task<Status> show_task(const RouteParts& parts, Caller caller, const http::Request& request,
                             http::Responder& responder) {
  const Result<fleet::JobId> id = job_of(request);
  if (!id.ok()) co_return id.error();
  const Result<KnownJob> known = co_await find_known(parts, caller, *id);
  if (!known.ok()) co_return known.error();
  http::Response response = described_response(200, known->view);
  co_return co_await responder.send(std::move(response));
}

http::Task<Status> stream_task(const RouteParts& parts, Caller caller, const http::Request& request,
                               http::Responder& responder) {
  const Result<fleet::JobId> id = co_await visible_job_of(parts, caller, request);
  if (!id.ok()) co_return id.error();
  std::string last(request.headers.find("Last-Event-ID").value_or(""));
  co_return co_await parts.answers.follow(*id, std::move(last), responder);
}

http::Task<Status> stop_task(const RouteParts& parts, Caller caller, const http::Request& request,
                             http::Responder& responder) {
  const Result<fleet::JobId> id = co_await visible_job_of(parts, caller, request);
  if (!id.ok()) co_return id.error();
  const fleet::Reply reply = co_await parts.core.stop_and_wait(*id, fleet::StopCause::Asked);
  contract::TaskStopped stopped;
  stopped.job_id = fleet::text(*id);
  if (reply.status.ok()) {
    stopped.status = fleet::name(reply.state);
    stopped.stop_ms = reply.stop_ms;
    Status told = co_await tell_of_others_job(parts, caller, *id);
    if (!told.ok()) co_return told;
  } else if (reply.status.error().code == ErrorCode::NotFound) {
    const Result<KnownJob> known = co_await find_known(parts, caller, *id);
    if (!known.ok()) co_return known.error();
    stopped.status = known->view.status;  // it had ended before
  } else {
    http::Response refusal = reply_error(reply, request);
    co_return co_await responder.send(std::move(refusal));
  }
  http::Response response = described_response(200, stopped);
  co_return co_await responder.send(std::move(response));
}

http::Task<Status> explain_task(const RouteParts& parts, Caller caller,
                                const http::Request& request, http::Responder& responder) {
  const Result<fleet::JobId> id = job_of(request);
  if (!id.ok()) co_return id.error();
  const Result<KnownJob> known = co_await find_known(parts, caller, *id);
  if (!known.ok()) co_return known.error();
  std::function<Result<contract::WhyView>(const fleet::Fleet&, fleet::TimePoint)> explain =
      [id = *id, status = known->view.status, message = known->view.message](
          const fleet::Fleet& fleet, fleet::TimePoint now) -> Result<contract::WhyView> {
    const fleet::Job* job = fleet::find_job(fleet, id);
    if (job != nullptr) return explain_job(fleet, *job, now);
    contract::WhyView view;
    view.job_id = fleet::text(id);
    view.status = status;
    view.sheet = message;  // of one that ended without an answer: why
    return view;
  };
  Result<contract::WhyView> view =
      co_await parts.core.ask_for<contract::WhyView>(std::move(explain));
  if (!view.ok()) co_return view.error();
  if (known->records) add_dispatches(*known->records, *view);
  http::Response response = described_response(200, *view);
  co_return co_await responder.send(std::move(response));
}

}  // namespace llorch::orchestrator
