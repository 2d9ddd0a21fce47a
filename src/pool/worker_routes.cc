#include "pool/worker_routes.h"

#include <fmt/format.h>

#include <utility>

#include "contract/worker_info.h"
#include "http/sse.h"
#include "pool/bodies.h"
#include "pool/log_tail.h"
#include "pool/worker_log.h"

namespace llorch::pool {
namespace {

// A log that grows faster than it is read ends somewhere.
constexpr std::size_t kLogBytesMax = std::size_t{8} << 20;

Result<http::Response> worker_response(int status, const Result<contract::PoolWorker>& worker) {
  if (!worker.ok()) return worker.error();
  return json_response(status, contract::to_json(*worker));
}

using TailPtr = std::shared_ptr<LogTail>;

// On a thread that may block, as the next two.
Result<TailPtr> open_log(const Service& service, const std::string& id, std::int64_t lines) {
  const Result<contract::PoolWorker> worker = service.pool.workers.worker(id);
  std::filesystem::path file;
  if (worker.ok())
    file = worker->log_file;
  else if (const auto left = find_log_of(service.pool.home, id))
    file = *left;  // nobody lists it any more, but its log is there
  else
    return worker.error();
  Result<LogTail> tail = LogTail::open(file, static_cast<std::size_t>(lines));
  if (!tail.ok()) return tail.error();
  return std::make_shared<LogTail>(tail.take());
}

Result<std::string> read_whole(LogTail& tail) {
  std::string text;
  for (;;) {
    const Result<std::string> more = tail.read_more(true);
    if (!more.ok()) return more.error();
    text += *more;
    if (more->empty() || text.size() > kLogBytesMax) return text;
  }
}

// The next events of a followed log. The stream ends with `end`.
struct FollowStep {
  std::string events;
  bool ended = false;
};

Result<FollowStep> follow_step(const Service& service, const std::string& id, LogTail& tail) {
  // Asked before the log is read: what it wrote before its end is then in the file.
  const Result<contract::PoolWorker> worker = service.pool.workers.worker(id);
  const bool has_ended = !worker.ok() || worker->state == contract::PoolWorkerState::Stopped ||
                         worker->state == contract::PoolWorkerState::Failed;
  const Result<std::string> text = tail.read_more(has_ended);
  if (!text.ok()) return text.error();
  FollowStep step;
  if (!text->empty()) {
    std::string_view lines = *text;
    if (lines.ends_with('\n')) lines.remove_suffix(1);
    step.events = http::format_event("log", lines);
  } else if (has_ended) {
    const std::string_view state =
        worker.ok() ? contract::name(worker->state) : std::string_view("stopped");
    step.events = http::format_event("end", json::serialize(json::Object{{"state", state}}));
    step.ended = true;
  }
  return step;
}

// Counts a follower for as long as it lives.
class FollowerCount {
 public:
  explicit FollowerCount(ServicePtr service) : service_(std::move(service)) {
    number_ = ++service_->num_followers;
  }
  ~FollowerCount() { --service_->num_followers; }
  FollowerCount(const FollowerCount&) = delete;
  FollowerCount& operator=(const FollowerCount&) = delete;
  std::size_t number() const { return number_; }

