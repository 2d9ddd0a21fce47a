#include "orchestrator/answer_text.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "base/json.h"
#include "contract/error_table.h"
#include "contract/inference.h"
#include "openai/errors.h"
#include "orchestrator/frames.h"

namespace llorch::orchestrator {
namespace {

bool is_openai(const AnswerForm& form) {
  return form.kind != fleet::JobKind::Execute;
}

double thousandths(double value) {
  return std::round(value * 1000) / 1000;
}

std::string place(const fleet::HostId& host, const fleet::WorkerId& worker) {
  return host.empty() ? worker : host + "/" + worker;
}

}  // namespace

std::string id_line(const fleet::Position& position) {
  return "id: " + fleet::text(position) + "\n";
}

std::string notice_text(const AnswerForm& form, fleet::Holder holder,
                        const fleet::JobNotice& notice) {
  json::Object data;
  std::string_view event = "queued";
  switch (notice.kind) {
    case fleet::NoticeKind::Queued:
      data = {{"queue_position", notice.position}};
      if (notice.reason.empty()) {
        data["predicted_start_ms"] = thousandths(notice.eta_ms);
      } else {
        data["reason"] = notice.reason;
      }
      break;
    case fleet::NoticeKind::Loading:
      event = "loading";
      data = {{"predicted_start_ms", thousandths(notice.eta_ms)}};
      if (!notice.host.empty()) data["host"] = notice.host;
      if (!notice.stage.empty()) data["stage"] = notice.stage;
      if (notice.progress >= 0) data["progress"] = thousandths(notice.progress);
      break;
    case fleet::NoticeKind::Migrated:
      event = "migrated";
      data = {{"from", place(notice.from_host, notice.from_worker)},
              {"to", place(notice.host, notice.worker)},
              {"at_token", notice.at_token},
              {"gap_ms", thousandths(notice.gap_ms)},
              {"exact", notice.is_exact}};
      break;
    case fleet::NoticeKind::Ended:
      return {};
  }
  const std::string json = json::serialize(data);
  if (is_openai(form) && holder == fleet::Holder::Connection)
    return fmt::format(": {} {}\n\n", event, json);
  std::string text;
  append_event(event, json, text);
  return text;
}

std::string end_text_of(const AnswerForm& form, const fleet::EndedRecord& end,
                        const std::string& workers) {
  std::string text;
  if (end.state == fleet::JobState::Completed) {
    if (!workers.empty()) return workers;
    text = missing_end(form);
    if (!text.empty()) return text;
    const json::Object data{{"tokens_out", end.tokens_out},
                            {"decode_time_ms", 0},
                            {"stop_reason", end.stop_reason},
                            {"stop_sequence_matched", nullptr},
                            {"prompt_tokens", end.prompt_tokens}};
    append_event("end", json::serialize(data), text);
    return text;
  }
  const Error error{end.code, end.message};
  if (is_openai(form)) {
    append_event("", json::serialize(openai::error_json(error)), text);
  } else {
    append_event("error", json::serialize(contract::error_event_json(error)), text);
  }
  return text;
}

std::size_t find_end(std::string_view events) {
  std::size_t at = events.size();
  const auto block_before = [events](std::size_t end) {
    if (end < 3) return std::string_view::npos;
    const std::size_t mark = events.rfind("\n\n", end - 3);
    return mark == std::string_view::npos ? 0 : mark + 2;
  };
  const std::size_t last = block_before(at);
  if (last == std::string_view::npos) return at;
  const std::string_view block = events.substr(last);
  const bool is_end = block.starts_with("data: [DONE]") || block.starts_with("event: end\n") ||
                      block.find("\nevent: end\n") != std::string_view::npos;
  if (!is_end) return at;
  at = last;
  const std::size_t before = block.starts_with("data: [DONE]") ? block_before(at) : at;
  if (before < at &&
      events.substr(before, at - before).find(",\"choices\":[],") != std::string_view::npos)
    at = before;  // the usage
  return at;
}

void note_events(std::string_view events, AnswerProgress& progress) {
  FrameReader reader;
  std::vector<Frame> frames;
  if (!reader.feed(events, frames).ok()) return;
  for (const Frame& frame : frames) {
    const std::size_t at = frame.data.find(",\"choices\":[");
    if (at == std::string_view::npos) continue;
    const ChunkFacts facts = chunk_facts(frame.data.substr(at));
    if (!facts.choice || *facts.choice >= progress.has_begun.size()) continue;
    progress.has_begun[*facts.choice] = true;
    if (facts.finishes) progress.is_finished[*facts.choice] = true;
  }
}

std::string stop_reason_of(std::string_view end_text) {
  FrameReader reader;
  std::vector<Frame> frames;
  if (!reader.feed(end_text, frames).ok()) return {};
  for (const Frame& frame : frames) {
    if (frame.event != "end") continue;
    const Result<contract::InferenceResult> end = contract::parse_end_event(frame.data);
    if (end.ok()) return std::string(contract::name(end->stop_reason));
  }
  return "stop";
}

}  // namespace llorch::orchestrator
