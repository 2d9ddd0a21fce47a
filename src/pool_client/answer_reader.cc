#include "pool_client/answer_reader.h"

#include <random>
#include <string>
#include <utility>

#include "contract/error_table.h"

namespace llorch::pool_client {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kChoicesMax = 128;
constexpr std::string_view kContextOverflow = "context_length_exceeded";

double milliseconds_between(Clock::time_point start, Clock::time_point end) {
  return std::chrono::duration<double, std::milli>(end - start).count();
}

const json::Value* member(const json::Value* value, std::string_view name) {
  const json::Object* object = value != nullptr ? value->if_object() : nullptr;
  return object != nullptr ? object->if_contains(name) : nullptr;
}

std::string text_of(const json::Value* value) {
  const auto* text = value != nullptr ? value->if_string() : nullptr;
  return text != nullptr ? std::string(text->data(), text->size()) : std::string();
}

std::int64_t count_of(const json::Value* value) {
  return value != nullptr && value->is_int64() ? value->get_int64() : 0;
}

json::Object execute_body(const Question& question) {
  contract::InferenceRequest body;
  body.job_id = question.job_id;
  body.prompt = question.prompt;
  body.sampling = question.sampling;
  return contract::to_json(body);
}

// Only what differs from the worker's own defaults, so that any OpenAI-compatible worker
// understands it. The seed is drawn here where none is wanted, so that it can be told.
json::Object chat_body(const Question& question, Answer& answer) {
  const contract::SamplingConfig& sampling = question.sampling;
  answer.numbers.seed = sampling.seed.value_or(std::random_device()());
  json::Array messages;
  for (const ChatMessage& message : question.messages)
    messages.push_back(json::Object{{"role", message.role}, {"content", message.content}});
  json::Object body{{"messages", std::move(messages)},
                    {"temperature", sampling.temperature},
                    {"top_p", sampling.top_p},
                    {"seed", static_cast<std::int64_t>(answer.numbers.seed)},
                    {"stream", true},
                    {"stream_options", json::Object{{"include_usage", true}}}};
  const contract::SamplingConfig plain;
  if (sampling.top_k != plain.top_k) body["top_k"] = sampling.top_k;
  if (sampling.min_p != plain.min_p) body["min_p"] = sampling.min_p;
  if (sampling.repetition_penalty != plain.repetition_penalty)
    body["repetition_penalty"] = sampling.repetition_penalty;
  if (sampling.max_tokens) body["max_completion_tokens"] = *sampling.max_tokens;
  json::Array stop;
  for (const std::string& text : sampling.stop) stop.emplace_back(text);
  if (!stop.empty()) body["stop"] = std::move(stop);
  return body;
}

}  // namespace

Error read_openai_error(const json::Value& error) {
  const std::string code = text_of(member(&error, "code"));
  std::string message = text_of(member(&error, "message"));
  if (message.empty()) message = "the worker refused and did not say why";
  if (code == kContextOverflow) return {ErrorCode::TooLarge, std::move(message)};
  return {ErrorCode::InvalidArgument, std::move(message)};
}

json::Object question_body(const Question& question, Answer& answer) {
  answer = Answer{};
  answer.is_chat = !question.messages.empty();
  return answer.is_chat ? chat_body(question, answer) : execute_body(question);
}

bool AnswerReader::take(const http::SseEvent& event) {
  // A chunk has no name; an error that ends a task has one.
  const bool is_chunk = answer_.is_chat && event.event == "message";
  return is_chunk ? take_chunk(event.data) : take_event(event);
}

bool AnswerReader::fail(Error error) {
  error_ = std::move(error);
  return false;
}

bool AnswerReader::add_text(std::string_view text, bool is_reasoning) {
  if (text.empty()) return true;
  (is_reasoning ? answer_.reasoning : answer_.text) += text;
  return on_text_(text, is_reasoning) ||
         fail({ErrorCode::Cancelled, "the rest of the answer was not wanted"});
}

// An event of POST /execute.
bool AnswerReader::take_event(const http::SseEvent& event) {
  if (event.event == "started") {
    Result<contract::StartedEvent> started = contract::parse_started_event(event.data);
    if (!started.ok()) return fail(started.error());
    answer_.model = started->model;
  } else if (event.event == "token") {
    const Result<contract::TokenEvent> token = contract::parse_token_event(event.data);
    if (!token.ok()) return fail(token.error());
    return add_text(token->text, false);
  } else if (event.event == "end") {
    Result<contract::InferenceResult> end = contract::parse_end_event(event.data);
    if (!end.ok()) return fail(end.error());
    answer_.numbers = end.take();
    answer_.stop_reason = contract::name(answer_.numbers.stop_reason);
    is_complete_ = true;
  } else if (event.event == "error") {
    return fail(contract::parse_error_event(event.data));
  }
  return true;
}

// A chunk of OpenAI's endpoints. Fields that we do not know are others' business.
bool AnswerReader::take_chunk(std::string_view data) {
  if (data == "[DONE]") return true;
  Result<json::Value> chunk = json::parse(data);
  if (!chunk.ok()) return fail(chunk.error().in("the worker's answer"));
  if (const json::Value* error = member(&*chunk, "error")) return fail(read_openai_error(*error));
  if (answer_.model.empty()) answer_.model = text_of(member(&*chunk, "model"));
  if (const json::Value* usage = member(&*chunk, "usage"); usage != nullptr) {
    answer_.numbers.prompt_tokens = count_of(member(usage, "prompt_tokens"));
    answer_.numbers.tokens_out = count_of(member(usage, "completion_tokens"));
  }
  const json::Value* choices = member(&*chunk, "choices");
  if (choices == nullptr || !choices->is_array() || choices->get_array().empty()) return true;
  for (const json::Value& choice : choices->get_array()) {
    if (!take_choice(choice)) return false;
  }
  return true;
}

bool AnswerReader::take_choice(const json::Value& choice) {
  const json::Value* delta = member(&choice, "delta");
  const std::string thought = text_of(member(delta, "reasoning_content"));
  // The text of a completion stands in the choice itself.
  const std::string text =
      text_of(delta != nullptr ? member(delta, "content") : member(&choice, "text"));
  if (const std::int64_t index = count_of(member(&choice, "index")); index > 0) {
    const auto other = static_cast<std::size_t>(index - 1);
    if (other >= kChoicesMax) return true;
    if (answer_.others.size() <= other) answer_.others.resize(other + 1);
    answer_.others[other] += text;
    return true;
  }
  const Clock::time_point now = Clock::now();
  if (!first_text_ && !(thought.empty() && text.empty())) {
    first_text_ = now;
    answer_.numbers.ttft_ms = milliseconds_between(asked_, now);
  }
  if (first_text_) {
    answer_.numbers.decode_time_ms =
        static_cast<std::int64_t>(milliseconds_between(*first_text_, now));
  }
  if (!add_text(thought, true) || !add_text(text, false)) return false;
  if (const std::string reason = text_of(member(&choice, "finish_reason")); !reason.empty()) {
    is_complete_ = true;
    answer_.stop_reason = stop_reason_of(reason);
  }
  return true;
}

// OpenAI's word does not tell a stop text from the model's own end.
std::string AnswerReader::stop_reason_of(const std::string& finish_reason) const {
  if (finish_reason == "length") return "max_tokens";
  if (finish_reason == "stop" && question_.sampling.stop.empty()) return "eos";
  return finish_reason;
}

}  // namespace llorch::pool_client
