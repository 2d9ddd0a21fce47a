// Real models, asked for what they are known to say (`ctest -L model`). Skips loudly where they are
// absent.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/json.h"
#include "compute/create.h"
#include "model/checkpoints.h"
#include "model/load.h"
#include "support/test_paths.h"
#include "template/chat_template.h"
#include "tokenizer/load.h"

namespace llorch::tools {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// The greedy continuation of a prompt, up to the model's end of text.
std::string continuation(const std::filesystem::path& path, const tokenizer::Tokenizer& tokenizer,
                         std::span<const std::int32_t> prompt, std::int32_t count) {
  const auto backend = compute::make_backend("cpu", {.threads = 2}).take();
  const auto model = model::load_model(path, *backend, {.context_length = 256});
  CHECK(model.ok(), model.error().message);
  model::RunnerOptions options;
  options.limits = {.rows = 64, .logit_rows = 1, .sequences = 1, .num_blocks = 16};
  const auto runner = model::TransformerRunner::make(model.value(), *backend, options).take();
  std::vector<std::int32_t> ids = model::generate_greedy(*runner, prompt, {.count = count});
  ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(prompt.size()));
  ids.erase(std::ranges::find_if(ids, [&](std::int32_t id) { return tokenizer.is_end(id); }),
            ids.end());
  return tokenizer.decode(ids);
}

class Stories15M : public testing::TestWithParam<const char*> {};

// llama.cpp's own continuation of the same file, greedily.
TEST_P(Stories15M, TellsTheStoryThatLlamaCppTells) {
  const auto path =
      test::data_path(fmt::format("weights/stories15M/stories15M-{}.gguf", GetParam()));
  if (!path) GTEST_SKIP() << "weights/stories15M is absent";
  const tokenizer::Tokenizer tokenizer = tokenizer::load_tokenizer(*path).take();
  const auto prompt = tokenizer.encode("Once upon a time", {.add_special = true}).take();
  EXPECT_THAT(continuation(*path, tokenizer, prompt, 48),
              StartsWith(std::string_view(GetParam()) == "Q8_0"
                             ? ", there was a little girl named Lily. She loved to play outside in "
                               "the sunshine. One day, she saw a big, red ball in the sky. It was "
                               "the sun! She thought it was so pretty."
                             : ", there was a little girl named Lily."));
}

INSTANTIATE_TEST_SUITE_P(Real, Stories15M, testing::Values("Q8_0", "Q4_K_M"),
                         [](const auto& test) { return std::string(test.param); });

class MiniMind : public testing::TestWithParam<const char*> {};

TEST_P(MiniMind, KnowsTheCapitalOfFrance) {
  const auto path = test::data_path(fmt::format("weights/minimind2-small/{}", GetParam()));
  if (!path) GTEST_SKIP() << "weights/minimind2-small is absent";
  const tokenizer::Tokenizer tokenizer = tokenizer::load_tokenizer(*path).take();
  ASSERT_NE(tokenizer.chat_template(), nullptr);
  const auto chat = jinja::ChatTemplate::parse(*tokenizer.chat_template()).take();
  const json::Value context = json::parse(R"({"add_generation_prompt": true, "messages": [
      {"role": "system", "content": "You are a helpful assistant"},
      {"role": "user", "content": "What is the capital of France?"}]})")
                                  .take();
  const auto text = chat.render(context, {});
  ASSERT_TRUE(text.ok()) << text.error().message;
  const auto prompt = tokenizer.encode(tokenizer::MarkedPrompt{text->text, text->own}).take();
  EXPECT_THAT(continuation(*path, tokenizer, prompt, 48), HasSubstr("Paris"));
}

INSTANTIATE_TEST_SUITE_P(Real, MiniMind, testing::Values("hf", "minimind2-small-Q4_K_M.gguf"),
                         [](const auto& test) {
                           return std::string(test.param) == "hf" ? "F16" : "Q4_K_M";
                         });

}  // namespace
}  // namespace llorch::tools
