// One job of the fleet as a command sees it: submitted, followed to its end, or cancelled. Private
// to cli/.
#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <string>

#include "base/result.h"
#include "cli/answer_printer.h"
#include "cli/fleet_client.h"
#include "contract/fleet_api.h"
#include "pool_client/ask_worker.h"

namespace llorch::cli {

struct FleetQuestion {
  pool_client::Question question;  // its uri is not used
  contract::TaskOptions options;   // kind follows from the question
};

// The body of POST /v2/tasks, and into `answer` what is known before anything has come.
json::Object task_body(const FleetQuestion& question, pool_client::Answer& answer);

// What is told about a job while it has not begun, or moves, for people.
struct JobNotice {
  std::string text;                // "queued, 3 before it, about 12 s"
  std::optional<double> progress;  // 0..1 where that is known
  bool has_moved = false;          // it goes on elsewhere
};
// Nothing for events that are part of the answer.
std::optional<JobNotice> read_notice(const http::SseEvent& event);

// The notice as a line of a terminal, with a bar where its progress is known.
std::string notice_line(const JobNotice& notice);

struct JobEars {
  pool_client::OnAnswerText on_text;
  std::function<void(const JobNotice& notice)> on_notice;
};

// Submits and returns the job. `word`: an Idempotency-Key; empty: none. Cancelled at once by
// `stop`; what was accepted all the same ends soon, because nobody follows it.
Result<contract::TaskAccepted> submit_job(const FleetClient& client, const json::Object& body,
                                          std::stop_token stop, const std::string& word = {});

// Follows a job from its beginning to its end and fills `answer` as far as it came. An error says
// what ended it; Cancelled after a stop, which cancels the job.
Status follow_job(const FleetClient& client, const std::string& job, const FleetQuestion& question,
                  const JobEars& ears, std::stop_token stop, pool_client::Answer& answer);

// Follows a job with its answer on standard output, where `print` says so, and on stderr a line
// with what it waits for.
Status follow_and_print(const FleetClient& client, const std::string& job,
                        const FleetQuestion& question, PrintOptions print, std::stop_token stop,
                        pool_client::Answer& answer);

// Submits and follows it.
Status ask_fleet_and_print(const FleetClient& client, const FleetQuestion& question,
                           PrintOptions print, std::stop_token stop, pool_client::Answer& answer);

// Whether a model cannot be talked to, only continued.
bool is_without_template(const Error& error);

// Ends a job and waits for its end.
Result<contract::TaskStopped> cancel_job(const FleetClient& client, const std::string& job,
                                         const pool_client::CallLimits& limits = {});

}  // namespace llorch::cli
