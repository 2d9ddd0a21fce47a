#include "orchestrator/openai_routes.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/answers.h"
#include "base/json.h"
#include "base/similar_names.h"
#include "contract/request_body.h"
#include "fleet/fleet.h"
#include "http/sse.h"
#include "openai/answer_objects.h"
#include "openai/errors.h"
#include "orchestrator/endpoint_table.h"
#include "orchestrator/find_model.h"
#include "orchestrator/follower.h"
#include "orchestrator/openai_fold.h"
#include "orchestrator/openai_request.h"
#include "orchestrator/task_request.h"

namespace llorch::orchestrator {
namespace {

using Clock = std::chrono::steady_clock;
using fleet::JobKind;

constexpr double kBytesPerToken = 4;  // until the worker has counted
// Read in less time than another thread takes to wake up: some microseconds.
constexpr std::size_t kShortBodyBytes = std::size_t{4} << 10;
// More of an answer than this is folded while it comes.
constexpr std::size_t kFoldBytes = std::size_t{512} << 10;

bool may_use(const std::vector<std::string>& globs, std::string_view model) {
  return globs.empty() || std::any_of(globs.begin(), globs.end(), [model](const auto& glob) {
           return fleet::matches_glob(glob, model);
         });
}

// The names that this key may ask for, each once.
http::Task<Result<std::vector<std::string>>> model_names(OpenAiParts parts, fleet::KeyId key) {
  using Names = std::vector<std::string>;
  std::function<Result<Names>(const fleet::Fleet&, fleet::TimePoint)> list =
      [key](const fleet::Fleet& fleet, fleet::TimePoint) -> Result<Names> {
    const auto row = fleet.key_by_id.find(key);
    const std::vector<std::string> globs =
        row == fleet.key_by_id.end() ? Names() : fleet.keys[row->second].facts.models;
    Names names;
    for (const fleet::Model& model : fleet.models) {
      const bool is_there = !model.hosts.empty() || !model.views.empty();
      if (is_there && may_use(globs, model.name)) names.push_back(model.name);
    }
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
  };
  co_return co_await parts.core.ask_for<Names>(std::move(list));
}

http::Response no_such_model(const std::string& name, const std::vector<std::string>& names) {
  const std::vector<std::string_view> known(names.begin(), names.end());
  return api::openai_error_response(
      {ErrorCode::NotFound,
       "no host of this fleet knows a model '" + name + "'" + base::did_you_mean(name, known)},
      "model", "model_not_found");
}

// A request that was read.
struct ReadRequest {
  OpenAiRequest openai;
  Submission submission;
};
struct ReadOutcome {
  std::shared_ptr<ReadRequest> request;  // or
  std::shared_ptr<http::Response> refusal;
};

ReadOutcome refused(const Error& error, std::string_view param = {}, std::string_view code = {}) {
  return {nullptr,
          std::make_shared<http::Response>(api::openai_error_response(error, param, code))};
}

// On a work thread.
ReadOutcome read_request(JobKind kind, const http::Request& request, const Caller& caller) {
  const Result<json::Object> body =
      contract::parse_json_body(request.headers.find("Content-Type"), request.body);
  if (!body.ok()) return refused(body.error());
  ReadOutcome outcome;
  outcome.request = std::make_shared<ReadRequest>();
  OpenAiRequest& openai = outcome.request->openai;
  if (const auto refusal = read_openai_request(kind, *body, openai))
    return refused(refusal->error, refusal->param);
  Submission& submission = outcome.request->submission;
  submission.job = make_job_id();
  submission.body = std::make_shared<const std::string>(std::move(openai.body));
  submission.prefix = prefix_hashes(openai.prompt);
  fleet::SubmittedRecord& facts = submission.facts;
  facts.key = caller.key;
  facts.kind = kind;
  facts.holder = fleet::Holder::Connection;
  facts.model_name = openai.model;
  facts.seed = openai.seed.value_or(make_seed());
  facts.max_tokens = openai.max_tokens;
  facts.choices = openai.choices;
  facts.prompt_tokens =
      static_cast<std::uint32_t>(static_cast<double>(openai.prompt.size()) / kBytesPerToken) + 1;
  facts.correlation_id = request.correlation_id;
  if (request.deadline) {
    facts.deadline_ms =
        std::chrono::duration_cast<std::chrono::milliseconds>(request.deadline->time_since_epoch())
            .count();
  }
  return outcome;
}

http::Response reply_refusal(const fleet::Reply& reply) {
  const Error& error = reply.status.error();
  const bool is_model = error.code == ErrorCode::NotFound;
  http::Response response =
      api::openai_error_response(error, is_model ? "model" : "", is_model ? "model_not_found" : "");
  if (reply.retry_after_ms > 0) {
    response.headers.set(
        "Retry-After",
        std::to_string(static_cast<std::int64_t>(std::ceil(reply.retry_after_ms / 1000))));
  }
  return response;
}

// The answer to a job that ended without a stream.
http::Response ended_response(const AnswerLog& log, const fleet::EndedRecord& end) {
  if (const std::optional<WholeAnswer> whole = log.whole();
      whole && (whole->status != 200 || end.state == fleet::JobState::Completed))
    return http::Response(whole->status, whole->content_type, whole->body);
  return api::openai_error_response({end.code, end.message});
}

void add_origin(const AnswerLog& log, http::Headers& headers) {
  headers.set("X-Llorch-Job", fleet::text(log.job()));
  if (const std::string by = log.served_by(); !by.empty()) headers.set("X-Llorch-Worker", by);
}

// A job's answer goes with the request that it lives with.
class OpenAnswer {
 public:
  OpenAnswer(AnswerBook& book, const fleet::JobId& job, ClientWish wish) : book_(book), job_(job) {
    book_.prepare(job, wish);
  }
  ~OpenAnswer() { book_.drop(job_); }
  OpenAnswer(const OpenAnswer&) = delete;
  OpenAnswer& operator=(const OpenAnswer&) = delete;

