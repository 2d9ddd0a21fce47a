#include "cli/ask_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <limits>

#include "base/utf8.h"
#include "base/whole_number.h"
#include "contract/limits.h"

namespace llorch::cli {
namespace {

constexpr float kTemperature = 0.7F;
constexpr float kTopP = 0.95F;
constexpr std::size_t kPromptBytesMax = contract::kPromptScalarsMax * 4;

Result<std::string> read_standard_input(std::string_view example) {
  if (::isatty(STDIN_FILENO) != 0) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("no prompt: name one ({}) or send it through a pipe", example)};
  }
  std::string text;
  std::vector<char> buffer(std::size_t{64} << 10);
  while (const std::size_t got = std::fread(buffer.data(), 1, buffer.size(), stdin)) {
    text.append(buffer.data(), got);
    if (text.size() > kPromptBytesMax) break;  // refused below
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

}  // namespace

CLI::Validator number_between(double min, double max) {
  return CLI::Validator(
      [min, max](std::string& text) {
        double number = 0;
        const char* end = text.data() + text.size();
        const auto [at, error] = std::from_chars(text.data(), end, number);
        if (error == std::errc() && at == end && number >= min && number <= max) {
          return std::string();
        }
        return fmt::format("expected a number from {} to {}, found {}", min, max,
                           base::quoted(text));
      },
      fmt::format("{}..{}", min, max));
}

void add_sampling_flags(CLI::App& command, contract::SamplingConfig& sampling) {
  sampling.temperature = kTemperature;
  sampling.top_p = kTopP;
  command.add_option("--temp", sampling.temperature, "0: always the most probable token (0.7)")
      ->type_name("T")
      ->check(number_between(0, contract::kTemperatureMax).description(""));
  command
      .add_option("--top-p", sampling.top_p, "of the probability, the tokens that hold P (0.95)")
      ->type_name("P")
      ->check(number_between(0, 1).description(""));
  command.add_option("--top-k", sampling.top_k, "only the K most probable tokens; 0: off (0)")
      ->type_name("K")
      ->check(
          CLI::Range(std::int64_t{0}, std::numeric_limits<std::int64_t>::max()).description(""));
  command.add_option("--min-p", sampling.min_p, "none below P times the most probable (0)")
      ->type_name("P")
      ->check(number_between(0, 1).description(""));
  command
      .add_option("--repetition-penalty", sampling.repetition_penalty, "above 1: repeat less (1)")
      ->type_name("R")
      ->check(number_between(0.01, contract::kRepetitionPenaltyMax).description(""));
  command.add_option("--stop", sampling.stop, "end before this text; up to 4 times")
      ->type_name("TEXT")
      ->allow_extra_args(false)  // the word behind it is the prompt's
      ->check([](const std::string& text) {
        const bool fits = !text.empty() && text.size() <= contract::kStopBytesMax;
        return fits ? std::string() : std::string("a stop text has 1 to 100 bytes");
      });
  command.add_option("--seed", sampling.seed, "the same seed gives the same text")
      ->type_name("S")
      ->check(base::check_whole_number);
}

void add_system_flag(CLI::App& command, std::string& system) {
  command.add_option("--system", system, "what a chat model is told first")
      ->type_name("TEXT")
      ->check([](const std::string& text) {
        return base::is_valid_utf8(text) ? std::string() : std::string("is not UTF-8 text");
      });
}

Result<std::string> find_prompt(const std::vector<std::string>& words, std::string_view example) {
  std::string prompt = fmt::format("{}", fmt::join(words, " "));
  if (words.empty() || prompt == "-") {
    Result<std::string> read = read_standard_input(example);
    if (!read.ok()) return read;
    prompt = read.take();
  }
  if (prompt.empty()) return Error{ErrorCode::InvalidArgument, "the prompt is empty"};
  if (!base::is_valid_utf8(prompt)) {
    return Error{ErrorCode::InvalidArgument, "the prompt is not UTF-8 text; convert it first"};
  }
  if (const std::size_t scalars = base::count_scalars(prompt);
      scalars > contract::kPromptScalarsMax) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("the prompt has {} characters or more, at most {} are possible",
                             scalars, contract::kPromptScalarsMax)};
  }
  return prompt;
}

}  // namespace llorch::cli
