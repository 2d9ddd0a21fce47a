#include "orchestrator/orchestrator.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "base/check.h"
#include "base/digest.h"
#include "base/log.h"
#include "orchestrator/find_model.h"

namespace llorch::orchestrator {
namespace {

using fleet::Event;
using fleet::Reply;
using fleet::RequestId;

constexpr std::chrono::milliseconds kTick{250};
// Submissions and questions that may wait for the owner; all other events are bounded by the jobs
// and hosts there are, and the channel has room for those.
constexpr std::size_t kSubmissionsMax = 8192;
constexpr std::size_t kWaitingMax = std::size_t{1} << 20U;
constexpr double kStartingRetryMs = 1000;
constexpr std::chrono::milliseconds kLookPause{250};
constexpr std::size_t kLookWaitersMax = 1024;
constexpr std::chrono::milliseconds kReplyPatience = std::chrono::hours(24);

const base::Logger& logger() {
  static const base::Logger instance("orchestrator");
  return instance;
}

// What a submission says about its body.
void describe_body(fleet::SubmittedRecord& facts, const std::string& body) {
  facts.body_bytes = static_cast<std::uint32_t>(body.size());
  const bool has_hash = std::any_of(std::begin(facts.body_hash), std::end(facts.body_hash),
                                    [](std::uint64_t word) { return word != 0; });
  if (!has_hash) hash_body(body, facts.body_hash);
}

template <class T>
T random_value() {
  T value{};
  const ssize_t got = ::getrandom(&value, sizeof(value), 0);
  CHECK(got == static_cast<ssize_t>(sizeof(value)), "the kernel gives so few bytes at once");
  return value;
}

Reply refusal(const fleet::JobId& job, Error error, double retry_after_ms = 0) {
  Reply reply;
  reply.job = job;
  reply.status = Status(std::move(error));
  reply.retry_after_ms = retry_after_ms;
  return reply;
}

http::Task<Reply> await_reply(std::shared_ptr<http::EventFeed<Reply>> feed) {
  auto next = co_await feed->next(kReplyPatience);
  if (next.item) co_return std::move(*next.item);
  co_return refusal({}, {ErrorCode::Unavailable, "the orchestrator is being stopped"});
}

}  // namespace

fleet::JobId make_job_id() {
  const auto words = random_value<std::array<std::uint64_t, 2>>();
  return {words[0], words[1]};
}

std::uint64_t make_seed() {
  return random_value<std::uint64_t>() >> 11U;
}

void hash_body(std::string_view body, std::uint64_t (&words)[4]) {
  const std::string hex = base::sha256_hex(body);
  for (std::size_t i = 0; i < 4; ++i)
    std::from_chars(hex.data() + 16 * i, hex.data() + 16 * (i + 1), words[i], 16);
}

fleet::UnixMs wall_now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Orchestrator::Orchestrator(fleet::FleetLimits limits, fleet::Boot boot) : fleet_(limits, boot) {}

Orchestrator::~Orchestrator() {
  stop();
}

void Orchestrator::start(const OrchestratorParts& parts) {
  CHECK(!loop_, "an orchestrator starts once");
  CHECK(parts.store != nullptr && parts.attempts != nullptr && parts.answers != nullptr &&
            parts.pools != nullptr && parts.io != nullptr && parts.threads != nullptr,
        "an orchestrator has all its parts");
  parts_ = parts;
  next_tick_ = fleet::TimePoint::max();  // the clock begins with the recovery
  loop_ = std::make_unique<base::OwnerLoop>("fleet", kWaitingMax, [this] { return turn(); });
}

void Orchestrator::recover(Recovered recovered) {
  run_on_owner([this, recovered = std::move(recovered)] { take_up(recovered); });
}

void Orchestrator::stop() {
  if (loop_) loop_->stop();
}

Error Orchestrator::too_busy() {
  return {ErrorCode::Unavailable, "the orchestrator has too much to do; try again"};
}

// --- from other threads ---

void Orchestrator::run_on_owner(std::function<void()> work) {
  if (!loop_->post(std::move(work)))
    logger().debug("an event came after the end, or too much waits");
}

void Orchestrator::post(Event event) {
  run_on_owner([this, event = std::move(event)] { decide(event); });
}

void Orchestrator::note_written(job_store::Written written) {
  if (!written.failure.empty())
    logger().error("records could not be stored", {{"why", written.failure}});
  if (!written.answers.empty()) parts_.answers->note_written(written.answers);
  if (written.records.empty()) return;
  run_on_owner([this, records = std::move(written.records)] {
    for (const job_store::RecordWritten& record : records)
      decide(fleet::Written{record.job, record.seq, record.outcome});
  });
}

void Orchestrator::keep_setting(const std::string& key, const std::string& value) {
  keep(fleet::Bucket::Settings, key, value);
}

void Orchestrator::note_load(LoadProgress progress) {
  run_on_owner([this, progress = std::move(progress)] {
    const fleet::ModelIndex model = fleet::find_model(fleet_, progress.model);
    if (model == fleet::kNone) return;
    fleet::JobNotice notice{
        .kind = fleet::NoticeKind::Loading, .eta_ms = progress.eta_ms, .host = progress.host};
    notice.stage = progress.stage;
    notice.progress = progress.progress;
    for (const fleet::Job& job : fleet_.jobs) {
      if (job.model == model && job.phase == fleet::Phase::Queued)
        parts_.answers->tell(job.id, notice);
    }
  });
}

void Orchestrator::submit(Submission submission, OnReply on_reply) {
  CHECK(submission.body != nullptr, "a submission has a body");
  describe_body(submission.facts, *submission.body);
  if (submissions_waiting_ >= kSubmissionsMax) {
    on_reply(refusal(submission.job, too_busy(), kStartingRetryMs));
    return;
  }
  ++submissions_waiting_;
  const fleet::JobId job = submission.job;
  // The one who waits for it decides it himself, where nobody else is at it: no thread wakes up
  // before the request is on its way.
  const auto shared = std::make_shared<Submission>(std::move(submission));
  const bool posted = loop_->run_or_post([this, shared, on_reply] {
    --submissions_waiting_;
    take_submission(std::move(*shared), on_reply, /*has_looked=*/false);
  });
  if (posted) return;
  --submissions_waiting_;
  on_reply(refusal(job, {ErrorCode::Unavailable, "the orchestrator is being stopped"}));
}

void Orchestrator::ask_stop(const fleet::JobId& job, fleet::StopCause cause, OnReply on_reply) {
  const bool posted = loop_->post([this, job, cause, on_reply] {
    decide(fleet::StopAsked{job, cause, expect_reply(on_reply, /*is_submission=*/false)});
  });
  if (!posted) on_reply(refusal(job, too_busy()));
}

bool Orchestrator::ask(Question question) {
  if (submissions_waiting_ >= kSubmissionsMax) return false;
  return loop_->post([this, question = std::move(question)] {
    question(fleet_, std::chrono::steady_clock::now());
  });
}

http::Task<Reply> Orchestrator::submit_and_wait(Submission submission) {
  const auto feed = std::make_shared<http::EventFeed<Reply>>(1);
  submit(std::move(submission),
         [feed](const Reply& reply) { [[maybe_unused]] const bool taken = feed->try_push(reply); });
  co_return co_await await_reply(feed);
}

http::Task<void> Orchestrator::look_and_wait() {
  const auto feed = std::make_shared<http::EventFeed<bool>>(1);
  const auto wake = [feed] { [[maybe_unused]] const bool taken = feed->try_push(true); };
  run_on_owner([this, wake] {
    if (!look_first(wake)) wake();
  });
  co_await feed->next(kAnswerPatience);
}

http::Task<Reply> Orchestrator::stop_and_wait(fleet::JobId job, fleet::StopCause cause) {
  const auto feed = std::make_shared<http::EventFeed<Reply>>(1);
  ask_stop(job, cause, [feed](const Reply& reply) {
    [[maybe_unused]] const bool taken = feed->try_push(reply);
  });
  co_return co_await await_reply(feed);
}

// --- on the owner's thread ---

void Orchestrator::take_up(const Recovered& recovered) {
  const fleet::TimePoint now = std::chrono::steady_clock::now();
  fleet::begin_recovery(fleet_, wall_now_ms(), now);
  for (const auto& [host, models] : recovered.host_models) fleet_.memory.take_up(host, models);
  for (const Recovered::Host& host : recovered.hosts)
    decide(fleet::HostAsked{host.id, host.kind, fleet::HostWish::Up});
  for (const auto& [key, facts] : recovered.keys) decide(fleet::KeyChanged{key, facts});
  for (const fleet::JobRecords& records : recovered.ended) fleet::learn_from_ended(fleet_, records);
  std::size_t num_left_out = 0;
  for (const fleet::JobRecords& records : recovered.jobs) {
    const auto* facts = records.records.empty()
                            ? nullptr
                            : std::get_if<fleet::SubmittedRecord>(&records.records.front());
    if (facts != nullptr) parts_.answers->open(records.job, *facts, records.stored);
    const Status taken = fleet::recover_job(fleet_, records, now, *this);
    if (taken.ok()) continue;
    ++num_left_out;
    logger().error("a stored job cannot be read and is left out",
                   {{"job", fleet::text(records.job)}, {"why", taken.error().message}});
  }
  for (const auto& [key, usage] : recovered.usage) {
    fleet::Key& row = fleet_.keys[fleet::find_or_add_key(fleet_, key)];
    const std::int64_t reserved = row.usage.tokens_reserved;
    row.usage = usage;
    row.usage.tokens_reserved = reserved;
  }
  logger().info("jobs taken up again", {{"jobs", recovered.jobs.size() - num_left_out},
                                        {"left_out", num_left_out},
                                        {"boot", fleet_.boot}});
  next_tick_ = now;
  is_recovered_ = true;
}

void Orchestrator::decide(const Event& event) {
  fleet::decide(fleet_, event, std::chrono::steady_clock::now(), *this);
}

base::OwnerLoop::Rest Orchestrator::turn() {
  flush_backlog();
  const fleet::TimePoint now = std::chrono::steady_clock::now();
  if (now >= next_tick_) {
    decide(fleet::Tick{wall_now_ms()});
    next_tick_ = now + kTick;
    if (!is_ready_ && now >= fleet_.hold_until) {
      is_ready_ = true;
      logger().info("ready", {{"jobs", fleet_.job_by_id.size()}, {"hosts", fleet_.hosts.size()}});
    }
  }
  begin_look();
  const bool waits = !is_looking_ && !look_waiters_.empty();
  return {waits ? std::min(next_tick_, next_look_) : next_tick_, {}};
}

RequestId Orchestrator::expect_reply(OnReply on_reply, bool is_submission) {
  const RequestId request = next_request_++;
  pending_.emplace(request, Pending{std::move(on_reply), is_submission});
  return request;
}

// False: too many wait; what is known must do.
bool Orchestrator::look_first(std::function<void()> then) {
  if (look_waiters_.size() >= kLookWaitersMax) return false;
  look_waiters_.push_back(std::move(then));
  begin_look();
  return true;
}

void Orchestrator::begin_look() {
  const fleet::TimePoint now = std::chrono::steady_clock::now();
  if (is_looking_ || look_waiters_.empty() || now < next_look_) return;
  is_looking_ = true;
  next_look_ = now + kLookPause;
  // Those who come while it is under way wait for the next: it may have missed what they mean.
  parts_.pools->look([this, waiters = std::exchange(look_waiters_, {})] {
    is_looking_ = false;
    for (const std::function<void()>& then : waiters) then();
    begin_look();
  });
}

void Orchestrator::take_submission(Submission submission, OnReply on_reply, bool has_looked) {
  if (!is_ready_) {
    return on_reply(refusal(submission.job,
                            {ErrorCode::Unavailable, "the orchestrator is starting; try again"},
                            kStartingRetryMs));
  }
  ModelSearch model = find_model_by_name(fleet_, submission.facts.model_name, submission.facts.key);
  if (!model.found && !has_looked) {
    // It may have been registered a moment ago.
    const auto shared = std::make_shared<Submission>(submission);
    const bool looks = look_first(
        [this, shared, on_reply] { take_submission(std::move(*shared), on_reply, true); });
    if (looks) return;
  }
  if (!model.found)
    return on_reply(refusal(submission.job, std::move(model.error), model.retry_after_ms));
  submission.facts.model = model.found->hash;
  submission.facts.model_name = model.found->name;
  submission.facts.submitted_ms = wall_now_ms();
  parts_.answers->open(submission.job, submission.facts, {});
  bodies_.emplace(submission.job, submission.body);
  decide(fleet::Submitted{.request = expect_reply(std::move(on_reply), /*is_submission=*/true),
                          .job = submission.job,
                          .facts = std::move(submission.facts),
                          .prefix = std::move(submission.prefix)});
}

// --- effects ---

void Orchestrator::append(fleet::JobWrite write) {
  const bool is_first = write.expected_seq == 0;
  if (is_first) {
    const auto body = bodies_.find(write.job);
    if (body != bodies_.end()) write.body = body->second;
  }
  if (!is_first && !backlog_.empty()) {
    backlog_.push_back(std::move(write));
    return;
  }
  // What is refused is gone with the call, so the store gets a copy where we could need it again.
  const fleet::JobId job = write.job;
  if (is_first) {
    if (!parts_.store->append(std::move(write)))
      post(fleet::Written{job, 0, fleet::WriteOutcome::Failed});
    return;
  }
  if (!parts_.store->append(write)) backlog_.push_back(std::move(write));
}

void Orchestrator::flush_backlog() {
  while (!backlog_.empty() && parts_.store->append(backlog_.front())) backlog_.pop_front();
}

void Orchestrator::open_attempt(const fleet::AttemptOrder& order) {
  const fleet::Job* job = fleet::find_job(fleet_, order.attempt.job);
  CHECK(job != nullptr, "an attempt is a live job's");
  const std::optional<PoolAddress> pool = parts_.pools->address_of(order.host);
  if (!pool) {
    return refuse_attempt(order.attempt,
                          {ErrorCode::Unavailable, "host " + order.host + " cannot be reached"});
  }
  open_with_body({order, *pool, job->facts, nullptr});
}

void Orchestrator::open_with_body(AttemptRequest request) {
  const fleet::AttemptId attempt = request.order.attempt;
  const auto body = bodies_.find(attempt.job);
  if (body != bodies_.end()) {
    request.body = body->second;
    parts_.attempts->open(std::move(request));
    return;
  }
  reading_[attempt.job] = {attempt, false};
  const auto shared = std::make_shared<AttemptRequest>(std::move(request));
  parts_.io->spawn([this, shared] { return read_body(*shared); });
}

http::Task<void> Orchestrator::read_body(AttemptRequest request) {
  std::function<Result<std::string>()> read =
      [store = parts_.store, job = request.order.attempt.job] { return store->read_body(job); };
  const auto body =
      std::make_shared<Result<std::string>>(co_await parts_.threads->run(std::move(read)));
  run_on_owner([this, request = std::move(request), body] { take_body(request, *body); });
}

void Orchestrator::take_body(AttemptRequest request, Result<std::string> body) {
  const fleet::AttemptId attempt = request.order.attempt;
  const auto found = reading_.find(attempt.job);
  if (found == reading_.end() || found->second.first != attempt) return;
  const bool was_cut = found->second.second;
  reading_.erase(found);
  if (was_cut) {
    decide(fleet::AttemptEnded{.attempt = attempt, .end = fleet::AttemptEnd::Cut});
  } else if (body.ok()) {
    bodies_[attempt.job] = std::make_shared<const std::string>(body.take());
    open_with_body(std::move(request));
  } else if (body.error().code == ErrorCode::NotFound) {
    decide(fleet::AttemptEnded{.attempt = attempt,
                               .end = fleet::AttemptEnd::Failed,
                               .code = ErrorCode::Internal,
                               .message = "its request is not stored any more"});
  } else {
    refuse_attempt(attempt, body.error());
  }
}

void Orchestrator::refuse_attempt(const fleet::AttemptId& attempt, const Error& error) {
  post(fleet::AttemptEnded{.attempt = attempt,
                           .end = fleet::AttemptEnd::Refused,
                           .code = error.code,
                           .message = error.message});
}

void Orchestrator::cut_attempt(const fleet::AttemptId& attempt) {
  const auto found = reading_.find(attempt.job);
  if (found != reading_.end() && found->second.first == attempt) {
    found->second.second = true;
    return;
  }
  parts_.attempts->cut(attempt);
}

void Orchestrator::start_worker(const fleet::HostId& host, const fleet::LoadPlan& plan) {
  parts_.pools->start_worker(host, plan);
}

void Orchestrator::stop_worker(const fleet::HostId& host, const fleet::WorkerId& worker) {
  parts_.pools->stop_worker(host, worker);
}

void Orchestrator::step_host(const fleet::HostId& host, fleet::HostAction action) {
  parts_.pools->step_host(host, action);
}

void Orchestrator::tell(const fleet::JobId& job, const fleet::JobNotice& notice) {
  if (notice.kind == fleet::NoticeKind::Ended) bodies_.erase(job);
  parts_.answers->tell(job, notice);
}

void Orchestrator::answer(RequestId request, const Reply& reply) {
  const auto found = pending_.find(request);
  if (found == pending_.end()) return;
  const Pending pending = std::move(found->second);
  pending_.erase(found);
  if (pending.is_submission && !reply.status.ok()) {
    bodies_.erase(reply.job);
    parts_.answers->drop(reply.job);
  }
  pending.on_reply(reply);
}

void Orchestrator::keep(fleet::Bucket bucket, const std::string& key, const std::string& value) {
  if (!parts_.store->keep(bucket, key, value))
    logger().warn("the store is too busy for an entry", {{"key", key}});
}

}  // namespace llorch::orchestrator
