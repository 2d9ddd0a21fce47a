#include "orchestrator/task_request.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "contract/fleet_api.h"
#include "contract/inference.h"
#include "contract/pool_state.h"
#include "contract/request_body.h"
#include "fleet/prefix_table.h"
#include "openai/request.h"

namespace llorch::orchestrator {
namespace {

using fleet::JobKind;

constexpr double kBytesPerToken = 4;  // until the worker has counted
constexpr std::size_t kIdempotencyBytesMax = 256;

std::uint32_t guess_tokens(std::size_t bytes) {
  return static_cast<std::uint32_t>(static_cast<double>(bytes) / kBytesPerToken) + 1;
}

// What makes a submission of an /execute.
struct ExecutePart {
  std::string body;
  std::string prompt;
  std::uint32_t prompt_tokens = 0;
  std::optional<std::uint64_t> seed;
  std::uint32_t max_tokens = 0;
};

// The fields of the body that are not the task's own, as /execute takes them.
Result<ExecutePart> read_execute(const json::Object& body, const json::Object& options,
                                 std::vector<json::FieldError>& errors) {
  json::Object rest;
  for (const auto& [name, value] : body) {
    if (!options.contains(name)) rest[name] = value;
  }
  for (const std::string_view ours : {"job_id", "resume"}) {
    if (rest.erase(ours) > 0) {
      errors.push_back(
          {std::string(ours), "known field", "is the orchestrator's own; leave it out", {}});
    }
  }
  rest["job_id"] = "task";
  std::vector<json::FieldError> found;
  Result<contract::InferenceRequest> request =
      contract::parse_inference_request(json::serialize(rest), found);
  errors.insert(errors.end(), std::make_move_iterator(found.begin()),
                std::make_move_iterator(found.end()));
  if (!request.ok()) return request.error();
  ExecutePart part;
  json::Object stored = contract::to_json(*request);
  for (const std::string_view name : {"job_id", "seed", "resume"}) stored.erase(name);
  part.body = json::serialize(stored);
  part.prompt = request->prompt;
  part.prompt_tokens = guess_tokens(request->prompt.size());
  if (const json::Value* ids = stored.if_contains("prompt_ids"); ids != nullptr && ids->is_array())
    part.prompt_tokens = static_cast<std::uint32_t>(ids->get_array().size());
  part.seed = request->sampling.seed;
  part.max_tokens = static_cast<std::uint32_t>(request->sampling.max_tokens.value_or(0));
  return part;
}

// The same of one of OpenAI's bodies, which is sent as it came.
struct OpenAiPart {
  std::string model;
  std::optional<std::uint64_t> seed;
  std::uint32_t max_tokens = 0;
  std::uint32_t choices = 1;
};

Result<OpenAiPart> read_openai(JobKind kind, const json::Object& request,
                               std::vector<json::FieldError>& errors) {
  const openai::BodyLimits limits;
  OpenAiPart part;
  if (kind == JobKind::Embedding) {
    return Error{ErrorCode::InvalidArgument,
                 "embeddings are one answer without events, so they are no task; ask "
                 "POST /v1/embeddings"};
  }
  Result<openai::TextBody> body = kind == JobKind::Chat
                                      ? openai::read_chat_request(request, limits, errors)
                                      : openai::read_completion_request(request, limits, errors);
  if (!body.ok()) return body.error();
  part.model = body->model;
  part.seed = body->settings.sampling.seed;
  part.max_tokens = static_cast<std::uint32_t>(body->settings.sampling.max_tokens.value_or(0));
  part.choices =
      static_cast<std::uint32_t>(body->n * std::max<std::size_t>(1, body->prompts.size()));
  return part;
}

JobKind kind_of(std::string_view name) {
  for (const JobKind kind : {JobKind::Completion, JobKind::Chat, JobKind::Embedding}) {
    if (fleet::name(kind) == name) return kind;
  }
  return JobKind::Execute;
}

void fill_options(const contract::TaskOptions& options, const http::Request& request,
                  fleet::SubmittedRecord& facts) {
  facts.kind = kind_of(options.kind);
  facts.cls = fleet::job_class_from_name(options.cls).value_or(fleet::JobClass::Interactive);
  facts.holder = options.detach ? fleet::Holder::Detached : fleet::Holder::Followed;
  facts.mode = fleet::mode_from_name(options.mode).value_or(fleet::Mode::Fast);
  facts.pin_host = options.host;
  facts.labels = options.labels;
  facts.deadline_ms = options.deadline_ms.value_or(0);
  if (request.deadline) {
    const auto header =
        std::chrono::duration_cast<std::chrono::milliseconds>(request.deadline->time_since_epoch())
            .count();
    facts.deadline_ms = facts.deadline_ms == 0 ? header : std::min(facts.deadline_ms, header);
  }
  facts.correlation_id = request.correlation_id;
  if (const auto word = request.headers.find("Idempotency-Key")) facts.idempotency = *word;
}

void check_options(const contract::TaskOptions& options, const fleet::SubmittedRecord& facts,
                   const http::Request& request, std::vector<json::FieldError>& errors) {
  const bool is_pin = facts.mode == fleet::Mode::Pin;
  if (is_pin != !options.host.empty()) {
    errors.push_back(
        {"host", "with mode pin", is_pin ? "is needed by mode pin" : "needs mode pin", {}});
  }
  for (const std::string& label : options.labels) {
    // No host has another one: the job would wait for ever.
    if (!contract::is_label(label))
      errors.push_back(
          {"labels", "letters, digits and . _ = / -", "is no label of a host", json::Value(label)});
  }
  const bool has_word = request.headers.find("Idempotency-Key").has_value();
  if (has_word && (facts.idempotency.empty() || facts.idempotency.size() > kIdempotencyBytesMax)) {
    errors.push_back({"Idempotency-Key",
                      "1..256 bytes",
                      facts.idempotency.empty() ? "is empty" : "is too long",
                      {}});
  }
}

// Of a name that is there and wrong, what is wrong has been said.
void require_name(std::string_view field, std::string_view name,
                  std::vector<json::FieldError>& errors) {
  const bool is_told = std::any_of(errors.begin(), errors.end(),
                                   [field](const auto& error) { return error.field == field; });
  if (name.empty() && !is_told)
    errors.push_back({std::string(field), "required", "is required: the name of a model", {}});
}

Status fill_execute(const json::Object& body, const contract::TaskOptions& options,
                    const json::Object& own, Submission& submission,
                    std::vector<json::FieldError>& errors) {
  Result<ExecutePart> part = read_execute(body, own, errors);
  require_name("model", options.model, errors);
  if (!part.ok()) return part.error();
  fleet::SubmittedRecord& facts = submission.facts;
  submission.body = std::make_shared<const std::string>(std::move(part->body));
  submission.prefix = prefix_hashes(part->prompt);
  facts.model_name = options.model;
  facts.prompt_tokens = part->prompt_tokens;
  facts.max_tokens = part->max_tokens;
  facts.seed = part->seed.value_or(make_seed());
  return ok_status();
}

Status fill_openai(const json::Object& body, const contract::TaskOptions& options,
                   const json::Object& own, Submission& submission,
                   std::vector<json::FieldError>& errors) {
  for (const auto& [name, value] : body) {
    if (name == "request" || own.contains(name)) continue;
    errors.push_back({std::string(name), "known field", "is unknown beside a request", {}});
  }
  const json::Value* request = body.if_contains("request");
  if (request == nullptr || !request->is_object()) {
    errors.push_back(
        {"request", "required", "is required: the body of OpenAI's endpoint of this kind", {}});
    return ok_status();
  }
  fleet::SubmittedRecord& facts = submission.facts;
  std::vector<json::FieldError> found;
  Result<OpenAiPart> part = read_openai(facts.kind, request->get_object(), found);
  for (json::FieldError& error : found) {
    error.field = "request." + error.field;
    errors.push_back(std::move(error));
  }
  if (!part.ok()) return part.error();
  facts.model_name = part->model.empty() ? options.model : part->model;
  require_name("request.model", facts.model_name, errors);
  submission.body = std::make_shared<const std::string>(json::serialize(*request));
  submission.prefix = prefix_hashes(*submission.body);
  facts.prompt_tokens = guess_tokens(submission.body->size());
  facts.max_tokens = part->max_tokens;
  facts.choices = part->choices;
  facts.seed = part->seed.value_or(make_seed());
  return ok_status();
}

}  // namespace

std::vector<std::uint64_t> prefix_hashes(std::string_view prompt) {
  std::vector<std::uint64_t> hashes;
  std::uint64_t hash = 0xcbf29ce484222325U;
  while (prompt.size() >= fleet::kPrefixBlockBytes && hashes.size() < fleet::kPrefixBlocksMax) {
    for (const char byte : prompt.substr(0, fleet::kPrefixBlockBytes)) {
      hash ^= static_cast<unsigned char>(byte);
      hash *= 0x100000001b3U;
    }
    prompt.remove_prefix(fleet::kPrefixBlockBytes);
    hashes.push_back(hash == 0 ? 1 : hash);
  }
  return hashes;
}

Result<Submission> read_task_request(const http::Request& request, const Caller& caller,
                                     std::vector<json::FieldError>& errors) {
  errors.clear();
  const Result<json::Object> body =
      contract::parse_json_body(request.headers.find("Content-Type"), request.body);
  if (!body.ok()) return body.error();
  const auto options =
      contract::read_described<contract::TaskOptions>(*body, errors, /*others=*/true);
  Submission submission;
  submission.job = make_job_id();
  fleet::SubmittedRecord& facts = submission.facts;
  facts.key = caller.key;
  fill_options(options, request, facts);
  check_options(options, facts, request, errors);
  hash_body(request.body, facts.body_hash);
  const json::Object own = contract::write_fields(contract::TaskOptions{.deadline_ms = 0});
  Status filled = facts.kind == JobKind::Execute
                      ? fill_execute(*body, options, own, submission, errors)
                      : fill_openai(*body, options, own, submission, errors);
  if (!filled.ok() && filled.error().code == ErrorCode::TooLarge) return filled.error();
  if (!errors.empty()) return contract::summary_of(errors);
  if (!filled.ok()) return filled.error();
  return submission;
}

}  // namespace llorch::orchestrator
