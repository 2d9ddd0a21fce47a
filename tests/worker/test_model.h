// Models for process tests: GPT-2 with seeded random weights, and the tests' own chat tokenizer.
#pragma once

#include <filesystem>

namespace llorch::test {

struct TestModelSize {
  int layers = 2;
  int hidden = 64;
  int heads = 4;
  int context = 512;
  float padding = 1;  // by what the rows are multiplied that stand for no token
};

inline constexpr TestModelSize kQuick{};
// Some milliseconds for a token, so that things can happen in the middle of a generation.
inline constexpr TestModelSize kSlow{.layers = 6, .hidden = 384, .heads = 6, .context = 2048};

// Writes a folder in Hugging Face layout: weights, config, tokenizer, chat template. Its greedy
// continuations never end by themselves.
void write_test_model(const std::filesystem::path& folder, const TestModelSize& size = kQuick);

}  // namespace llorch::test
