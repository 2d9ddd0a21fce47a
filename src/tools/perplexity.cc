#include "tools/perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace llorch::tools {
namespace {

// One window, in steps of as many rows as the runner takes.
void score_window(model::ModelRunner& runner, std::span<const std::int32_t> window,
                  std::span<const std::int32_t> blocks, Score& score) {
  const auto length = static_cast<std::int32_t>(window.size());
  const std::int32_t first = length / 2;
  const std::int32_t step = std::min(runner.limits().rows, runner.limits().logit_rows);
  const auto vocab = static_cast<std::size_t>(runner.vocab_size());
  for (std::int32_t begin = 0; begin < length; begin += step) {
    const std::int32_t end = std::min(length, begin + step);
    model::BatchPlan plan;
    plan.block_tables = {blocks};
    std::vector<std::int32_t> targets;
    for (std::int32_t position = begin; position < end; ++position) {
      const bool is_scored = position >= first && position + 1 < length;
      plan.rows.push_back({.token = window[static_cast<std::size_t>(position)],
                           .position = position,
                           .sequence = 0,
                           .wants_logits = is_scored});
      if (is_scored) targets.push_back(window[static_cast<std::size_t>(position) + 1]);
    }
    const model::StepOutput output = runner.forward(plan);
    for (std::size_t i = 0; i < targets.size(); ++i)
      score.add(negative_log_probability(output.logits.subspan(i * vocab, vocab), targets[i]));
  }
}

}  // namespace

void Score::add(double negative_log_probability) {
  ++tokens;
  sum += negative_log_probability;
  sum_squares += negative_log_probability * negative_log_probability;
}

double Score::perplexity() const {
  return tokens == 0 ? 0 : std::exp(sum / static_cast<double>(tokens));
}

double Score::standard_error() const {
  if (tokens < 2) return 0;
  const auto count = static_cast<double>(tokens);
  const double mean = sum / count;
  const double variance = std::max(0.0, sum_squares / count - mean * mean);
  return std::sqrt(variance / (count - 1)) * perplexity();
}

double negative_log_probability(std::span<const float> logits, std::int32_t id) {
  const double largest = double{*std::max_element(logits.begin(), logits.end())};
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - largest);
  return std::log(sum) + largest - double{logits[static_cast<std::size_t>(id)]};
}

std::int64_t count_windows(std::size_t num_ids, const WindowOptions& options) {
  const std::int64_t whole = static_cast<std::int64_t>(num_ids) / options.context;
  return options.max_windows > 0 ? std::min<std::int64_t>(whole, options.max_windows) : whole;
}

Result<Score> score_windows(model::ModelRunner& runner, std::span<const std::int32_t> ids,
                            const WindowOptions& options, const WindowProgress& progress) {
  const std::int64_t windows = count_windows(ids.size(), options);
  if (windows == 0) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("the text has {} tokens, fewer than a window of {}; use a longer text "
                             "or a smaller --ctx",
                             ids.size(), options.context)};
  }
  const auto beyond = std::find_if(
      ids.begin(), ids.end(), [&](std::int32_t id) { return id < 0 || id >= runner.vocab_size(); });
  if (beyond != ids.end()) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("the tokenizer gives the id {}, but the model has {} tokens", *beyond,
                             runner.vocab_size())};
  }
  const std::int32_t block_tokens = runner.limits().block_tokens;
  std::vector<std::int32_t> blocks(
      static_cast<std::size_t>((options.context + block_tokens - 1) / block_tokens));
  std::iota(blocks.begin(), blocks.end(), 0);
  Score score;
  for (std::int64_t i = 0; i < windows; ++i) {
    const auto context = static_cast<std::size_t>(options.context);
    const auto part = ids.subspan(static_cast<std::size_t>(i) * context, context);
    std::vector<std::int32_t> window(part.begin(), part.end());
    if (options.bos >= 0) window.front() = options.bos;
    score_window(runner, window, blocks, score);
    if (progress) progress(i + 1, windows, score);
  }
  return score;
}

}  // namespace llorch::tools
