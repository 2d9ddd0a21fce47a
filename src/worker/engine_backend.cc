#include "worker/engine_backend.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <ctime>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/utf8.h"
#include "worker/encode_prompt.h"
#include "worker/json_constraint.h"
#include "worker/text_sink.h"
#include "worker/told.h"

namespace llorch::worker {
namespace {

using worker_http::TextRequest;
using worker_http::Ticket;

// Below this the arithmetic of 32 bits leaves no order between logits: they become infinite.
constexpr float kLeastRepetitionPenalty = 1e-6F;

// A seed that nobody asked for: small enough for every JSON reader to keep exactly.
std::uint64_t draw_seed() {
  std::uint64_t seed = 0;
  [[maybe_unused]] const ssize_t got = ::getrandom(&seed, sizeof(seed), 0);
  return seed >> 11;
}

using worker_http::Preparation;
using worker_http::PrepareError;
using Blame = PrepareError::Blame;

// What the generations of a request share, and what is needed to make each.
struct Prepared final : worker_http::PreparedRequest {
  std::int64_t prompt_tokens() const override { return static_cast<std::int64_t>(prompt.size()); }

  std::vector<engine::TokenId> prompt;
  bool came_as_ids = false;
  std::int32_t max_tokens = 0;
  GrammarPtr grammar;
};

// How many tokens may come; with both counts when they do not fit.
std::variant<std::int32_t, PrepareError> fit_max_tokens(const TextRequest& request,
                                                        std::size_t prompt_tokens,
                                                        std::int32_t context) {
  const std::int64_t left = std::int64_t{context} - static_cast<std::int64_t>(prompt_tokens);
  const std::optional<std::int32_t>& wanted = request.sampling.max_tokens;
  if (left < (wanted == 0 ? 0 : 1)) {
    return too_long(
        fmt::format("the prompt has {} tokens, but the context holds {}{}; shorten the "
                    "prompt",
                    prompt_tokens, context,
                    wanted == 0 ? "" : " and at least one must be left for the answer"));
  }
  if (!wanted || (request.shorten_to_fit && *wanted > left)) return static_cast<std::int32_t>(left);
  if (*wanted <= left) return *wanted;
  return too_long(fmt::format(
      "the prompt has {} tokens and max_tokens is {}: together {}, but the "
      "context holds {}; shorten the prompt or ask for at most {} tokens",
      prompt_tokens, *wanted, static_cast<std::int64_t>(prompt_tokens) + *wanted, context, left));
}

// Before the prompt is read: more than the context was never going to fit.
std::optional<PrepareError> check_max_tokens(const TextRequest& request, std::int32_t context) {
  const std::optional<std::int32_t>& wanted = request.sampling.max_tokens;
  if (!wanted || *wanted <= context || request.shorten_to_fit) return std::nullopt;
  return PrepareError{{ErrorCode::InvalidArgument,
                       fmt::format("max_tokens is {}, but the context holds {} tokens, the "
                                   "prompt's among them",
                                   *wanted, context)},
                      Blame::MaxTokens};
}

engine::SamplingParams sampling_of(const TextRequest& request, std::uint64_t seed) {
  const contract::SamplingConfig& config = request.sampling;
  engine::SamplingParams params;
  params.temperature = config.temperature;
  params.top_k = config.top_k;
  params.top_p = config.top_p;
  params.min_p = config.min_p;
  params.repetition_penalty = std::max(config.repetition_penalty, kLeastRepetitionPenalty);
  params.frequency_penalty = request.frequency_penalty;
  params.presence_penalty = request.presence_penalty;
  params.logit_bias = request.logit_bias;
  params.seed = seed;
  params.top_logprobs = request.top_logprobs;
  return params;
}

engine::GenerationRequest to_generation(const ServingModel& model, const TextRequest& request,
                                        const Prepared& prepared, std::uint64_t seed) {
  engine::GenerationRequest generation;
  generation.prompt = prepared.prompt;
  generation.max_tokens = prepared.max_tokens;
  generation.told = request.told;
  generation.end_ids.assign(model.tokenizer->end_ids().begin(), model.tokenizer->end_ids().end());
  generation.sampling = sampling_of(request, seed);
  generation.constraint = make_constraint(prepared.grammar, model);
  generation.score_prompt = request.score_prompt && request.told.empty();
  generation.deadline = request.deadline;
  return generation;
}

TextSinkContext sink_context(const ServingModel& model, const TextRequest& request,
                             const Prepared& prepared, std::uint64_t seed) {
  return {.job_id = request.job_id,
          .model = model.info.id,
          .seed = seed,
          .prompt_tokens = prepared.prompt_tokens(),
          .stop = request.sampling.stop,
          .with_logprobs = request.top_logprobs.has_value(),
          .score_prompt = request.score_prompt && request.told.empty(),
          .prompt_shows_special = prepared.came_as_ids,
          .markers = request.shows_markers ? model.marker_ids : std::vector<engine::TokenId>(),
          .arrived = request.arrived};
}

// An answer that was whole before it came here: nothing is computed.
struct WholeAnswer {
  std::shared_ptr<TextSink> sink;
  engine::GenerationEnd end;

