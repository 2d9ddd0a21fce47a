#include "orchestrator/answer_reader.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/json.h"
#include "contract/error_table.h"
#include "contract/inference.h"

namespace llorch::orchestrator {
namespace {

constexpr std::string_view kDone = "[DONE]";
constexpr std::string_view kNoUsage = ",\"usage\":null";

std::uint32_t count_of(const json::Object& object, std::string_view name) {
  const json::Value* value = object.if_contains(name);
  const std::int64_t* count = value == nullptr ? nullptr : value->if_int64();
  return count == nullptr || *count < 0 ? 0 : static_cast<std::uint32_t>(*count);
}

// OpenAI's names for the ends that all workers share.
std::string finish_reason_of(std::string_view rest) {
  constexpr std::string_view kName = "\"finish_reason\":\"";
  const std::size_t at = rest.find(kName);
  if (at == std::string_view::npos) return {};
  rest.remove_prefix(at + kName.size());
  return std::string(rest.substr(0, rest.find('"')));
}

// Workers are always asked for the usage; where the client was not, its place is taken out.
void cut_usage(std::string& chunk) {
  const std::size_t tail = chunk.rfind(kNoUsage);
  if (tail == std::string::npos) return;
  const std::string_view behind = std::string_view(chunk).substr(tail + kNoUsage.size());
  if (behind == "}" || behind.starts_with(",\"llorch\":{")) chunk.erase(tail, kNoUsage.size());
}

// The data of `started`: the worker knows the attempt by a name that nobody else does.
std::string with_job_id(std::string_view data, std::string_view theirs, std::string_view ours) {
  std::string text(data);
  const std::string member = "\"job_id\":\"" + std::string(theirs) + "\"";
  const std::size_t at = text.find(member);
  if (ours.empty() || at == std::string::npos) return text;
  text.replace(at, member.size(), "\"job_id\":\"" + std::string(ours) + "\"");
  return text;
}

}  // namespace

std::uint32_t embedding_tokens(std::string_view body) {
  // The usage is the last member; vectors of megabytes come before it.
  constexpr std::string_view kName = "\"prompt_tokens\":";
  const std::size_t at = body.rfind(kName);
  if (at == std::string_view::npos) return 0;
  const std::string_view digits = body.substr(at + kName.size());
  std::uint32_t count = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), count);
  return count;
}

Error openai_failure(std::string_view body) {
  const Result<json::Value> parsed = json::parse(body);
  const json::Object* outer = parsed.ok() ? parsed->if_object() : nullptr;
  const json::Value* inner = outer == nullptr ? nullptr : outer->if_contains("error");
  const json::Object* error = inner == nullptr ? nullptr : inner->if_object();
  if (error == nullptr) return {ErrorCode::Corrupt, "a worker answered with something else"};
  const auto text_of = [error](std::string_view name) {
    const json::Value* value = error->if_contains(name);
    const boost::json::string* text = value == nullptr ? nullptr : value->if_string();
    return text == nullptr ? std::string() : std::string(json::view(*text));
  };
  Error failure{ErrorCode::Internal, text_of("message")};
  const std::optional<ErrorCode> code = contract::error_code_from_wire(text_of("code"));
  if (code) {
    failure.code = *code;
  } else if (text_of("type") == "invalid_request_error") {
    failure.code = ErrorCode::InvalidArgument;
  }
  return failure;
}

void append_event(std::string_view event, std::string_view data, std::string& text) {
  if (!event.empty()) {
    text += "event: ";
    text += event;
    text += '\n';
  }
  text += "data: ";
  text += data;
  text += "\n\n";
}

std::string missing_end(const AnswerForm& form) {
  std::string text;
  if (form.kind != fleet::JobKind::Execute) append_event("", kDone, text);
  return text;
}

AnswerReader::AnswerReader(AnswerForm form, AnswerProgress told)
    : form_(std::move(form)), told_(std::move(told)), head_(form_.head) {
  told_.has_begun.resize(form_.choices);
  told_.is_finished.resize(form_.choices);
}

bool AnswerReader::is_finished() const {
  return std::all_of(told_.is_finished.begin(), told_.is_finished.end(),
                     [](bool is) { return is; });
}

void AnswerReader::hold(std::string_view event, std::string_view data) {
  held_at_ = held_.size();
  append_event(event, data, held_);
}

void AnswerReader::give(std::uint32_t choice, std::vector<std::int32_t> ids,
                        std::vector<AnswerStep>& steps) {
  steps.push_back({choice, std::move(ids), std::exchange(held_, {}), std::exchange(held_at_, 0)});
}

Status AnswerReader::feed(std::string_view bytes, std::vector<AnswerStep>& steps) {
  new_frames_.clear();
  Status framed = frames_.feed(bytes, new_frames_);
  if (frames_.is_odd()) facts_.odd_events += new_frames_.size();
  for (const Frame& frame : new_frames_) {
    if (state_ != State::Open) return ok_status();  // what follows an end is nobody's
    Status taken =
        form_.kind == fleet::JobKind::Execute ? take_event(frame, steps) : take_chunk(frame, steps);
    if (!taken.ok()) return taken;
  }
  return framed;
}

