#include "worker/told.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace llorch::worker {
namespace {

using engine::TokenId;
using worker_http::PrepareError;

PrepareError refuse(std::string message) {
  return {{ErrorCode::InvalidArgument, std::move(message)}, PrepareError::Blame::Told};
}

std::optional<PrepareError> check_ids(const ServingModel& model, std::span<const TokenId> told) {
  const std::int32_t size = model.info.vocab_size;
  const auto outside = std::ranges::find_if(told, [&](TokenId id) { return id < 0 || id >= size; });
  if (outside != told.end()) {
    return refuse(
        fmt::format("id {} at place {} of what was said before is not in the vocabulary: "
                    "expected 0 to {}",
                    *outside, outside - told.begin(), size - 1));
  }
  // The last one may be the end; one before it cannot.
  for (std::size_t i = 0; i + 1 < told.size(); ++i) {
    if (!model.tokenizer->is_end(told[i])) continue;
    return refuse(
        fmt::format("id {} at place {} of what was said before ends an answer, but {} "
                    "more come after it",
                    told[i], i, told.size() - i - 1));
  }
  return std::nullopt;
}

std::optional<PrepareError> check_grammar(const ServingModel& model, std::span<const TokenId> told,
                                          const GrammarPtr& grammar, const base::WorkLimit& limit) {
  if (grammar == nullptr) return std::nullopt;
  grammar::TokenMasker masker(grammar, *model.mask_table);
  constexpr std::size_t kIdsPerLook = 256;
  for (std::size_t i = 0; i < told.size(); ++i) {
    if (i % kIdsPerLook == 0) {
      if (const Status goes_on = limit.check(); !goes_on.ok()) return PrepareError{goes_on.error()};
    }
    if (masker.accept(told[i])) continue;
    return refuse(
        fmt::format("the format of this request forbids id {} at place {} of what was "
                    "said before: another request must have made it",
                    told[i], i));
  }
  return std::nullopt;
}

}  // namespace

std::span<const TokenId> told_output(const ServingModel& model, std::span<const TokenId> told) {
  const bool has_end = !told.empty() && model.tokenizer->is_end(told.back());
  return has_end ? told.first(told.size() - 1) : told;
}

std::optional<PrepareError> check_told(const ServingModel& model, std::span<const TokenId> told,
                                       const ToldBounds& bounds, TextSinkContext context,
                                       const base::WorkLimit& limit) {
  if (auto refused = check_ids(model, told)) return refused;
  const std::span<const TokenId> output = told_output(model, told);
  if (std::cmp_greater(output.size(), bounds.max_tokens)) {
    return refuse(
        fmt::format("{} tokens were said before, but after a prompt of {} this request "
                    "may have {} at most",
                    output.size(), bounds.prompt.size(), bounds.max_tokens));
  }
  if (auto refused = check_grammar(model, told, bounds.grammar, limit)) return refused;
  context.told.assign(output.begin(), output.end());
  const TextSink reader(std::move(context), *model.tokenizer, bounds.prompt, nullptr);
  const std::optional<std::size_t> stopped = reader.stopped_after();
  if (!stopped || *stopped == told.size()) return std::nullopt;
  return refuse(
      fmt::format("a stop string is complete after {} of the {} ids that were said "
                  "before: nothing can come after it",
                  *stopped, told.size()));
}

std::optional<engine::FinishReason> told_end(const ServingModel& model,
                                             std::span<const TokenId> told, std::int32_t max_tokens,
                                             const TextSink& sink) {
  if (sink.stopped_after()) return engine::FinishReason::Stopped;
  if (told_output(model, told).size() < told.size()) return engine::FinishReason::EndToken;
  if (!told.empty() && std::cmp_equal(told.size(), max_tokens))
    return engine::FinishReason::MaxTokens;
  return std::nullopt;
}

}  // namespace llorch::worker
