#include "worker_http/openai_endpoints.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <array>
#include <utility>

#include "base/log.h"
#include "base/utf8.h"
#include "contract/error_table.h"
#include "http/sse.h"
#include "worker_http/answers.h"
#include "worker_http/openai_answer.h"
#include "worker_http/openai_request.h"

namespace llorch::worker_http {
namespace {

const base::Logger& logger() {
  static const base::Logger instance("worker_http");
  return instance;
}

std::string new_id(std::string_view prefix) {
  std::array<std::uint64_t, 2> words{};
  // 16 bytes never come short once the kernel's generator is up, and ids need not be secret.
  [[maybe_unused]] const ssize_t got = ::getrandom(words.data(), sizeof(words), 0);
  return fmt::format("{}-{:016x}{:016x}", prefix, words[0], words[1]);
}

std::int64_t epoch_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

json::Object model_json(const ModelInfo& model) {
  return {{"id", model.id},
          {"object", "model"},
          {"created", model.created},
          {"owned_by", "llama-orch"}};
}

http::Task<Status> send_refusal(ServicePtr service, http::Responder& responder, Refusal refusal) {
  service->metrics->count(outcome_of_refusal(refusal.error));
  http::Response response = openai_error_response(refusal.error, refusal.param, refusal.code);
  co_return co_await responder.send(std::move(response));
}

struct PreparedText {
  OpenAiTextRequest request;
  AnswerHead head;
  std::vector<std::string> echoes;  // one for each choice
};

// The text in front of each choice of a completion with echo.
Result<std::string> echo_of(const InferenceBackend& backend, const TextRequest::Prompt& prompt) {
  if (prompt.kind == TextRequest::Prompt::Kind::Ids) return backend.detokenize(prompt.ids);
  return prompt.text;
}

std::optional<Refusal> check_logit_bias(const InferenceBackend& backend,
                                        const TextRequest& request) {
  const std::int32_t size = backend.model()->vocab_size;
  for (const auto& [id, bias] : request.logit_bias) {
    if (id < size) continue;
    return Refusal{
        {ErrorCode::InvalidArgument,
         fmt::format("logit_bias names token {}, but the vocabulary ends at {}", id, size - 1)},
        "logit_bias",
        ""};
  }
  return std::nullopt;
}

std::optional<Refusal> render_prompt(const InferenceBackend& backend, OpenAiTextRequest& request) {
  if (!backend.model()->has_chat_template) {
    return Refusal{{ErrorCode::InvalidArgument,
                    "this model has no chat template, so messages have no defined form for it; use "
                    "/v1/completions with a prompt, or serve a model that was made for chat"},
                   "messages",
                   "no_chat_template"};
  }
  Result<TextRequest::Prompt> prompt = backend.render_chat(request.chat);
  if (!prompt.ok() && prompt.error().code == ErrorCode::Unavailable)
    return Refusal{prompt.error(), "", ""};
  if (!prompt.ok()) {
    // Whatever the template stumbles over, it was these messages.
    return Refusal{{ErrorCode::InvalidArgument,
                    "the model's chat template refused: " + prompt.error().message},
                   "messages",
                   ""};
  }
  request.prompts.push_back(prompt.take());
  return std::nullopt;
}

std::variant<PreparedText, Refusal> prepare(const Service& service, const http::Request& request,
                                            AnswerKind kind) {
  const Result<json::Object> body = parse_json_body(request);
  if (!body.ok()) return Refusal{body.error(), "", ""};
  std::vector<json::FieldError> errors;
  const OpenAiLimits limits{service.settings.max_choices, service.settings.max_embedding_inputs};
  Result<OpenAiTextRequest> parsed = kind == AnswerKind::Chat
                                         ? read_chat_request(*body, limits, errors)
                                         : read_completion_request(*body, limits, errors);
  if (!parsed.ok()) return Refusal{parsed.error(), errors.empty() ? "" : errors[0].field, ""};
  PreparedText prepared{parsed.take(), {}, {}};
  OpenAiTextRequest& text = prepared.request;
  if (auto refusal = check_model(service.backend, text.model)) return *refusal;
  if (auto refusal = check_logit_bias(service.backend, text.settings)) return *refusal;
  if (kind == AnswerKind::Chat) {
    if (auto refusal = render_prompt(service.backend, text)) return *refusal;
  }
  for (const TextRequest::Prompt& prompt : text.prompts) {
    Result<std::string> echo = text.echo ? echo_of(service.backend, prompt) : std::string();
    if (!echo.ok()) return Refusal{echo.error(), "prompt", ""};
    for (std::size_t k = 0; k < text.n; ++k) prepared.echoes.push_back(*echo);
  }
  prepared.head = {.kind = kind,
                   .id = new_id(kind == AnswerKind::Chat ? "chatcmpl" : "cmpl"),
                   .created = epoch_seconds(),
                   .model = service.backend.model()->id,
                   .include_usage = text.include_usage,
                   .with_logprobs = text.settings.top_logprobs.has_value(),
                   .choices_per_prompt = text.n};
  return prepared;
}

// Choice k of a prompt draws with its own seed, else all would be the same.
TextRequest request_of_choice(const PreparedText& prepared, std::size_t choice) {
  const OpenAiTextRequest& text = prepared.request;
  TextRequest request = text.settings;
  request.prompt = text.prompts[choice / text.n];
  request.job_id = prepared.echoes.size() == 1 ? prepared.head.id
                                               : fmt::format("{}-{}", prepared.head.id, choice);
  if (request.sampling.seed) *request.sampling.seed += choice % text.n;
  return request;
}

Status submit_all(const Service& service, const http::Request& request,
                  const PreparedText& prepared, Generations& generations) {
  const auto deadline = deadline_of(service, request);
  for (std::size_t i = 0; i < prepared.echoes.size(); ++i) {
    TextRequest choice = request_of_choice(prepared, i);
    choice.deadline = deadline;
    if (Status submitted = generations.submit(std::move(choice)); !submitted.ok()) return submitted;
  }
  return ok_status();
}

http::Response submit_failure(const Error& error, AnswerKind kind) {
  if (error.code == ErrorCode::Unsupported)  // a schema that we cannot hold the output to
    return openai_error_response({ErrorCode::InvalidArgument, error.message}, "response_format");
  if (error.code != ErrorCode::InvalidArgument) return openai_error_response(error, "");
  return openai_error_response(error, kind == AnswerKind::Chat ? "messages" : "prompt");
}

std::string data_line(std::string_view json) {
  return http::format_event("", json);
}

http::Task<Status> stream_answer(ServicePtr service, http::Responder& responder,
                                 Generations& generations, OpenAiAnswer& answer) {
  http::Headers headers;
  headers.add("Cache-Control", "no-store");
  Result<http::Stream> stream =
      co_await responder.open_stream(200, std::string(http::kEventStreamType), std::move(headers));
  if (!stream.ok()) co_return stream.error();
  while (!answer.is_complete() && !answer.failure()) {
    const JobFeed::Next next = co_await generations.feed().next(service->settings.keep_alive);
    if (next.ended) co_return Error{ErrorCode::Cancelled, "the client is gone"};
    std::string text;
    if (next.item) {
      for (const std::string& chunk : answer.chunks(*next.item)) text += data_line(chunk);
    } else {
      text = http::kKeepAliveComment;
    }
    if (text.empty()) continue;
    Status written = co_await stream->write(text);
    if (!written.ok()) co_return written;
  }
  std::string last;
  if (answer.failure()) {
    last = data_line(json::serialize(openai_error_json(*answer.failure())));
  } else {
    if (const auto usage = answer.usage_chunk()) last = data_line(*usage);
    last += data_line("[DONE]");
  }
  co_return co_await stream->write(last);
}

http::Task<Status> send_whole(ServicePtr service, http::Responder& responder,
                              Generations& generations, OpenAiAnswer& answer) {
  while (!answer.is_complete() && !answer.failure()) {
    JobFeed::Next next = co_await generations.feed().next(service->settings.keep_alive);
    if (next.ended) co_return Error{ErrorCode::Cancelled, "the client is gone"};
    if (next.item) answer.take(std::move(*next.item));
  }
  http::Response response = answer.failure() ? openai_error_response(*answer.failure(), "")
                                             : json_response(200, answer.whole());
  co_return co_await responder.send(std::move(response));
}

http::Task<Status> answer_text(ServicePtr service, const http::Request& request,
                               http::Responder& responder, AnswerKind kind) {
  std::variant<PreparedText, Refusal> prepared = prepare(*service, request, kind);
  if (auto* refusal = std::get_if<Refusal>(&prepared))
    co_return co_await send_refusal(service, responder, std::move(*refusal));
  PreparedText& text = std::get<PreparedText>(prepared);
  Generations generations(service, text.echoes.size());
  const Status submitted = submit_all(*service, request, text, generations);
  if (!submitted.ok()) {
    http::Response response = submit_failure(submitted.error(), kind);
    co_return co_await responder.send(std::move(response));
  }
  generations.abandon_on_disconnect(responder);
  const std::string id = text.head.id;
  OpenAiAnswer answer(std::move(text.head), std::move(text.echoes));
  Status done = ok_status();
  if (text.request.stream) {
    done = co_await stream_answer(service, responder, generations, answer);
  } else {
    done = co_await send_whole(service, responder, generations, answer);
  }
  const std::string_view outcome =
      answer.failure() ? contract::error_row(answer.failure()->code).wire
                       : (done.ok() ? std::string_view("done") : std::string_view("client gone"));
  logger().info("answer ended", {{"job_id", id},
                                 {"correlation_id", request.correlation_id},
                                 {"outcome", outcome},
                                 {"tokens_out", answer.tokens_out()}});
  co_return done;
}

}  // namespace

http::Task<Status> list_models(ServicePtr service, const http::Request&,
                               http::Responder& responder) {
  json::Array data;
  if (const ModelInfo* model = service->backend.model()) data.push_back(model_json(*model));
  http::Response response =
      json_response(200, json::Object{{"object", "list"}, {"data", std::move(data)}});
  co_return co_await responder.send(std::move(response));
}

http::Task<Status> show_model(ServicePtr service, const http::Request& request,
                              http::Responder& responder) {
  const std::optional<Refusal> refusal =
      check_model(service->backend, request.path_params.at("model"));
  http::Response response =
      refusal ? openai_error_response(refusal->error, refusal->param, refusal->code)
              : json_response(200, model_json(*service->backend.model()));
  co_return co_await responder.send(std::move(response));
}

http::Task<Status> answer_completion(ServicePtr service, const http::Request& request,
                                     http::Responder& responder) {
  return answer_text(std::move(service), request, responder, AnswerKind::Completion);
}

http::Task<Status> answer_chat(ServicePtr service, const http::Request& request,
                               http::Responder& responder) {
  return answer_text(std::move(service), request, responder, AnswerKind::Chat);
}

}  // namespace llorch::worker_http
