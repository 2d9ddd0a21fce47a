// POST /v1/embeddings. A few inputs compute at a time, so that a long list neither fills the
// engine's queue nor waits for it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <variant>

#include "base/base64.h"
#include "openai/answer_objects.h"
#include "openai/request.h"
#include "worker_http/answers.h"
#include "worker_http/openai_endpoints.h"

namespace llorch::worker_http {
namespace {

constexpr std::size_t kAtOnce = 8;

struct EmbeddingEvent {
  std::size_t index = 0;
  Result<EmbeddingListener::Embedding> result = Error{};
};

// What the inputs of one request share: results on their way to the handler, tickets to give up.
struct EmbeddingJobs {
  explicit EmbeddingJobs(InferenceBackend& with) : backend(with) {}

  void abandon() {
    feed.close();
    for (const Ticket ticket : tickets) backend.abandon(ticket);
  }

  InferenceBackend& backend;
  http::EventFeed<EmbeddingEvent> feed{kAtOnce};
  std::vector<Ticket> tickets;  // the handler's strand only
};

class Listener final : public EmbeddingListener {
 public:
  Listener(std::shared_ptr<EmbeddingJobs> jobs, std::size_t index)
      : jobs_(std::move(jobs)), index_(index) {}

  void on_end(Result<Embedding> result) override {
    [[maybe_unused]] const bool heard = jobs_->feed.try_push({index_, std::move(result)});
    jobs_.reset();
  }