 private:
  AnswerBook& book_;
  const fleet::JobId job_;
};

// Streams the answer. Until it begins, or for as long as a connection may be silent, nothing is
// sent: a failure can then still be a status of its own.
http::Task<Status> stream_answer(Follower& follower, std::chrono::milliseconds keep_alive,
                                 http::Responder& responder) {
  AnswerLog& log = follower.log();
  Clock::time_point deadline = Clock::now() + keep_alive;
  std::string waiting;
  bool has_ended = false;
  while (!responder.is_closed()) {
    Result<Follower::Next> next = co_await follower.next(deadline);
    if (!next.ok()) co_return next.error();
    has_ended = next->has_ended;
    if (!next->bytes.empty()) waiting = std::move(next->bytes);  // notices: the newest says it all
    const std::optional<fleet::EndedRecord> end = log.ended();
    const bool has_failed = has_ended && end && end->state != fleet::JobState::Completed;
    if (has_failed && !next->has_answer) {
      http::Response response = ended_response(log, *end);
      add_origin(log, response.headers);
      co_return co_await responder.send(std::move(response));
    }
    if (next->has_answer || has_ended || Clock::now() >= deadline) break;
  }
  http::Headers headers;
  headers.add("Cache-Control", "no-store");
  add_origin(log, headers);
  Result<http::Stream> stream =
      co_await responder.open_stream(200, std::string(http::kEventStreamType), std::move(headers));
  if (!stream.ok()) co_return stream.error();
  if (waiting.empty() && !has_ended) waiting = http::kKeepAliveComment;
  if (Status written = co_await stream->write(waiting); !written.ok()) co_return written;
  deadline = Clock::now() + keep_alive;
  while (!stream->is_closed()) {
    if (has_ended) co_return ok_status();
    Result<Follower::Next> next = co_await follower.next(deadline);
    if (!next.ok()) co_return next.error();
    has_ended = next->has_ended;
    const bool is_silent = next->bytes.empty() && !has_ended;
    if (is_silent && Clock::now() < deadline) continue;
    const Status written =
        co_await stream->write(is_silent ? http::kKeepAliveComment : std::string_view(next->bytes));
    if (!written.ok()) co_return written;
    deadline = Clock::now() + keep_alive;
  }
  co_return Error{ErrorCode::Cancelled, "the client is gone"};
}

// The whole answer at once, folded from its chunks on work threads.
http::Task<Status> send_whole(OpenAiParts parts, Follower& follower, JobKind kind,
                              const OpenAiRequest& request, http::Responder& responder) {
  const auto fold = std::make_shared<AnswerFold>(kind, request.choices, request.with_logprobs);
  AnswerLog& log = follower.log();
  std::string chunks;
  bool has_ended = false;
  while (!has_ended && !responder.is_closed()) {
    Result<Follower::Next> next = co_await follower.next(Clock::now() + parts.answers.keep_alive());
    if (!next.ok()) co_return next.error();
    has_ended = next->has_ended;
    if (next->has_answer || has_ended) chunks += next->bytes;
    if (has_ended || chunks.size() < kFoldBytes) continue;
    std::function<Result<bool>()> add = [fold, part = std::exchange(chunks, {})]() -> Result<bool> {
      const Status added = fold->add(part);
      if (!added.ok()) return added.error();
      return true;
    };
    const Result<bool> added = co_await parts.threads.run<bool>(std::move(add));
    if (!added.ok()) co_return added.error();
  }
  const std::optional<fleet::EndedRecord> end = log.ended();
  if (!has_ended || !end) co_return Error{ErrorCode::Cancelled, "the client is gone"};
  http::Response response;
  if (end->state != fleet::JobState::Completed || kind == JobKind::Embedding) {
    response = ended_response(log, *end);
  } else {
    std::function<Result<http::Response>()> finish =
        [fold, part = std::move(chunks)]() -> Result<http::Response> {
      const Status added = fold->add(part);
      if (!added.ok()) return added.error();
      return api::json_response(200, fold->whole());
    };
    Result<http::Response> folded = co_await parts.threads.run<http::Response>(std::move(finish));
    if (!folded.ok()) co_return folded.error();
    response = folded.take();
  }
  add_origin(log, response.headers);
  co_return co_await responder.send(std::move(response));
}

}  // namespace

http::Task<Status> answer_openai_models(OpenAiParts parts, Caller caller, const http::Request&,
                                        http::Responder& responder) {
  const Result<std::vector<std::string>> names = co_await model_names(parts, caller.key);
  if (!names.ok()) co_return names.error();
  openai::ModelList list;
  for (const std::string& name : *names) list.data.push_back({name, parts.started_s});
  http::Response response = api::json_response(200, contract::write_fields(list));
  co_return co_await responder.send(std::move(response));
}

http::Task<Status> answer_openai_model(OpenAiParts parts, Caller caller,
                                       const http::Request& request, http::Responder& responder) {
  const std::string name = request.path_params.at("model");
  for (const bool has_looked : {false, true}) {
    const Result<std::vector<std::string>> names = co_await model_names(parts, caller.key);
    if (!names.ok()) co_return names.error();
    if (std::binary_search(names->begin(), names->end(), name)) {
      http::Response response =
          api::json_response(200, contract::write_fields(openai::Model{name, parts.started_s}));
      co_return co_await responder.send(std::move(response));
    }
    if (!has_looked) {
      co_await parts.core.look_and_wait();  // it may have been registered a moment ago
      continue;
    }
    std::function<Result<ModelSearch>(const fleet::Fleet&, fleet::TimePoint)> search =
        [key = caller.key, name](const fleet::Fleet& fleet, fleet::TimePoint) {
          return Result<ModelSearch>(find_model_by_name(fleet, name, key));
        };
    const Result<ModelSearch> away = co_await parts.core.ask_for<ModelSearch>(std::move(search));
    if (!away.ok()) co_return away.error();
    const bool is_away = !away->found && away->error.code == ErrorCode::Unavailable;
    http::Response response =
        is_away ? api::openai_error_response(away->error) : no_such_model(name, *names);
    co_return co_await responder.send(std::move(response));
  }
  co_return ok_status();
}

http::Task<Status> answer_openai(OpenAiParts parts, Caller caller, JobKind kind,
                                 const http::Request& request, http::Responder& responder) {
  Result<ReadOutcome> outcome = ReadOutcome();
  if (request.body.size() <= kShortBodyBytes) {
    outcome = read_request(kind, request, caller);
  } else {
    std::function<Result<ReadOutcome>()> read = [kind, request, caller]() -> Result<ReadOutcome> {
      return read_request(kind, request, caller);
    };
    outcome = co_await parts.threads.run<ReadOutcome>(std::move(read));
  }
  if (!outcome.ok()) co_return outcome.error();
  if (outcome->refusal) {
    http::Response refusal = std::move(*outcome->refusal);
    co_return co_await responder.send(std::move(refusal));
  }
  const std::shared_ptr<ReadRequest> job = outcome->request;
  const bool wants_ids = request.headers.find("X-Llorch-Ids") == "1";
  const fleet::JobId id = job->submission.job;
  const OpenAnswer answer(parts.answers, id,
                          {.ids = wants_ids && job->openai.stream,
                           .usage = job->openai.include_usage || !job->openai.stream});
  Submission submission = std::move(job->submission);
  const fleet::Reply reply = co_await parts.core.submit_and_wait(std::move(submission));
  if (!reply.status.ok()) {
    http::Response refusal = reply_refusal(reply);
    co_return co_await responder.send(std::move(refusal));
  }
  std::shared_ptr<AnswerLog> log = parts.answers.find(id);
  if (log == nullptr) co_return Error{ErrorCode::Internal, "the job has no answer"};
  Follower follower(std::move(log), parts.answers.follower_parts(), std::nullopt);
  responder.on_disconnect([waker = follower.waker()]() mutable { waker.notify(); });
  if (job->openai.stream)
    co_return co_await stream_answer(follower, parts.answers.keep_alive(), responder);
  co_return co_await send_whole(parts, follower, kind, job->openai, responder);
}

// --- the rows of the endpoint table ---

namespace {

OpenAiParts openai_parts(const RouteParts& parts) {
  const std::chrono::duration<double> age = Clock::now() - parts.started;
  return {parts.core, parts.answers, parts.threads,
          wall_now_ms() / 1000 - static_cast<std::int64_t>(age.count())};
}

}  // namespace

http::Task<Status> openai_models(const RouteParts& parts, Caller caller,
                                 const http::Request& request, http::Responder& responder) {
  return answer_openai_models(openai_parts(parts), std::move(caller), request, responder);
}

http::Task<Status> openai_model(const RouteParts& parts, Caller caller,
                                const http::Request& request, http::Responder& responder) {
  return answer_openai_model(openai_parts(parts), std::move(caller), request, responder);
}

http::Task<Status> openai_completion(const RouteParts& parts, Caller caller,
                                     const http::Request& request, http::Responder& responder) {
  return answer_openai(openai_parts(parts), std::move(caller), JobKind::Completion, request,
                       responder);
}

http::Task<Status> openai_chat(const RouteParts& parts, Caller caller, const http::Request& request,
                               http::Responder& responder) {
  return answer_openai(openai_parts(parts), std::move(caller), JobKind::Chat, request, responder);
}

http::Task<Status> openai_embedding(const RouteParts& parts, Caller caller,
                                    const http::Request& request, http::Responder& responder) {
  return answer_openai(openai_parts(parts), std::move(caller), JobKind::Embedding, request,
                       responder);
}

}  // namespace llorch::orchestrator