  void tell() const {
    sink->on_started({});
    sink->on_finished(end);
  }
};

class EmbeddingSink final : public engine::EmbeddingSink {
 public:
  EmbeddingSink(std::int64_t prompt_tokens,
                std::shared_ptr<worker_http::EmbeddingListener> listener)
      : prompt_tokens_(prompt_tokens), listener_(std::move(listener)) {}

  void on_finished(Result<std::vector<float>> embedding) override {
    if (!embedding.ok()) return listener_->on_end(embedding.error());
    worker_http::EmbeddingListener::Embedding out;
    out.values = embedding.take();
    out.prompt_tokens = prompt_tokens_;
    listener_->on_end(std::move(out));
  }

 private:
  const std::int64_t prompt_tokens_;
  const std::shared_ptr<worker_http::EmbeddingListener> listener_;
};

std::chrono::local_seconds local_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::localtime_r(&now, &parts);
  return std::chrono::local_seconds(std::chrono::seconds(now + parts.tm_gmtoff));
}

}  // namespace

std::string describe_hang(const engine::EngineStats& stats, engine::Clock::time_point now,
                          std::chrono::milliseconds step_limit) {
  if (stats.step_began_at == engine::Clock::time_point{}) return "";
  const auto running =
      std::chrono::duration_cast<std::chrono::milliseconds>(now - stats.step_began_at);
  if (running <= step_limit) return "";
  return fmt::format(
      "one step has been computing for {} s, expected at most {} s: restart the worker",
      running.count() / 1000, step_limit.count() / 1000);
}

EngineBackend::EngineBackend(std::function<void(Patience)> on_shutdown,
                             std::chrono::milliseconds step_limit)
    : on_shutdown_(std::move(on_shutdown)), step_limit_(step_limit) {}

EngineBackend::~EngineBackend() {
  stop();
}

void EngineBackend::set_model(std::unique_ptr<ServingModel> model) {
  CHECK(owned_ == nullptr, "a worker has one model");
  owned_ = std::move(model);
  model_.store(owned_.get());
  progress_.store(1);
}

void EngineBackend::set_ready() {
  State expected = State::Loading;
  state_.compare_exchange_strong(expected, State::Healthy);  // a drain that began stays
}

void EngineBackend::begin_drain() {
  state_.store(State::Draining);
}

bool EngineBackend::is_idle() const {
  const ServingModel* model = model_.load();
  if (model == nullptr) return true;
  const engine::EngineStats stats = model->engine->stats();
  return stats.running == 0 && stats.waiting == 0 && jobs_->num_active() == 0;
}

void EngineBackend::stop() {
  begin_drain();
  if (model_.load() != nullptr) owned_->engine->stop();
}

