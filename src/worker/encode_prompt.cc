#include "worker/encode_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "worker/fill_in_middle.h"

namespace llorch::worker {

using openai::Prompt;
using worker_http::PrepareError;

namespace {

using Ids = std::vector<engine::TokenId>;

// A text that cannot fit is not worth reading: no token stands for more bytes than the longest.
Status check_bytes(const ServingModel& model, std::size_t bytes) {
  const auto context = static_cast<std::size_t>(model.engine->max_sequence_tokens());
  const std::size_t longest = std::max<std::size_t>(model.texts->longest_bytes, 1);
  if (bytes / longest <= context) return ok_status();
  return Error{ErrorCode::InvalidArgument,
               fmt::format("the text has {} bytes, at least {} tokens, but the context holds {}; "
                           "shorten it",
                           bytes, bytes / longest, context)};
}

std::optional<PrepareError> check_ids(const ServingModel& model, const Ids& ids) {
  const std::int32_t size = model.info.vocab_size;
  const auto bad = std::ranges::find_if(ids, [&](auto id) { return id < 0 || id >= size; });
  if (bad == ids.end()) return std::nullopt;
  return PrepareError{
      {ErrorCode::InvalidArgument, fmt::format("token {} of the text has id {}: expected 0 to {}",
                                               bad - ids.begin(), *bad, size - 1)}};
}

// A prompt and what is to follow the answer.
std::variant<Ids, PrepareError> encode_fill(const ServingModel& model, const Prompt& prompt,
                                            const base::WorkLimit& limit) {
  if (!model.fill_tokens) {
    return PrepareError{
        {ErrorCode::InvalidArgument, "this model has no tokens to fill in the middle with"}};
  }
  const auto encode = [&](const std::string& text) -> Result<Ids> {
    if (const Status fits = check_bytes(model, text.size()); !fits.ok()) return fits.error();
    return model.tokenizer->encode(text, {.limit = per_text(limit)});
  };
  Result<Ids> before = prompt.ids;
  if (prompt.kind != Prompt::Kind::Ids) before = encode(prompt.text);
  if (!before.ok()) return PrepareError{before.error()};
  const Result<Ids> after = encode(*prompt.suffix);
  if (!after.ok()) return PrepareError{after.error()};
  return fill_prompt(*model.fill_tokens, model.tokenizer->prefix_ids(), *before, *after);
}

}  // namespace

PrepareError too_long(std::string message) {
  return {{ErrorCode::InvalidArgument, std::move(message)}, PrepareError::Blame::Context};
}

base::WorkLimit per_text(base::WorkLimit limit) {
  constexpr std::chrono::seconds kPerText(2);
  limit.deadline = std::min(limit.deadline, engine::Clock::now() + kPerText);
  return limit;
}

std::variant<Ids, PrepareError> encode_prompt(const ServingModel& model, const Prompt& prompt,
                                              const base::WorkLimit& limit) {
  using Kind = Prompt::Kind;
  if (prompt.kind == Kind::Ids) {
    if (auto refused = check_ids(model, prompt.ids)) return std::move(*refused);
  }
  if (prompt.suffix) return encode_fill(model, prompt, limit);
  if (prompt.kind == Kind::Ids) return prompt.ids;
  if (const Status fits = check_bytes(model, prompt.text.size()); !fits.ok())
    return too_long(fits.error().message);
  if (const Status goes_on = limit.check(); !goes_on.ok()) return PrepareError{goes_on.error()};
  // In a rendered prompt the template has written every special token that the model wants.
  Result<Ids> ids =
      prompt.kind == Kind::Rendered
          ? model.tokenizer->encode(tokenizer::MarkedPrompt{prompt.text, prompt.template_spans},
                                    {.limit = per_text(limit)})
          : model.tokenizer->encode(prompt.text, {.add_special = true, .limit = per_text(limit)});
  if (!ids.ok()) return PrepareError{ids.error()};
  return ids.take();
}

}  // namespace llorch::worker
