#include "tokenizer/budget.h"

#include <fmt/format.h>

#include <utility>

#include "base/utf8.h"

namespace llorch::tokenizer {
namespace {

constexpr std::uint64_t kBaseSteps = 100'000'000;  // a few tenths of a second
constexpr std::uint64_t kStepsPerByte = 1000;
constexpr std::uint64_t kStepsBetweenChecks = 1U << 16;
constexpr std::size_t kMaxGrowth = 64;  // NFKD makes eleven times as much of one character
constexpr std::size_t kMaxShownBytes = 120;

}  // namespace

EncodeBudget::EncodeBudget(std::size_t text_bytes, base::WorkLimit limit)
    : max_steps_(kBaseSteps + kStepsPerByte * text_bytes),
      max_bytes_((std::size_t{1} << 20) + kMaxGrowth * text_bytes),
      limit_(std::move(limit)) {}

bool EncodeBudget::check() {
  if (is_spent_) return false;
  next_check_ = steps_ + kStepsBetweenChecks;
  if (limit_.stop.stop_requested()) {
    is_spent_ = true;
    error_ = Error{ErrorCode::Cancelled, "encoding the text was cancelled"};
  } else if (steps_ > max_steps_) {
    fail(fmt::format("more than {} steps", max_steps_));
  } else if (limit_.is_over()) {
    fail("longer than the time that it may take");
  }
  if (is_spent_) next_check_ = 0;
  return !is_spent_;
}

void EncodeBudget::fail(std::string_view why) {
  if (is_spent_) return;
  is_spent_ = true;
  next_check_ = 0;
  const std::string what =
      expression_.empty()
          ? "the tokenizer takes too long on this text"
          : fmt::format("the tokenizer's own pattern {} takes too long on this text",
                        base::quoted(expression_.substr(0, kMaxShownBytes)));
  error_ = Error{
      ErrorCode::InvalidArgument,
      fmt::format("{}: {}; shorten the text, or use a tokenizer file that you trust", what, why)};
}

Status EncodeBudget::status() const {
  if (error_) return *error_;
  return ok_status();
}

}  // namespace llorch::tokenizer
