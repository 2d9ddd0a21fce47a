// POST /v1/embeddings. A few inputs compute at a time, so that a long list neither fills the
// engine's queue nor waits for it.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "worker_http/answers.h"
#include "worker_http/openai_endpoints.h"
#include "worker_http/openai_request.h"

namespace llorch::worker_http {
namespace {

constexpr std::size_t kAtOnce = 8;

struct EmbeddingEvent {
  std::size_t index = 0;
  Result<EmbeddingListener::Embedding> result = Error{};
};

// What the inputs of one request share: results on their way to the handler, tickets to give up.
struct EmbeddingJobs {
  explicit EmbeddingJobs(ServicePtr with) : service(std::move(with)) {}

  void abandon() {
    feed.close();
    for (const Ticket ticket : tickets) service->backend.abandon(ticket);
  }

  ServicePtr service;
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

std::string to_base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t word = 0;
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    for (std::size_t k = 0; k < 3; ++k)
      word = word << 8 | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    for (std::size_t k = 0; k < 4; ++k)
      out += k <= count ? kDigits[word >> (18 - 6 * k) & 63U] : '=';
  }
  return out;
}

json::Value vector_json(std::vector<float>& values, bool base64) {
  normalize(values);
  if (!base64) return json::Array(values.begin(), values.end());
  static_assert(std::endian::native == std::endian::little, "base64 vectors are little-endian");
  std::string bytes(values.size() * sizeof(float), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return json::Value(to_base64(bytes));
}

struct Parsed {
  std::optional<OpenAiEmbeddingRequest> request;
  http::Response refusal;
};

Parsed parse(const Service& service, const http::Request& request) {
  const Result<json::Object> body = parse_json_body(request);
  if (!body.ok()) return {{}, openai_error_response(body.error(), "")};
  std::vector<json::FieldError> errors;
  Result<OpenAiEmbeddingRequest> parsed = read_embedding_request(
      *body, {service.settings.max_choices, service.settings.max_embedding_inputs}, errors);
  if (!parsed.ok()) return {{}, openai_error_response(parsed.error(), errors)};
  if (const auto missing = check_model(service.backend, parsed->model))
    return {{}, openai_error_response(missing->error, missing->param, missing->code)};
  return {parsed.take(), {}};
}

Status submit_one(const std::shared_ptr<EmbeddingJobs>& jobs, const OpenAiEmbeddingRequest& request,
                  std::size_t index, std::chrono::steady_clock::time_point deadline) {
  EmbedRequest embed;
  embed.input = request.inputs[index];  // a copy: a full queue is asked again
  embed.deadline = deadline;
  const Result<Ticket> ticket =
      jobs->service->backend.embed(std::move(embed), std::make_shared<Listener>(jobs, index));
  if (!ticket.ok()) return ticket.error();
  jobs->tickets.push_back(*ticket);
  return ok_status();
}

struct Collected {
  std::vector<json::Value> vectors;
  std::int64_t prompt_tokens = 0;
};

http::Task<Result<Collected>> collect(std::shared_ptr<EmbeddingJobs> jobs,
                                      const OpenAiEmbeddingRequest& request,
                                      std::chrono::steady_clock::time_point deadline) {
  Collected collected;
  const std::size_t count = request.inputs.size();
  collected.vectors.resize(count);
  std::size_t submitted = 0;
  std::size_t done = 0;
  while (done < count) {
    while (submitted < count && submitted - done < kAtOnce) {
      const Status accepted = submit_one(jobs, request, submitted, deadline);
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
    collected.vectors[next.item->index] =
        vector_json(next.item->result.value().values, request.base64);
    collected.prompt_tokens += next.item->result.value().prompt_tokens;
    ++done;
  }
  co_return std::move(collected);
}

http::Response embedding_response(const Service& service, Collected collected) {
  json::Array data;
  for (std::size_t i = 0; i < collected.vectors.size(); ++i) {
    data.push_back(json::Object{
        {"object", "embedding"}, {"index", i}, {"embedding", std::move(collected.vectors[i])}});
  }
  return json_response(
      200, json::Object{{"object", "list"},
                        {"data", std::move(data)},
                        {"model", service.backend.model()->id},
                        {"usage", json::Object{{"prompt_tokens", collected.prompt_tokens},
                                               {"total_tokens", collected.prompt_tokens}}}});
}

}  // namespace

http::Task<Status> answer_embeddings(ServicePtr service, const http::Request& request,
                                     http::Responder& responder) {
  Parsed parsed = parse(*service, request);
  if (!parsed.request) co_return co_await responder.send(std::move(parsed.refusal));
  const auto jobs = std::make_shared<EmbeddingJobs>(service);
  responder.on_disconnect([jobs] { jobs->abandon(); });
  const auto deadline = deadline_of(*service, request);
  Result<Collected> collected = co_await collect(jobs, *parsed.request, deadline);
  jobs->abandon();
  http::Response response = collected.ok() ? embedding_response(*service, collected.take())
                                           : openai_error_response(collected.error(), "");
  co_return co_await responder.send(std::move(response));
}

}  // namespace llorch::worker_http
