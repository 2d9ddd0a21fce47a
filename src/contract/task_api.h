// The bodies of the orchestrator's API about tasks, each described once: JSON and schema come out
// of it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "contract/fields.h"

namespace llorch::contract {

inline constexpr std::array<std::string_view, 4> kTaskKinds = {"execute", "completion", "chat",
                                                               "embedding"};
inline constexpr std::array<std::string_view, 2> kTaskClasses = {"interactive", "batch"};
inline constexpr std::array<std::string_view, 3> kTaskModes = {"fast", "spread", "pin"};
inline constexpr std::array<std::string_view, 6> kTaskStates = {
    "queued", "dispatched", "running", "completed", "failed", "cancelled"};
inline constexpr std::size_t kTaskLabelsMax = 16;
inline constexpr std::size_t kNameBytesMax = 256;

// POST /v2/tasks, beside what the worker is asked. For kind "execute" the fields of /execute stand
// beside these; for the others `request` is the body of OpenAI's endpoint of that kind.
struct TaskOptions {
  std::string kind = "execute";
  std::string model;  // of an execute; the others name it in `request`
  std::string cls = "interactive";
  bool detach = false;  // runs on when nobody follows it
  std::string mode = "fast";
  std::string host;                         // with mode "pin"
  std::vector<std::string> labels;          // that its host must have
  std::optional<std::int64_t> deadline_ms;  // since 1970; X-Deadline says the same

  friend bool operator==(const TaskOptions&, const TaskOptions&) = default;
};
template <class V, Described<TaskOptions> T>
void describe(V& v, T& value) {
  v("kind", value.kind, {.names = kTaskKinds});
  v("model", value.model, {.bytes = {0, kNameBytesMax}});
  v("class", value.cls, {.names = kTaskClasses});
  v("detach", value.detach, {.doc = "The job runs on when nobody follows its events."});
  v("mode", value.mode, {.names = kTaskModes});
  v("host", value.host, {.bytes = {0, kNameBytesMax}, .doc = "With mode pin."});
  v("labels", value.labels, {.bytes = {1, 64}, .max_items = kTaskLabelsMax});
  v("deadline_ms", value.deadline_ms,
    {.min = 0, .max = 9e12, .doc = "Milliseconds since 1970, as X-Deadline."});
}

// 202 of POST /v2/tasks.
struct TaskAccepted {
  std::string job_id;
  std::string status = "queued";
  std::int64_t queue_position = 0;
  double predicted_start_ms = 0;
  std::string events_url;

  friend bool operator==(const TaskAccepted&, const TaskAccepted&) = default;
};
template <class V, Described<TaskAccepted> T>
void describe(V& v, T& value) {
  v("job_id", value.job_id);
  v("status", value.status, {.names = kTaskStates});
  v("queue_position", value.queue_position);
  v("predicted_start_ms", value.predicted_start_ms, {.thousandths = true});
  v("events_url", value.events_url);
}

// DELETE /v2/tasks/{id}: it has ended.
struct TaskStopped {
  std::string job_id;
  std::string status;
  double stop_ms = 0;  // from the request to the end; 0: it had ended before

  friend bool operator==(const TaskStopped&, const TaskStopped&) = default;
};
template <class V, Described<TaskStopped> T>
void describe(V& v, T& value) {
  v("job_id", value.job_id);
  v("status", value.status, {.names = kTaskStates});
  v("stop_ms", value.stop_ms, {.thousandths = true});
}

// One try of a job on one worker.
struct TaskAttempt {
  std::int64_t boot = 0;    // of the orchestrator that made it
  std::int64_t number = 0;  // from 1 in each boot
  std::string host;
  std::string worker;
  std::string dispatched_at;  // RFC 3339, UTC
  std::string started_at;     // empty: it never did
  std::string lost_at;        // empty: it was not lost
  std::string cause;          // of the loss
  std::int64_t cached_tokens = 0;

  friend bool operator==(const TaskAttempt&, const TaskAttempt&) = default;
};
template <class V, Described<TaskAttempt> T>
void describe(V& v, T& value) {
  v("boot", value.boot);
  v("number", value.number);
  v("host", value.host);
  v("worker", value.worker);
  v("dispatched_at", value.dispatched_at);
  v("started_at", value.started_at, {.omit_empty = true});
  v("lost_at", value.lost_at, {.omit_empty = true});
  v("cause", value.cause, {.omit_empty = true});
  v("cached_tokens", value.cached_tokens);
}

// GET /v2/tasks/{id}, and one of a list.
struct TaskView {
  std::string job_id;
  std::string status;
  std::string kind;
  std::string cls;
  std::string holder;  // "detached", "followed", "connection"
  std::string model;
  std::string model_hash;
  std::string key;  // id of the key; empty: none
  std::string mode;
  std::string host;  // where it is or was; empty: nowhere yet
  std::string worker;
  std::vector<std::string> labels;
  std::string submitted_at;
  std::string deadline;
  std::string ended_at;
  std::optional<std::int64_t> queue_position;
  std::optional<double> predicted_start_ms;
  std::string waits_for;  // beside its turn: "waits for host anna, …"
  std::uint64_t seed = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t tokens_out = 0;
  std::int64_t device_ms = 0;
  std::string stop_reason;
  std::string code;  // of a failure
  std::string message;
  std::string correlation_id;
  std::string events_url;
  std::vector<TaskAttempt> attempts;

