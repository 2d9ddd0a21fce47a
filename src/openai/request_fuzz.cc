// Any bytes as a body of OpenAI's endpoints: refused with a named field, or accepted and sound.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "openai/request.h"

namespace {

using namespace llorch;

void check_text(const Result<openai::TextBody>& request,
                const std::vector<json::FieldError>& errors) {
  CHECK(request.ok() == errors.empty());
  if (!request.ok()) return;
  CHECK(request->n >= 1 && request->n <= 64);
  CHECK(request->prompts.size() * request->n <= 64);
  CHECK(!request->resume_ids || request->settings.sampling.seed.has_value());
  CHECK(!request->resume_ids || !request->resume_ids->empty());
  const contract::SamplingConfig& sampling = request->settings.sampling;
  CHECK(sampling.temperature >= 0 && sampling.temperature <= 2);
  CHECK(sampling.stop.size() <= 4);
  CHECK(!sampling.max_tokens || *sampling.max_tokens >= 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<json::Value> parsed = json::parse(text);
  if (!parsed.ok() || !parsed->is_object()) return 0;
  const json::Object& body = parsed->get_object();
  std::vector<json::FieldError> errors;
  const Result<openai::TextBody> completion = openai::read_completion_request(body, {}, errors);
  check_text(completion, errors);
  const Result<openai::TextBody> chat = openai::read_chat_request(body, {}, errors);
  check_text(chat, errors);
  const Result<openai::EmbeddingBody> embedding = openai::read_embedding_request(body, {}, errors);
  CHECK(embedding.ok() == errors.empty());
  CHECK(!embedding.ok() || !embedding->inputs.empty());
  return 0;
}