worker_http::LoadStatus EngineBackend::status() const {
  const State state = state_.load();
  if (const ServingModel* model = model_.load(); model != nullptr && state == State::Healthy) {
    std::string hang = describe_hang(model->engine->stats(), engine::Clock::now(), step_limit_);
    if (!hang.empty()) return {State::Unhealthy, progress_.load(), std::move(hang)};
  }
  return {state, progress_.load(), ""};
}

worker_http::WorkerStats EngineBackend::stats() const {
  const auto now = std::chrono::steady_clock::now();
  worker_http::WorkerStats out;
  out.uptime_seconds = std::chrono::duration<double>(now - since_).count();
  const ServingModel* model = model_.load();
  if (model == nullptr) return out;
  const engine::EngineStats stats = model->engine->stats();
  out.queue_depth = stats.waiting;
  out.slots_total = stats.max_running;
  out.slots_busy = stats.running;
  out.kv_blocks_total = stats.blocks_total;
  out.kv_blocks_free = stats.blocks_free;
  out.prompt_tokens_total = stats.prompt_tokens;
  out.cached_tokens_total = stats.cached_tokens;
  out.output_tokens_total = stats.output_tokens;
  out.steps_total = stats.steps;
  out.preemptions_total = stats.preemptions;
  out.decode_tokens_per_second = stats.decode_tokens_per_second;
  if (stats.last_token_at != engine::Clock::time_point{}) {
    const auto age = now - stats.last_token_at;
    out.last_token_age_ms = std::chrono::duration_cast<std::chrono::milliseconds>(age).count();
  }
  return out;
}

const worker_http::ModelInfo* EngineBackend::model() const {
  const ServingModel* model = model_.load();
  return model != nullptr ? &model->info : nullptr;
}

std::vector<base::GpuReading> EngineBackend::read_gpus() const {
  std::vector<base::GpuReading> readings;
  const ServingModel* model = model_.load();
  if (model == nullptr || model->nvml == nullptr) return readings;
  for (const std::string& bus_id : model->gpu_bus_ids) {
    Result<base::GpuReading> reading = model->nvml->read_at(bus_id);
    if (reading.ok()) readings.push_back(reading.take());
  }
  return readings;
}

Result<const ServingModel*> EngineBackend::loaded_model() const {
  const ServingModel* model = model_.load();
  if (model != nullptr) return model;
  return Error{
      ErrorCode::Unavailable,
      fmt::format("the model is still loading ({:.0f} %); GET /health says when it is ready",
                  progress_.load() * 100)};
}

Result<const ServingModel*> EngineBackend::accepting_model() const {
  if (state_.load() == State::Draining) {
    return Error{ErrorCode::Unavailable, "this worker is shutting down; ask another one"};
  }
  return loaded_model();
}

Preparation EngineBackend::prepare(const TextRequest& request, const base::WorkLimit& limit) const {
  const Result<const ServingModel*> found = accepting_model();
  if (!found.ok()) return PrepareError{found.error()};
  const ServingModel& model = **found;
  const std::int32_t context = model.engine->max_sequence_tokens();
  if (auto refused = check_max_tokens(request, context)) return std::move(*refused);
  auto prepared = std::make_shared<Prepared>();
  // The format first: a schema is smaller than the text that a refusal would waste.
  Result<GrammarPtr> grammar = compile_format(request.format, model);
  if (!grammar.ok()) return PrepareError{grammar.error(), Blame::Format};
  prepared->grammar = grammar.take();
  auto ids = encode_prompt(model, request.prompt, limit);
  if (auto* refused = std::get_if<PrepareError>(&ids)) return std::move(*refused);
  prepared->prompt = std::get<0>(std::move(ids));
  prepared->came_as_ids = request.prompt.kind == TextRequest::Prompt::Kind::Ids;
  auto max_tokens = fit_max_tokens(request, prepared->prompt.size(), context);
  if (auto* refused = std::get_if<PrepareError>(&max_tokens)) return std::move(*refused);
  prepared->max_tokens = std::get<0>(max_tokens);
  if (const Status goes_on = limit.check(); !goes_on.ok()) return PrepareError{goes_on.error()};
  return prepared;
}