 private:
  ServicePtr service_;
  std::size_t number_;
};

http::Task<Status> follow_log(ServicePtr service, std::string id, TailPtr tail,
                              http::Responder& responder) {
  const FollowerCount count(service);
  if (count.number() > service->settings.max_followers) {
    co_return Error{ErrorCode::QueueFull,
                    fmt::format("{} clients follow logs already; try again later",
                                service->settings.max_followers)};
  }
  Result<http::Stream> stream =
      co_await responder.open_stream(200, std::string(http::kEventStreamType));
  if (!stream.ok()) co_return stream.error();
  // Nobody pushes: it is there to wait on, and closed when the client goes.
  const auto pause = std::make_shared<http::EventFeed<std::monostate>>(1);
  stream->on_disconnect([pause] { pause->close(); });
  auto last_sent = std::chrono::steady_clock::now();
  for (;;) {
    std::function<Result<FollowStep>()> work = [service, id, tail] {
      return follow_step(*service, id, *tail);
    };
    const Result<FollowStep> step = co_await service->pool.threads.run(std::move(work));
    if (!step.ok()) co_return step.error();
    std::string text = step->events;
    const auto now = std::chrono::steady_clock::now();
    if (text.empty() && now - last_sent >= service->settings.keep_alive)
      text = http::kKeepAliveComment;
    if (!text.empty()) {
      Status written = co_await stream->write(text);
      if (!written.ok()) co_return written;
      last_sent = now;
    }
    if (step->ended) co_return ok_status();
    if (!step->events.empty()) continue;
    const auto next = co_await pause->next(service->settings.follow_interval);
    if (next.ended) co_return Error{ErrorCode::Cancelled, "the client is gone"};
  }
}

}  // namespace

Result<http::Response> list_workers(const Service& service, const http::Request&) {
  return json_response(200, contract::write_fields(WorkerList{service.pool.workers.workers()}));
}

Result<http::Response> show_worker(const Service& service, const http::Request& request) {
  return worker_response(200, service.pool.workers.worker(path_param(request, "id")));
}

Result<http::Response> start_worker(const Service& service, const http::Request& request) {
  const Result<json::Object> body = read_body(request);
  if (!body.ok()) return body.error();
  std::vector<json::FieldError> errors;
  const contract::StartWorkerRequest wanted = contract::parse_start_worker_request(*body, errors);
  if (!errors.empty()) return failures_response(request, std::move(errors));
  if (service.pool.phase() == PoolPhase::Draining)
    return Error{ErrorCode::Unavailable, "the pool manager is being stopped"};
  return worker_response(202, service.pool.workers.start_worker(wanted));
}

Result<http::Response> stop_worker(const Service& service, const http::Request& request) {
  return answer_body<StopWorkerRequest>(request, [&](const StopWorkerRequest& wanted) {
    std::optional<std::chrono::seconds> patience;
    if (wanted.timeout_sec) patience = std::chrono::seconds(*wanted.timeout_sec);
    return worker_response(202, service.pool.workers.stop_worker(wanted.id, patience));
  });
}

Result<http::Response> restart_worker(const Service& service, const http::Request& request) {
  return answer_body<NoFields>(request, [&](NoFields) -> Result<http::Response> {
    if (service.pool.phase() == PoolPhase::Draining)
      return Error{ErrorCode::Unavailable, "the pool manager is being stopped"};
    return worker_response(202, service.pool.workers.restart_worker(path_param(request, "id")));
  });
}

Result<http::Response> answer_ready(Workers& workers, const http::Request& request) {
  if (!request.from_loopback)
    return Error{ErrorCode::Forbidden, "only workers of this host report here"};
  const Result<contract::ReadyCallback> callback = contract::parse_ready_callback(request.body);
  if (!callback.ok()) return Error{ErrorCode::InvalidArgument, callback.error().message};
  const std::string_view mark = request.headers.find(contract::kWorkerMarkHeader).value_or("");
  if (Status taken = workers.worker_ready(*callback, mark); !taken.ok()) return taken.error();
  return json_response(200, contract::write_fields(OkAnswer{}));
}

Result<http::Response> take_ready_callback(const Service& service, const http::Request& request) {
  return answer_ready(service.pool.workers, request);
}

http::Task<Status> send_worker_log(ServicePtr service, const http::Request& request,
                                   http::Responder& responder) {
  std::vector<json::FieldError> errors;
  const auto log = read_fields<LogQuery>(read_query(request), errors);
  if (!errors.empty()) {
    http::Response failures = failures_response(request, std::move(errors));
    co_return co_await responder.send(std::move(failures));
  }
  const std::string id = path_param(request, "id");
  std::function<Result<TailPtr>()> open = [service, id, log] {
    return open_log(*service, id, log.lines);
  };
  Result<TailPtr> tail = co_await service->pool.threads.run(std::move(open));
  if (!tail.ok()) co_return tail.error();
  if (log.follow) co_return co_await follow_log(service, id, tail.take(), responder);
  std::function<Result<std::string>()> read = [tail = tail.take()] { return read_whole(*tail); };
  Result<std::string> text = co_await service->pool.threads.run(std::move(read));
  if (!text.ok()) co_return text.error();
  http::Response response(200, "text/plain; charset=utf-8", text.take());
  co_return co_await responder.send(std::move(response));
}

}  // namespace llorch::pool