Status AnswerReader::take_event(const Frame& frame, std::vector<AnswerStep>& steps) {
  if (frame.event == "started") {
    const Result<contract::StartedEvent> started = contract::parse_started_event(frame.data);
    if (!started.ok()) return started.error();
    facts_.has_started = true;
    facts_.prompt_tokens = static_cast<std::uint32_t>(started->prompt_tokens);
    facts_.cached_tokens = static_cast<std::uint32_t>(started->cached_tokens);
    if (std::exchange(told_.has_started, true)) return ok_status();
    hold(frame.event, with_job_id(frame.data, started->job_id, form_.job_id));
    give(0, {}, steps);
    return ok_status();
  }
  if (frame.event == "error") {
    take_failure(frame.data);
    return ok_status();
  }
  std::vector<std::int32_t> ids;
  const Result<TappedData> tapped = tap_ids(frame.data, TailForm::Execute, ids);
  if (!tapped.ok()) return tapped.error();
  facts_.odd_events += tapped->was_odd ? 1U : 0U;
  if (frame.event == "end") {
    const Result<contract::InferenceResult> result = contract::parse_end_event(frame.data);
    if (!result.ok()) return result.error();
    facts_.prompt_tokens = static_cast<std::uint32_t>(result->prompt_tokens);
    facts_.prefill_ms = result->prefill_ms;
    facts_.decode_ms = static_cast<double>(result->decode_time_ms);
    facts_.stop_reason = contract::name(result->stop_reason);
    append_event(frame.event, frame.data, end_text_);
    told_.is_finished[0] = true;
    state_ = State::Whole;
    if (!ids.empty() || !held_.empty()) give(0, std::move(ids), steps);
    return ok_status();
  }
  hold(frame.event, frame.data);
  if (!ids.empty()) give(0, std::move(ids), steps);
  return ok_status();
}

void AnswerReader::take_failure(std::string_view data) {
  state_ = State::Failed;
  error_ = contract::parse_error_event(data);
  is_retriable_ = contract::error_row(error_.code).retriable;
  const Result<json::Value> parsed = json::parse(data);
  if (!parsed.ok() || !parsed->is_object()) return;
  const json::Value* word = parsed->get_object().if_contains("retriable");
  if (word != nullptr && word->is_bool()) is_retriable_ = word->get_bool();
}

Status AnswerReader::take_chunk(const Frame& frame, std::vector<AnswerStep>& steps) {
  facts_.has_started = true;
  if (frame.data == kDone) {
    state_ = State::Whole;
    append_event("", kDone, end_text_);
    if (!held_.empty()) give(0, {}, steps);
    return ok_status();
  }
  std::vector<std::int32_t> ids;
  const Result<TappedData> tapped = tap_ids(frame.data, TailForm::OpenAi, ids);
  if (!tapped.ok()) return tapped.error();
  facts_.odd_events += tapped->was_odd ? 1U : 0U;
  const std::string without_ids = tapped->text();
  const std::optional<HeadSwap::Swapped> swapped =
      head_.swap(form_.keeps_ids ? frame.data : std::string_view(without_ids));
  if (!swapped) {
    error_ = openai_failure(frame.data);
    if (error_.code == ErrorCode::Corrupt) return error_;
    is_retriable_ = contract::error_row(error_.code).retriable;
    state_ = State::Failed;
    return ok_status();
  }
  std::string text(swapped->head);
  text += swapped->rest;
  const ChunkFacts facts = chunk_facts(swapped->rest);
  if (!facts.choice) {
    take_usage(without_ids, text);
    return ok_status();
  }
  if (*facts.choice >= form_.choices)
    return Error{ErrorCode::Corrupt, "a worker answered with more choices than were asked for"};
  if (!form_.keeps_usage) cut_usage(text);
  // What another attempt has told already.
  const bool is_repeated =
      (facts.is_role && told_.has_begun[*facts.choice]) || told_.is_finished[*facts.choice];
  told_.has_begun[*facts.choice] = true;
  if (is_repeated) return ok_status();
  hold(frame.event, text);
  if (facts.finishes) {
    told_.is_finished[*facts.choice] = true;
    facts_.stop_reason = finish_reason_of(swapped->rest);
  }
  if (!ids.empty() || facts.finishes) give(*facts.choice, std::move(ids), steps);
  return ok_status();
}

void AnswerReader::take_usage(std::string_view data, std::string_view text) {
  if (form_.keeps_usage) append_event("", text, end_text_);
  const Result<json::Value> parsed = json::parse(data);
  if (!parsed.ok() || !parsed->is_object()) return;
  const json::Value* usage = parsed->get_object().if_contains("usage");
  if (usage == nullptr || !usage->is_object()) return;
  facts_.prompt_tokens = count_of(usage->get_object(), "prompt_tokens");
  const json::Value* details = usage->get_object().if_contains("prompt_tokens_details");
  if (details != nullptr && details->is_object())
    facts_.cached_tokens = count_of(details->get_object(), "cached_tokens");
}

}  // namespace llorch::orchestrator
