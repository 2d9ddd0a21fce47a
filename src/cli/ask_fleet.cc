#include "cli/ask_fleet.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/terminal.h"
#include "cli/fleet_tables.h"
#include "http/url.h"
#include "pool_client/answer_reader.h"

namespace llorch::cli {
namespace {

// Of a user who pressed Ctrl-C, with an orchestrator that may not answer at all.
constexpr std::chrono::milliseconds kCancelPatience{3'000};

std::string job_path(const std::string& job) {
  return "/v2/tasks/" + http::percent_encode(job);
}

std::optional<double> number_in(const json::Object& object, std::string_view field) {
  const json::Value* value = object.if_contains(field);
  if (value == nullptr || !value->is_number()) return std::nullopt;
  const double number = value->to_number<double>();
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

std::string text_in_object(const json::Object& object, std::string_view field) {
  const json::Value* value = object.if_contains(field);
  return value != nullptr && value->is_string() ? base::printable(json::view(value->get_string()))
                                                : std::string();
}

// ", about 12 s" where the time is known.
std::string eta_text(const json::Object& data) {
  const std::optional<double> eta = number_in(data, "predicted_start_ms");
  return eta && *eta >= 500 ? ", about " + duration_text(*eta / 1000) : "";
}

JobNotice queued_notice(const json::Object& data) {
  const double position = number_in(data, "queue_position").value_or(0);
  const std::string place =
      position > 0 ? ", " + queue_text(static_cast<std::int64_t>(std::min(position, 1e9))) : "";
  const std::string reason = text_in_object(data, "reason");
  return {.text = fmt::format("queued{}{}{}", place, eta_text(data),
                              reason.empty() ? "" : ", " + reason)};
}

JobNotice loading_notice(const json::Object& data) {
  const std::string stage = text_in_object(data, "stage");
  const std::string host = text_in_object(data, "host");
  JobNotice notice{.text = fmt::format("{}{}{}", stage.empty() ? "loading" : stage,
                                       host.empty() ? "" : " on " + host, eta_text(data))};
  if (const auto progress = number_in(data, "progress"); progress && *progress >= 0)
    notice.progress = *progress;
  return notice;
}

JobNotice migrated_notice(const json::Object& data) {
  const json::Value* exact = data.if_contains("exact");
  const bool is_exact = exact == nullptr || !exact->is_bool() || exact->get_bool();
  return {.text = fmt::format("{} was lost; goes on at {} after {:.0f} tokens, {:.0f} ms{}",
                              text_in_object(data, "from"), text_in_object(data, "to"),
                              number_in(data, "at_token").value_or(0),
                              number_in(data, "gap_ms").value_or(0),
                              is_exact ? "" : ", on another kind of device"),
          .has_moved = true};
}

}  // namespace

json::Object task_body(const FleetQuestion& question, pool_client::Answer& answer) {
  json::Object asked = pool_client::question_body(question.question, answer);
  contract::TaskOptions options = question.options;
  options.kind = answer.is_chat ? "chat" : "execute";
  json::Object body = contract::write_fields(options);
  for (const char* field : {"model", "host", "labels"}) {
    const json::Value& value = body.at(field);
    if (value == json::Value("") || (value.is_array() && value.get_array().empty()))
      body.erase(field);
  }
  if (answer.is_chat) {
    body.erase("model");
    asked["model"] = options.model;
    body["request"] = std::move(asked);
    return body;
  }
  asked.erase("job_id");
  for (auto& [name, value] : asked) body[name] = std::move(value);
  return body;
}

std::optional<JobNotice> read_notice(const http::SseEvent& event) {
  const bool is_notice =
      event.event == "queued" || event.event == "loading" || event.event == "migrated";
  if (!is_notice) return std::nullopt;
  const Result<json::Value> value = json::parse(event.data);
  const json::Object data = value.ok() && value->is_object() ? value->get_object() : json::Object();
  if (event.event == "queued") return queued_notice(data);
  return event.event == "loading" ? loading_notice(data) : migrated_notice(data);
}

std::string notice_line(const JobNotice& notice) {
  constexpr std::size_t kBarWidth = 20;
  constexpr std::size_t kLineBytes = 79;
  if (!notice.progress) return notice.text.substr(0, kLineBytes);
  return fmt::format("{} {:3.0f} %  {}", base::progress_bar(*notice.progress, kBarWidth),
                     *notice.progress * 100, notice.text);
}

Result<contract::TaskAccepted> submit_job(const FleetClient& client, const json::Object& body,
                                          std::stop_token stop, const std::string& word) {
  http::Headers headers;
  if (!word.empty()) headers.set("Idempotency-Key", word);
  return FleetClient::read<contract::TaskAccepted>(
      client.calls().post("/v2/tasks", body, {.stop = std::move(stop)}, headers));
}

Status follow_job(const FleetClient& client, const std::string& job, const FleetQuestion& question,
                  const JobEars& ears, std::stop_token stop, pool_client::Answer& answer) {
  pool_client::AnswerReader reader(question.question, ears.on_text, answer);
  Status followed = client.follow(
      job, "",
      [&](const http::SseEvent& event) {
        if (const auto notice = read_notice(event)) {
          ears.on_notice(*notice);
          return true;
        }
        const bool is_last = answer.is_chat && event.data == "[DONE]";
        if (!reader.take(event) || is_last) return false;
        return answer.is_chat || !reader.is_complete();
      },
      [&ears](const Error& why) {
        ears.on_notice({.text = "waiting for the orchestrator: " + why.message});
      },
      stop);
  if (stop.stop_requested()) {
    const Result<contract::TaskStopped> stopped =
        cancel_job(client, job, {.total = kCancelPatience});
    return Error{ErrorCode::Cancelled,
                 stopped.ok() ? fmt::format("{} was {} within {:.0f} ms", job, stopped->status,
                                            stopped->stop_ms)
                              : fmt::format("interrupted; {} could not be cancelled: {}", job,
                                            stopped.error().message)};
  }
  if (reader.error()) {
    // Nobody wants the rest: the job need not compute it.
    if (reader.error()->code == ErrorCode::Cancelled) std::ignore = cancel_job(client, job);
    return *reader.error();
  }
  return followed;
}

Status follow_and_print(const FleetClient& client, const std::string& job,
                        const FleetQuestion& question, PrintOptions print, std::stop_token stop,
                        pool_client::Answer& answer) {
  AnswerPrinter printer(std::move(print));
  base::StatusLine line(stderr);
  const JobEars ears{.on_text =
                         [&](std::string_view text, bool is_reasoning) {
                           line.clear();
                           return printer.show(text, is_reasoning);
                         },
                     .on_notice =
                         [&](const JobNotice& notice) {
                           if (printer.is_at_line_start()) line.show(notice_line(notice));
                         }};
  Status followed = follow_job(client, job, question, ears, std::move(stop), answer);
  line.clear();
  printer.finish();
  if (printer.is_writable()) return followed;
  return Error{ErrorCode::Internal, "the text could not be written to standard output"};
}

Status ask_fleet_and_print(const FleetClient& client, const FleetQuestion& question,
                           PrintOptions print, std::stop_token stop, pool_client::Answer& answer) {
  const Result<contract::TaskAccepted> accepted =
      submit_job(client, task_body(question, answer), stop);
  if (!accepted.ok()) return accepted.error();
  return follow_and_print(client, accepted->job_id, question, std::move(print), std::move(stop),
                          answer);
}

bool is_without_template(const Error& error) {
  return error.message.find("has no chat template") != std::string::npos;
}

Result<contract::TaskStopped> cancel_job(const FleetClient& client, const std::string& job,
                                         const pool_client::CallLimits& limits) {
  return client.remove<contract::TaskStopped>(job_path(job), limits);
}

}  // namespace llorch::cli
