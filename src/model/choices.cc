#include "model/choices.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "base/check.h"
#include "compute/choose.h"
#include "compute/edit_logits.h"

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
  Choice choice = plan.chooses_later ? Choice::ByRule : Choice::Largest;
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

std::int64_t edit_words(std::int64_t rows, std::int64_t changes, std::int64_t vocab) {
  return rows * (compute::kEditWords + compute::mask_words(vocab)) +
         changes * compute::kChangeWords;
}

StagedEdits stage_edits(std::span<const RowEdits> edits, std::int64_t vocab,
                        std::vector<std::int32_t>& staging) {
  const auto words = static_cast<std::size_t>(compute::mask_words(vocab));
  StagedEdits staged;
  const auto add = [&staging]<class Item>(const Item& item) {
    const auto some =
        std::bit_cast<std::array<std::int32_t, sizeof(Item) / sizeof(std::int32_t)>>(item);
    staging.insert(staging.end(), some.begin(), some.end());
  };
  for (const RowEdits& row : edits) {
    CHECK(row.may_follow.empty() || row.may_follow.size() == words);
    const auto count = static_cast<std::int32_t>(row.changes.size());
    add(compute::EditRule{
        .first_change = static_cast<std::int32_t>(staged.changes),
        .num_changes = count,
        .mask = row.may_follow.empty() ? -1 : static_cast<std::int32_t>(staged.masks++),
        .repetition_penalty = row.repetition_penalty,
        .frequency_penalty = row.frequency_penalty,
        .presence_penalty = row.presence_penalty});
    staged.changes += count;
    ++staged.rules;
  }
  for (const RowEdits& row : edits) {
    for (const LogitChange& change : row.changes) {
      CHECK(change.id >= 0 && change.id < vocab);
      add(compute::LogitChange{.id = change.id, .bias = change.bias, .count = change.count});
    }
  }
  for (const RowEdits& row : edits) {
    for (const std::uint32_t word : row.may_follow)
      staging.push_back(static_cast<std::int32_t>(word));
  }
  return staged;
}

}  // namespace llorch::model