Preparation EngineBackend::prepare(const worker_http::EmbedRequest& request,
                                   const base::WorkLimit& limit) const {
  const Result<const ServingModel*> model = accepting_model();
  if (!model.ok()) return PrepareError{model.error()};
  TextRequest::Prompt prompt;
  if (const auto* text = std::get_if<std::string>(&request.input)) {
    prompt.text = *text;
  } else {
    prompt.kind = TextRequest::Prompt::Kind::Ids;
    prompt.ids = std::get<std::vector<std::int32_t>>(request.input);
  }
  auto ids = encode_prompt(**model, prompt, limit);
  if (auto* refused = std::get_if<PrepareError>(&ids)) return std::move(*refused);
  auto prepared = std::make_shared<Prepared>();
  prepared->prompt = std::get<0>(std::move(ids));
  const std::int32_t context = (*model)->engine->max_sequence_tokens();
  if (prepared->prompt.size() <= static_cast<std::size_t>(context)) return prepared;
  return too_long(fmt::format("the input has {} tokens, but the context holds {}; shorten it",
                              prepared->prompt.size(), context));
}

std::optional<PrepareError> EngineBackend::check_told(const TextRequest& request,
                                                      const base::WorkLimit& limit) const {
  const Result<const ServingModel*> model = accepting_model();
  if (!model.ok()) return PrepareError{model.error()};
  CHECK(request.prepared != nullptr, "a request is prepared before what it was told is looked at");
  const auto& prepared = static_cast<const Prepared&>(*request.prepared);
  return worker::check_told(**model, request.told,
                            {prepared.max_tokens, prepared.grammar, prepared.prompt},
                            sink_context(**model, request, prepared, 0), limit);
}

Result<std::vector<Ticket>> EngineBackend::submit(
    std::vector<worker_http::Submission> submissions) {
  const Result<const ServingModel*> found = accepting_model();
  if (!found.ok()) return found.error();
  const ServingModel& model = **found;
  std::vector<JobTable::Use> uses;     // of all
  std::vector<JobTable::Use> running;  // of those that the engine gets
  const auto withdraw = [&](const Error& error) {
    for (const JobTable::Use use : uses) jobs_->withdraw(use);
    return error;
  };
  std::vector<engine::Engine::Submission> generations;
  generations.reserve(submissions.size());
  std::vector<WholeAnswer> whole;
  for (worker_http::Submission& submission : submissions) {
    TextRequest& request = submission.request;
    CHECK(request.prepared != nullptr, "a request is prepared before it is submitted");
    const auto& prepared = static_cast<const Prepared&>(*request.prepared);
    const Result<JobTable::Use> use = jobs_->begin(request.job_id);
    if (!use.ok()) return withdraw(use.error());
    uses.push_back(*use);
    const std::uint64_t seed = request.sampling.seed ? *request.sampling.seed : draw_seed();
    TextSinkContext context = sink_context(model, request, prepared, seed);
    const auto output = told_output(model, request.told);
    context.told.assign(output.begin(), output.end());
    auto sink = std::make_shared<TextSink>(std::move(context), *model.tokenizer, prepared.prompt,
                                           std::move(submission.listener));
    sink->set_job(jobs_, *use);
    if (const auto end = told_end(model, request.told, prepared.max_tokens, *sink)) {
      whole.push_back({std::move(sink),
                       {.reason = *end,
                        .tokens_out = static_cast<std::int32_t>(output.size()),
                        .prompt_tokens = static_cast<std::int32_t>(prepared.prompt.size())}});
      continue;
    }
    running.push_back(*use);
    generations.push_back({to_generation(model, request, prepared, seed), std::move(sink)});
  }
  Result<std::vector<engine::GenerationId>> ids = model.engine->submit(std::move(generations));
  if (!ids.ok()) return withdraw(ids.error());
  for (std::size_t i = 0; i < running.size(); ++i) {
    if (jobs_->bind(running[i], (*ids)[i])) model.engine->cancel((*ids)[i]);
  }
  for (const WholeAnswer& answer : whole) answer.tell();
  return ids.take();
}

