#include "worker_http/openai_endpoints.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <array>
#include <functional>
#include <memory>
#include <utility>
#include <variant>

#include "base/digest.h"
#include "base/log.h"
#include "base/utf8.h"
#include "contract/error_table.h"
#include "http/sse.h"
#include "openai/answer.h"
#include "openai/errors.h"
#include "openai/request.h"
#include "worker_http/answers.h"

namespace llorch::worker_http {
namespace {

using openai::AnswerKind;
using openai::TextBody;

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

// A request that was read, prepared and accepted: its choices run or wait.
struct AcceptedText {
  std::string id;
  bool stream = false;
  std::shared_ptr<openai::Answer> answer;
  std::unique_ptr<Generations> generations;
};
using TextOutcome = std::variant<AcceptedText, Refusal>;

// The text in front of each choice of a completion with echo.
Result<std::string> echo_of(const InferenceBackend& backend, const TextRequest::Prompt& prompt) {
  if (prompt.kind == TextRequest::Prompt::Kind::Ids) return backend.detokenize(prompt.ids);
  return prompt.text;
}

std::optional<Refusal> check_logit_bias(const InferenceBackend& backend,
                                        const openai::GenerationSettings& request) {
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

std::optional<Refusal> render_prompt(const InferenceBackend& backend, TextBody& request,
                                     const base::WorkLimit& limit) {
  if (!backend.model()->has_chat_template) {
    return Refusal{{ErrorCode::InvalidArgument,
                    "this model has no chat template, so messages have no defined form for it; use "
                    "/v1/completions with a prompt, or start the worker with --chat-template"},
                   "messages",
                   "no_chat_template"};
  }
  const AnswerStyle& style = backend.model()->style;
  const auto render = [&](openai::DescribeIn where) {
    return backend.render_chat(openai::adapt_chat(request.chat, style, request.tools, where),
                               limit);
  };
  Result<TextRequest::Prompt> prompt = render(openai::DescribeIn::SystemMessage);
  // Some templates have no system messages.
  const bool tries_again = !prompt.ok() && prompt.error().code != ErrorCode::Unavailable &&
                           openai::needs_description(style, request.tools) && !limit.is_over();
  if (tries_again) prompt = render(openai::DescribeIn::FirstUserMessage);
  // Ours, or nobody waits; anything else the template stumbles over is the messages' fault.
  if (!prompt.ok() && (prompt.error().code == ErrorCode::Unavailable || limit.is_over()))
    return Refusal{prompt.error(), "", ""};
  if (!prompt.ok()) {
    return Refusal{{ErrorCode::InvalidArgument,
                    "the model's chat template refused: " + prompt.error().message},
                   "messages",
                   ""};
  }
  const bool is_constrained = request.settings.format.kind != OutputFormat::Kind::Text;
  openai::AnswerPlan plan = openai::plan_answer(style, request.tools, prompt->text, is_constrained);
  if (!plan.prompt_end.empty()) {
    const std::size_t begin = prompt->text.size();
    prompt->text += plan.prompt_end;
    prompt->template_spans.push_back({begin, prompt->text.size()});
  }
  if (plan.format) request.settings.format = std::move(*plan.format);
  request.settings.shows_markers = plan.shows_markers;
  request.parser = std::move(plan.parser);
  request.prompts.push_back(prompt.take());
  return std::nullopt;
}

// The body as a request for the model that is here; chat messages are rendered.
std::variant<TextBody, Refusal> read_request(const Service& service, const RequestText& request,
                                             AnswerKind kind, const base::WorkLimit& limit) {
  const Result<json::Object> body = parse_json_body(request);
  if (!body.ok()) return Refusal{body.error(), "", ""};
  std::vector<json::FieldError> errors;
  const openai::BodyLimits limits{service.settings.max_choices,
                                  service.settings.max_embedding_inputs};
  Result<TextBody> parsed = kind == AnswerKind::Chat
                                ? openai::read_chat_request(*body, limits, errors)
                                : openai::read_completion_request(*body, limits, errors);
  if (!parsed.ok()) return Refusal{parsed.error(), errors.empty() ? "" : errors[0].field, ""};
  if (auto refusal = check_model(service.backend, parsed->model)) return *refusal;
  if (auto refusal = check_logit_bias(service.backend, parsed->settings)) return *refusal;
  const bool fills = !parsed->prompts.empty() && parsed->prompts[0].suffix;
  if (fills && !service.backend.model()->fills_in_middle) {
    return Refusal{{ErrorCode::InvalidArgument,
                    "suffix: this model has no fill-in-the-middle tokens, so it cannot write "
                    "what stands before a text; leave the suffix out or serve a code model"},
                   "suffix",
                   ""};
  }
  if (kind == AnswerKind::Chat) {
    if (auto refusal = render_prompt(service.backend, *parsed, limit)) return *refusal;
  }
  return parsed.take();
}

Refusal refusal_of(const PrepareError& refused, AnswerKind kind, const TextBody& request) {
  using Blame = PrepareError::Blame;
  switch (refused.blame) {
    case Blame::Context:
      return {refused.error, kind == AnswerKind::Chat ? "messages" : "prompt",
              "context_length_exceeded"};
    case Blame::MaxTokens:
      return {refused.error, request.max_tokens_field, ""};
    case Blame::Format:
      return {refused.error, request.tools.is_forced() ? "tools" : "response_format", ""};
    case Blame::Told:
      return {refused.error, "llorch.resume_ids", ""};
    case Blame::Other:
      break;
  }
  const bool is_prompt = refused.error.code == ErrorCode::InvalidArgument;
  return {refused.error, is_prompt ? (kind == AnswerKind::Chat ? "messages" : "prompt") : "", ""};
}

// One request for each choice: those of a prompt share what was prepared of it, and each draws with
// its own seed, else all would be the same.
std::variant<std::vector<TextRequest>, Refusal> prepare_choices(const Service& service,
                                                                TextBody& request, AnswerKind kind,
                                                                const std::string& id,
                                                                TextRequest times,
                                                                const base::WorkLimit& limit) {
  std::vector<TextRequest> choices;
  const std::size_t count = request.prompts.size() * request.n;
  choices.reserve(count);
  TextRequest whole = std::move(times);
  static_cast<openai::GenerationSettings&>(whole) = request.settings;
  for (TextRequest::Prompt& prompt : request.prompts) {
    whole.prompt = std::move(prompt);
    Preparation prepared = service.backend.prepare(whole, limit);
    if (const auto* refused = std::get_if<PrepareError>(&prepared))
      return refusal_of(*refused, kind, request);
    TextRequest choice = whole;
    choice.prompt = {};
    choice.format = {};
    choice.prepared = std::get<PreparedPtr>(std::move(prepared));
    for (std::size_t k = 0; k < request.n; ++k) {
      choices.push_back(choice);
      TextRequest& added = choices.back();
      added.job_id = count == 1 ? id : fmt::format("{}-{}", id, choices.size() - 1);
      if (added.sampling.seed) *added.sampling.seed += k;
      if (!request.resume_ids) continue;
      added.told = std::move((*request.resume_ids)[choices.size() - 1]);
      if (added.told.empty()) continue;
      if (const auto refused = service.backend.check_told(added, limit))
        return refusal_of(*refused, kind, request);
    }
  }
  return choices;
}

// Nothing is to be written: only the prompts are counted.
void end_at_once(Generations& generations, const std::vector<TextRequest>& requests) {
  for (std::size_t i = 0; i < requests.size(); ++i) {
    contract::StartedEvent started;
    started.prompt_tokens = requests[i].prepared->prompt_tokens();
    contract::InferenceResult result;
    result.stop_reason = contract::StopReason::MaxTokens;
    result.prompt_tokens = started.prompt_tokens;
    const std::shared_ptr<TextListener> listener = generations.feed().make_listener(i);
    listener->on_started(started);
    listener->on_end(result);
  }
}

// The same for the same request with the same seed; empty without one.
std::string call_source_of(const TextBody& request) {
  const std::optional<std::uint64_t>& seed = request.settings.sampling.seed;
  if (!seed || request.prompts.empty()) return {};
  return base::sha256_hex(fmt::format("{} {}", *seed, request.prompts[0].text));
}

// A whole answer has the log-probabilities of all its tokens; those of what was said elsewhere are
// not known here.
std::optional<Refusal> check_resumed(const TextBody& request) {
  const bool is_possible = !request.resume_ids || request.stream || !request.settings.top_logprobs;
  if (is_possible) return std::nullopt;
  return Refusal{{ErrorCode::InvalidArgument,
                  "llorch.resume_ids with logprobs needs stream: the log-probabilities of what was "
                  "said before are known where it was said"},
                 "llorch.resume_ids",
                 ""};
}

// All of a request up to its places in the queue; on a work thread.
TextOutcome accept_text(const Service& service, const RequestText& body, AnswerKind kind,
                        TextRequest times, const base::WorkLimit& limit) {
  auto read = read_request(service, body, kind, limit);
  if (auto* refusal = std::get_if<Refusal>(&read)) return std::move(*refusal);
  auto& request = std::get<TextBody>(read);
  if (auto refusal = check_resumed(request)) return *refusal;
  std::vector<std::string> echoes;
  for (const TextRequest::Prompt& prompt : request.prompts) {
    Result<std::string> echo = request.echo ? echo_of(service.backend, prompt) : std::string();
    if (!echo.ok()) return Refusal{echo.error(), "prompt", ""};
    for (std::size_t k = 0; k < request.n; ++k) echoes.push_back(*echo);
  }
  openai::AnswerHead head{.kind = kind,
                          .id = new_id(kind == AnswerKind::Chat ? "chatcmpl" : "cmpl"),
                          .created = epoch_seconds(),
                          .model = service.backend.model()->id,
                          .include_usage = request.include_usage,
                          .with_logprobs = request.settings.top_logprobs.has_value(),
                          .scores_prompt = request.settings.score_prompt,
                          .choices_per_prompt = request.n,
                          .parser = std::move(request.parser)};
  head.with_ids = body.wants_ids && request.stream;
  head.call_source = call_source_of(request);
  auto choices = prepare_choices(service, request, kind, head.id, std::move(times), limit);
  if (auto* refusal = std::get_if<Refusal>(&choices)) return std::move(*refusal);
  AcceptedText accepted{head.id, request.stream, nullptr,
                        std::make_unique<Generations>(service, echoes.size())};
  auto& requests = std::get<std::vector<TextRequest>>(choices);
  const openai::GenerationSettings& settings = request.settings;
  const bool is_empty = settings.sampling.max_tokens == 0 && !settings.score_prompt;
  if (is_empty) end_at_once(*accepted.generations, requests);
  std::vector<std::size_t> resumed;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (!requests[i].told.empty()) resumed.push_back(i);
  }
  const Status submitted =
      is_empty ? ok_status() : accepted.generations->submit(std::move(requests));
  if (!submitted.ok()) {
    const bool too_many = submitted.error().code == ErrorCode::InvalidArgument;
    return Refusal{submitted.error(), too_many ? "n" : "", ""};
  }
  accepted.answer = std::make_shared<openai::Answer>(std::move(head), std::move(echoes));
  for (const std::size_t choice : resumed) accepted.answer->set_resumed(choice);
  return accepted;
}

std::string data_line(std::string_view json) {
  return http::format_event("", json);
}

// Tokens whose report takes a noticeable time to write down, or to read again.
constexpr std::int64_t kLargeAnswerTokens = 256;

// What was told before may be as long as the context.
bool is_long_to_read(const JobEvent& event) {
  const auto* told = std::get_if<openai::ToldText>(&event.what);
  return told != nullptr && std::ssize(told->pieces) > kLargeAnswerTokens;
}

using Chunks = std::vector<std::string>;

// Beside the io threads; none where the answer is to be whole.
http::Task<Result<Chunks>> read_told(RequestWork& work, std::shared_ptr<openai::Answer> answer,
                                     JobEvent event, bool streams) {
  const auto told = std::make_shared<JobEvent>(std::move(event));
  std::function<Result<Chunks>()> read = [answer, told, streams] {
    if (streams) return Result<Chunks>(answer->chunks(std::move(*told)));
    answer->take(std::move(*told));
    return Result<Chunks>(Chunks());
  };
  return work.write<Chunks>(std::move(read));
}

http::Task<Status> stream_answer(ServicePtr service, http::Responder& responder, RequestWork& work,
                                 Generations& generations, std::shared_ptr<openai::Answer> shared) {
  openai::Answer& answer = *shared;
  http::Headers headers;
  headers.add("Cache-Control", "no-store");
  Result<http::Stream> stream =
      co_await responder.open_stream(200, std::string(http::kEventStreamType), std::move(headers));
  if (!stream.ok()) co_return stream.error();
  while (!answer.is_complete() && !answer.failure()) {
    JobFeed::Next next = co_await generations.feed().next(service->settings.keep_alive);
    if (next.ended) co_return Error{ErrorCode::Cancelled, "the client is gone"};
    std::string text;
    if (next.item && is_long_to_read(*next.item)) {
      const Result<Chunks> chunks =
          co_await read_told(work, shared, std::move(*next.item), /*streams=*/true);
      if (!chunks.ok()) co_return chunks.error();
      for (const std::string& chunk : *chunks) text += data_line(chunk);
    } else if (next.item) {
      for (const std::string& chunk : answer.chunks(std::move(*next.item)))
        text += data_line(chunk);
    } else {
      text = http::kKeepAliveComment;
    }
    if (text.empty()) continue;
    Status written = co_await stream->write(text);
    if (!written.ok()) co_return written;
  }
  std::string last;
  if (answer.failure()) {
    last = data_line(json::serialize(openai::error_json(*answer.failure())));
  } else {
    if (const auto usage = answer.usage_chunk()) last = data_line(*usage);
    last += data_line("[DONE]");
  }
  co_return co_await stream->write(last);
}

http::Task<Status> send_whole(ServicePtr service, http::Responder& responder, RequestWork& work,
                              Generations& generations, std::shared_ptr<openai::Answer> answer) {
  while (!answer->is_complete() && !answer->failure()) {
    JobFeed::Next next = co_await generations.feed().next(service->settings.keep_alive);
    if (next.ended) co_return Error{ErrorCode::Cancelled, "the client is gone"};
    if (next.item && is_long_to_read(*next.item)) {
      const Result<Chunks> read =
          co_await read_told(work, answer, std::move(*next.item), /*streams=*/false);
      if (!read.ok()) co_return read.error();
    } else if (next.item) {
      answer->take(std::move(*next.item));
    }
  }
  if (answer->failure()) {
    http::Response failed = openai_error_response(*answer->failure(), "");
    co_return co_await responder.send(std::move(failed));
  }
  std::function<Result<http::Response>()> write = [answer] {
    return Result<http::Response>(json_response(200, answer->whole()));
  };
  Result<http::Response> response = Error{};
  if (answer->tokens_out() <= kLargeAnswerTokens) {
    response = write();
  } else {
    response = co_await work.write<http::Response>(std::move(write));
  }
  if (!response.ok()) co_return response.error();
  co_return co_await responder.send(response.take());
}

http::Task<Status> answer_text(ServicePtr service, const http::Request& request,
                               http::Responder& responder, AnswerKind kind) {
  RequestWork work(service, request, responder);
  TextRequest times;
  times.arrived = work.arrived();
  times.deadline = work.deadline();
  std::function<Result<TextOutcome>(const base::WorkLimit&)> accept =
      [&with = *service, body = text_of(request), kind, times](const base::WorkLimit& limit) {
        return Result<TextOutcome>(accept_text(with, body, kind, times, limit));
      };
  Result<TextOutcome> outcome = co_await work.read<TextOutcome>(std::move(accept));
  if (!outcome.ok()) co_return outcome.error();
  if (auto* refusal = std::get_if<Refusal>(&*outcome)) {
    service->metrics->count(outcome_of_refusal(refusal->error));
    http::Response response = openai_error_response(refusal->error, refusal->param, refusal->code);
    co_return co_await responder.send(std::move(response));
  }
  const AcceptedText text = std::get<AcceptedText>(outcome.take());
  text.generations->abandon_on_disconnect(responder);
  openai::Answer& answer = *text.answer;
  Status done = ok_status();
  if (text.stream) {
    done = co_await stream_answer(service, responder, work, *text.generations, text.answer);
  } else {
    done = co_await send_whole(service, responder, work, *text.generations, text.answer);
  }
  const std::string_view outcome_name =
      answer.failure() ? contract::error_row(answer.failure()->code).wire
                       : (done.ok() ? std::string_view("done") : std::string_view("client gone"));
  logger().info("answer ended", {{"job_id", text.id},
                                 {"correlation_id", request.correlation_id},
                                 {"outcome", outcome_name},
                                 {"tokens_out", answer.tokens_out()}});
  co_return done;
}

}  // namespace

http::Task<Status> list_models(ServicePtr service, const http::Request&,
                               http::Responder& responder) {
  openai::ModelList list;
  if (const ModelInfo* model = service->backend.model()) {
    list.data.push_back({model->id, model->created});
    for (const std::string& alias : model->aliases) list.data.push_back({alias, model->created});
  }
  http::Response response = json_response(200, contract::write_fields(list));
  co_return co_await responder.send(std::move(response));
}

http::Task<Status> show_model(ServicePtr service, const http::Request& request,
                              http::Responder& responder) {
  const std::string& name = request.path_params.at("model");
  const std::optional<Refusal> refusal = check_model(service->backend, name);
  if (refusal) {
    http::Response response = openai_error_response(refusal->error, refusal->param, refusal->code);
    co_return co_await responder.send(std::move(response));
  }
  const openai::Model model{name, service->backend.model()->created};
  http::Response response = json_response(200, contract::write_fields(model));
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
