#include "model/choices.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "compute/choose.h"

namespace llorch::model {
namespace {

// What a row is drawn by, beyond a temperature.
compute::ChoiceRule rule_of(const BatchRow& row, std::int64_t vocab) {
  const auto least = static_cast<std::uint64_t>(std::ldexp(static_cast<double>(row.min_p), 40));
  const bool has_top_p = row.top_p < 1.0F;
  return {
      .temperature = row.temperature,
      .top_k = row.top_k < vocab ? static_cast<std::int32_t>(row.top_k) : 0,
      .has_top_p = has_top_p ? 1 : 0,
      .top_p =
          has_top_p ? static_cast<std::uint32_t>(static_cast<double>(row.top_p) * 0x1.0p32) : 0,
      .draw = {static_cast<std::uint32_t>(row.draw), static_cast<std::uint32_t>(row.draw >> 32)},
      .least = {static_cast<std::uint32_t>(least), static_cast<std::uint32_t>(least >> 32)}};
}

}  // namespace

Choice stage_choices(const BatchPlan& plan, std::int64_t vocab,
                     std::vector<std::int32_t>& staging) {
  Choice choice = Choice::Largest;
  for (const BatchRow& row : plan.rows) {
    if (!row.wants_argmax || row.temperature == 0) continue;
    const bool has_rule = row.top_k > 0 || row.top_p < 1.0F || row.min_p > 0;
    choice = std::max(choice, has_rule ? Choice::ByRule : Choice::Drawn);
  }
  if (choice == Choice::Largest) return choice;
  for (const BatchRow& row : plan.rows) {
    if (!row.wants_argmax) continue;
    if (choice == Choice::Drawn) {
      staging.push_back(std::bit_cast<std::int32_t>(row.temperature));
      continue;
    }
    const auto words =
        std::bit_cast<std::array<std::int32_t, compute::kChoiceWords>>(rule_of(row, vocab));
    staging.insert(staging.end(), words.begin(), words.end());
  }
  for (const BatchRow& row : plan.rows) {
    if (!row.wants_argmax || choice != Choice::Drawn) continue;
    staging.push_back(static_cast<std::int32_t>(row.draw & 0xFFFFFFFFU));
    staging.push_back(static_cast<std::int32_t>(row.draw >> 32));
  }
  return choice;
}

}  // namespace llorch::model
