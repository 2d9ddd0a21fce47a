// How well a model predicts a text: the perplexity over windows, with its standard error.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "model/runner.h"

namespace llorch::tools {

// Sums over scored tokens.
struct Score {
  std::int64_t tokens = 0;
  double sum = 0;          // of -log p
  double sum_squares = 0;  // of (-log p)²

  void add(double negative_log_probability);
  double perplexity() const;  // exp of the mean
  double standard_error()
      const;  // of the perplexity, by the spread of the terms; 0 below two tokens
};

// -log of the probability that the softmax of `logits` gives to `id`, in double precision.
double negative_log_probability(std::span<const float> logits, std::int32_t id);

struct WindowOptions {
  std::int32_t context = 512;    // tokens of a window
  std::int32_t bos = -1;         // replaces the first token of each window; -1: nothing does
  std::int32_t max_windows = 0;  // 0: all
};

// How many whole windows the ids make, within max_windows.
std::int64_t count_windows(std::size_t num_ids, const WindowOptions& options);

using WindowProgress =
    std::function<void(std::int64_t done_windows, std::int64_t all_windows, const Score& score)>;

// Cuts the ids into windows that do not overlap, runs each on its own and scores the tokens of its
// second half, each given those before it in the window: what llama-perplexity does, so that
// numbers can be compared. The runner's blocks hold a window. InvalidArgument when the text is
// shorter than one window or an id is beyond the vocabulary.
Result<Score> score_windows(model::ModelRunner& runner, std::span<const std::int32_t> ids,
                            const WindowOptions& options, const WindowProgress& progress);

}  // namespace llorch::tools