  friend bool operator==(const TaskView&, const TaskView&) = default;
};
template <class V, Described<TaskView> T>
void describe(V& v, T& value) {
  v("job_id", value.job_id);
  v("status", value.status, {.names = kTaskStates});
  v("kind", value.kind, {.names = kTaskKinds});
  v("class", value.cls, {.names = kTaskClasses});
  v("holder", value.holder);
  v("model", value.model);
  v("model_hash", value.model_hash);
  v("key", value.key, {.omit_empty = true});
  v("mode", value.mode, {.names = kTaskModes});
  v("host", value.host, {.omit_empty = true});
  v("worker", value.worker, {.omit_empty = true});
  v("labels", value.labels, {.omit_empty = true});
  v("submitted_at", value.submitted_at);
  v("deadline", value.deadline, {.omit_empty = true});
  v("ended_at", value.ended_at, {.omit_empty = true});
  v("queue_position", value.queue_position);
  v("predicted_start_ms", value.predicted_start_ms, {.thousandths = true});
  v("waits_for", value.waits_for, {.omit_empty = true});
  v("seed", value.seed);
  v("prompt_tokens", value.prompt_tokens);
  v("tokens_out", value.tokens_out);
  v("device_ms", value.device_ms);
  v("stop_reason", value.stop_reason, {.omit_empty = true});
  v("code", value.code, {.omit_empty = true});
  v("message", value.message, {.omit_empty = true});
  v("correlation_id", value.correlation_id);
  v("events_url", value.events_url);
  v("attempts", value.attempts);
}

struct TaskPage {
  std::vector<TaskView> tasks;  // newest first
  std::string next;             // for ?after=; empty: these were the last

  friend bool operator==(const TaskPage&, const TaskPage&) = default;
};
template <class V, Described<TaskPage> T>
void describe(V& v, T& value) {
  v("tasks", value.tasks);
  v("next", value.next, {.omit_empty = true});
}

// GET /v2/tasks/{id}/why.
struct WhyLine {
  std::string host;
  std::string worker;  // empty: it would be loaded there
  std::int64_t device = 0;
  double finish_ms = 0;  // the sum of the rest
  double wait_ms = 0;
  double load_ms = 0;
  double prefill_ms = 0;
  double decode_ms = 0;
  double harm_ms = 0;  // what its neighbours lose

  friend bool operator==(const WhyLine&, const WhyLine&) = default;
};
template <class V, Described<WhyLine> T>
void describe(V& v, T& value) {
  v("host", value.host);
  v("worker", value.worker, {.omit_empty = true});
  v("device", value.device);
  v("finish_ms", value.finish_ms, {.thousandths = true});
  v("wait_ms", value.wait_ms, {.thousandths = true});
  v("load_ms", value.load_ms, {.thousandths = true});
  v("prefill_ms", value.prefill_ms, {.thousandths = true});
  v("decode_ms", value.decode_ms, {.thousandths = true});
  v("harm_ms", value.harm_ms, {.thousandths = true});
}
// GET /v2/tasks.
inline constexpr std::array<std::string_view, 7> kTaskFilters = {
    "live", "queued", "dispatched", "running", "completed", "failed", "cancelled"};
struct TaskQuery {
  std::uint32_t limit = 100;
  std::optional<std::int64_t> after;  // what `next` of a page said
  std::string status;                 // empty: all
};
template <class V, Described<TaskQuery> T>
void describe(V& v, T& value) {
  v("limit", value.limit, {.min = 1, .max = 1000});
  v("after", value.after, {.min = 1, .doc = "What `next` of a page said."});
  v("status", value.status, {.names = kTaskFilters});
}
struct WhyRefusal {
  std::string reason;
  std::int64_t count = 0;
  std::vector<std::string> candidates;  // the first few of them: host and worker, or device

  friend bool operator==(const WhyRefusal&, const WhyRefusal&) = default;
};
template <class V, Described<WhyRefusal> T>
void describe(V& v, T& value) {
  v("reason", value.reason);
  v("count", value.count);
  v("candidates", value.candidates);
}
// What was thought when it was sent somewhere.
struct WhyDispatch {
  std::int64_t attempt = 0;
  std::string host;
  std::string worker;
  std::string at;
  std::string sheet;  // for people

  friend bool operator==(const WhyDispatch&, const WhyDispatch&) = default;
};
template <class V, Described<WhyDispatch> T>
void describe(V& v, T& value) {
  v("attempt", value.attempt);
  v("host", value.host);
  v("worker", value.worker);
  v("at", value.at);
  v("sheet", value.sheet);
}
struct WhyView {
  std::string job_id;
  std::string status;
  std::vector<WhyLine> candidates;  // of now; of a live job
  std::vector<WhyRefusal> refused;
  std::string sheet;  // the same for people
  std::vector<WhyDispatch> dispatches;

  friend bool operator==(const WhyView&, const WhyView&) = default;
};
template <class V, Described<WhyView> T>
void describe(V& v, T& value) {
  v("job_id", value.job_id);
  v("status", value.status, {.names = kTaskStates});
  v("candidates", value.candidates);
  v("refused", value.refused);
  v("sheet", value.sheet);
  v("dispatches", value.dispatches);
}

}  // namespace llorch::contract