 private:
  std::shared_ptr<EmbeddingJobs> jobs_;
  const std::size_t index_;
};

// OpenAI's vectors have length 1.
void normalize(std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  if (sum <= 0) return;
  const double scale = 1 / std::sqrt(sum);
  for (float& value : values) value = static_cast<float>(value * scale);
}

// One vector as it is told: numbers, or their bytes in base64.
std::string embedding_text(std::size_t index, std::vector<float> values, bool base64) {
  normalize(values);
  openai::Embedding embedding;
  embedding.index = index;
  if (base64) {
    static_assert(std::endian::native == std::endian::little, "base64 vectors are little-endian");
    std::string bytes(values.size() * sizeof(float), '\0');
    std::memcpy(bytes.data(), values.data(), bytes.size());
    embedding.values = base::to_base64(bytes);
  } else {
    embedding.values = std::vector<double>(values.begin(), values.end());
  }
  return json::serialize(contract::write_fields(embedding));
}

// The inputs of a request, prepared, and how the vectors are wanted.
struct PreparedInputs {
  std::vector<PreparedPtr> inputs;
  bool base64 = false;
  std::optional<std::size_t> dimensions;
};
using InputsOutcome = std::variant<PreparedInputs, http::Response>;

// On a work thread.
InputsOutcome prepare_inputs(const Service& service, const RequestText& request,
                             const base::WorkLimit& limit) {
  const Result<json::Object> body = parse_json_body(request);
  if (!body.ok()) return openai_error_response(body.error(), "");
  std::vector<json::FieldError> errors;
  Result<openai::EmbeddingBody> parsed = openai::read_embedding_request(
      *body, {service.settings.max_choices, service.settings.max_embedding_inputs}, errors);
  if (!parsed.ok())
    return openai_error_response(parsed.error(), errors.empty() ? "" : errors[0].field);
  if (const auto missing = check_model(service.backend, parsed->model))
    return openai_error_response(missing->error, missing->param, missing->code);
  const auto width = static_cast<std::size_t>(service.backend.model()->embedding_width);
  if (parsed->dimensions && *parsed->dimensions > width) {
    return openai_error_response({ErrorCode::InvalidArgument,
                                  fmt::format("dimensions is {}, but this model's vectors have {}",
                                              *parsed->dimensions, width)},
                                 "dimensions");
  }
  PreparedInputs prepared{{}, parsed->base64, parsed->dimensions};
  for (auto& input : parsed->inputs) {
    EmbedRequest embed;
    embed.input = std::move(input);
    Preparation one = service.backend.prepare(embed, limit);
    if (const auto* refused = std::get_if<PrepareError>(&one)) {
      const bool too_long = refused->blame == PrepareError::Blame::Context;
      const bool is_input = too_long || refused->error.code == ErrorCode::InvalidArgument;
      return openai_error_response(refused->error, is_input ? "input" : "",
                                   too_long ? "context_length_exceeded" : "");
    }
    prepared.inputs.push_back(std::get<PreparedPtr>(std::move(one)));
  }
  return prepared;
}

Status submit_one(const std::shared_ptr<EmbeddingJobs>& jobs, const PreparedPtr& input,
                  std::size_t index, std::chrono::steady_clock::time_point deadline) {
  EmbedRequest embed;
  embed.prepared = input;
  embed.deadline = deadline;
  const Result<Ticket> ticket =
      jobs->backend.embed(std::move(embed), std::make_shared<Listener>(jobs, index));
  if (!ticket.ok()) return ticket.error();
  jobs->tickets.push_back(*ticket);
  return ok_status();
}

struct Collected {
  std::vector<std::vector<float>> vectors;
  std::int64_t prompt_tokens = 0;
};

http::Task<Result<Collected>> collect(std::shared_ptr<EmbeddingJobs> jobs,
                                      const std::vector<PreparedPtr>& inputs,
                                      std::chrono::steady_clock::time_point deadline) {
  Collected collected;
  const std::size_t count = inputs.size();
  collected.vectors.resize(count);
  std::size_t submitted = 0;
  std::size_t done = 0;
  while (done < count) {
    while (submitted < count && submitted - done < kAtOnce) {
      const Status accepted = submit_one(jobs, inputs[submitted], submitted, deadline);
      // A full queue is no failure while something of ours still runs: it makes room.
      if (!accepted.ok() && (accepted.error().code != ErrorCode::QueueFull || submitted == done))
        co_return accepted.error();
      if (!accepted.ok()) break;
      ++submitted;
    }
    auto next = co_await jobs->feed.next(std::chrono::hours(1));
    if (next.ended) co_return Error{ErrorCode::Cancelled, "the client is gone"};
    if (!next.item) continue;
    if (!next.item->result.ok()) co_return next.item->result.error();
    EmbeddingListener::Embedding& embedding = next.item->result.value();
    collected.prompt_tokens += embedding.prompt_tokens;
    collected.vectors[next.item->index] = std::move(embedding.values);
    ++done;
  }
  co_return std::move(collected);
}

// Each vector is written by itself: as one JSON value those of a full request take gigabytes.
http::Response embedding_response(const std::string& model, Collected& collected, bool base64,
                                  std::optional<std::size_t> dimensions) {
  const openai::EmbeddingList list{{}, model, {collected.prompt_tokens}};
  const std::string around = json::serialize(contract::write_fields(list));
  const std::size_t place = around.find("[]") + 1;  // of the data, in front of all other texts
  std::string body = around.substr(0, place);
  for (std::size_t i = 0; i < collected.vectors.size(); ++i) {
    std::vector<float> values = std::exchange(collected.vectors[i], {});
    if (dimensions && *dimensions < values.size()) values.resize(*dimensions);
    if (i > 0) body += ',';
    body += embedding_text(i, std::move(values), base64);
  }
  body += around.substr(place);
  return {200, "application/json", std::move(body)};
}

}  // namespace

http::Task<Status> answer_embeddings(ServicePtr service, const http::Request& request,
                                     http::Responder& responder) {
  RequestWork work(service, request, responder);
  std::function<Result<InputsOutcome>(const base::WorkLimit&)> prepare =
      [&with = *service, body = text_of(request)](const base::WorkLimit& limit) {
        return Result<InputsOutcome>(prepare_inputs(with, body, limit));
      };
  Result<InputsOutcome> outcome = co_await work.read<InputsOutcome>(std::move(prepare));
  if (!outcome.ok()) co_return outcome.error();
  if (auto* refusal = std::get_if<http::Response>(&*outcome))
    co_return co_await responder.send(std::move(*refusal));
  const PreparedInputs prepared = std::get<PreparedInputs>(outcome.take());
  const auto jobs = std::make_shared<EmbeddingJobs>(service->backend);
  responder.on_disconnect([jobs] { jobs->abandon(); });
  Result<Collected> collected = co_await collect(jobs, prepared.inputs, work.deadline());
  jobs->abandon();
  if (!collected.ok()) {
    http::Response failed = openai_error_response(collected.error(), "");
    co_return co_await responder.send(std::move(failed));
  }
  std::function<Result<http::Response>()> write =
      [model = service->backend.model()->id, base64 = prepared.base64,
       dimensions = prepared.dimensions, all = std::make_shared<Collected>(collected.take())] {
        return Result<http::Response>(embedding_response(model, *all, base64, dimensions));
      };
  Result<http::Response> response = co_await work.write<http::Response>(std::move(write));
  if (!response.ok()) co_return response.error();
  co_return co_await responder.send(response.take());
}

}  // namespace llorch::worker_http