Result<Ticket> EngineBackend::embed(worker_http::EmbedRequest request,
                                    std::shared_ptr<worker_http::EmbeddingListener> listener) {
  const Result<const ServingModel*> model = accepting_model();
  if (!model.ok()) return model.error();
  CHECK(request.prepared != nullptr, "a request is prepared before it is submitted");
  engine::EmbeddingRequest embedding;
  embedding.deadline = request.deadline;
  embedding.prompt = static_cast<const Prepared&>(*request.prepared).prompt;
  auto sink = std::make_shared<EmbeddingSink>(static_cast<std::int64_t>(embedding.prompt.size()),
                                              std::move(listener));
  const Result<engine::GenerationId> id =
      (*model)->engine->submit(std::move(embedding), std::move(sink));
  if (!id.ok()) return id.error();
  return Ticket{*id};
}

void EngineBackend::abandon(Ticket ticket) {
  if (const ServingModel* model = model_.load()) model->engine->cancel(ticket);
}

Status EngineBackend::cancel(std::string_view job_id) {
  const Result<std::optional<std::uint64_t>> generation = jobs_->cancel(job_id);
  if (!generation.ok()) return generation.error();
  if (*generation) abandon(**generation);
  return ok_status();
}

Result<TextRequest::Prompt> EngineBackend::render_chat(const json::Object& context,
                                                       const base::WorkLimit& limit) const {
  const Result<const ServingModel*> model = accepting_model();
  if (!model.ok()) return model.error();
  const bool with_tools = context.contains("tools") && (*model)->chat_with_tools;
  const auto& chat = with_tools ? (*model)->chat_with_tools : (*model)->chat;
  if (!chat) return Error{ErrorCode::InvalidArgument, "this model has no chat template"};
  if (const Status goes_on = limit.check(); !goes_on.ok()) return goes_on.error();
  jinja::RenderOptions options;
  options.special_tokens = {{"bos_token", (*model)->bos_token}, {"eos_token", (*model)->eos_token}};
  options.now = local_now();
  options.limit = per_text(limit);
  // Far more than any real template takes, far less than what a thread could be kept busy with.
  options.limits.max_steps = 8'000'000;
  options.limits.max_output_bytes = std::size_t{8} << 20;
  options.limits.max_work_bytes = std::size_t{64} << 20;
  Result<jinja::MarkedText> rendered = chat->render(context, options);
  if (!rendered.ok()) return rendered.error();
  TextRequest::Prompt prompt;
  prompt.kind = TextRequest::Prompt::Kind::Rendered;
  prompt.text = std::move(rendered->text);
  prompt.template_spans = std::move(rendered->own);
  return prompt;
}

Result<worker_http::TokenizedText> EngineBackend::tokenize(std::string_view text, bool add_special,
                                                           bool parse_special,
                                                           const base::WorkLimit& limit) const {
  const Result<const ServingModel*> model = loaded_model();
  if (!model.ok()) return model.error();
  Result<std::vector<engine::TokenId>> ids = (*model)->tokenizer->encode(
      text, {.add_special = add_special, .parse_special = parse_special, .limit = per_text(limit)});
  if (!ids.ok()) return ids.error();
  if (const Status goes_on = limit.check(); !goes_on.ok()) return goes_on.error();
  worker_http::TokenizedText out;
  for (const engine::TokenId id : *ids)
    out.pieces.push_back(base::to_valid_utf8((*model)->texts->shown[static_cast<std::size_t>(id)]));
  out.ids = ids.take();
  return out;
}

Result<std::string> EngineBackend::detokenize(const std::vector<std::int32_t>& ids) const {
  const Result<const ServingModel*> model = loaded_model();
  if (!model.ok()) return model.error();
  const std::int32_t size = (*model)->tokenizer->vocab_size();
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= size) {
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("there is no token {}: expected 0 to {}", id, size - 1)};
    }
  }
  return (*model)->tokenizer->decode(ids, {.keep_special = true});
}

}  // namespace llorch::worker
