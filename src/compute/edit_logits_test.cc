// Logits changed before a token is chosen: the op against the reference, and the reference against
// what is written in edit_logits.h.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <limits>
#include <optional>
#include <vector>

#include "compute/choose.h"
#include "compute/conformance.h"
#include "compute/edit_logits.h"

namespace llorch::compute::test {
namespace {

class LogitEdits : public Conformance {};
INSTANTIATE_TEST_SUITE_P(Every, LogitEdits, testing::ValuesIn(backends_under_test()), label_of);

constexpr float kInfinity = std::numeric_limits<float>::infinity();

void append(std::vector<std::int32_t>& words, const EditRule& rule) {
  const auto some = std::bit_cast<std::array<std::int32_t, kEditWords>>(rule);
  words.insert(words.end(), some.begin(), some.end());
}
void append(std::vector<std::int32_t>& words, const LogitChange& change) {
  const auto some = std::bit_cast<std::array<std::int32_t, kChangeWords>>(change);
  words.insert(words.end(), some.begin(), some.end());
}

// Rows with nothing to do, with changes, with a mask, and with both.
struct Edits {
  std::vector<std::int32_t> rules, changes, masks;

  Edits(std::int64_t rows, std::int64_t dim, Random& random) {
    for (std::int64_t row = 0; row < rows; ++row) {
      EditRule rule{.first_change =
                        static_cast<std::int32_t>(changes.size() / std::size_t{kChangeWords})};
      if (row % 4 % 2 == 1) {
        rule.repetition_penalty = 1.3F;
        rule.frequency_penalty = 0.7F;
        rule.presence_penalty = row % 3 == 0 ? -0.4F : 0.2F;
        // Every other, every third … id, from the last on.
        for (std::int64_t id = dim - 1; id >= 0; id -= 1 + row) {
          append(changes, LogitChange{.id = static_cast<std::int32_t>(id),
                                      .bias = id % 5 == 0 ? random.number(9.0F) : 0,
                                      .count = static_cast<std::int32_t>(id % 6) - 1});
          ++rule.num_changes;
        }
      }
      if (row % 4 >= 2) {
        rule.mask = static_cast<std::int32_t>(std::ssize(masks) / mask_words(dim));
        for (std::int64_t word = 0; word < mask_words(dim); ++word)
          masks.push_back(word % 3 == 0 ? 0 : static_cast<std::int32_t>(random.bits()));
      }
      append(rules, rule);
    }
  }
  void run(Device& device, const TensorView& x) const {
    const auto matrix = [&](const std::vector<std::int32_t>& words, std::int64_t width) {
      return words.empty() ? TensorView() : device.ints(words, {std::ssize(words) / width, width});
    };
    device.backend().edit_logits({.x = x,
                                  .rules = matrix(rules, kEditWords),
                                  .changes = matrix(changes, kChangeWords),
                                  .masks = matrix(masks, mask_words(x.dims[1]))});
  }
};

Op edit_op(std::int64_t rows, std::int64_t dim) {
  return [=](Device& device) {
    Random random(52);
    std::vector<float> logits = random.numbers(rows * dim, 8.0F);
    for (std::size_t i = 0; i < logits.size(); i += 97) logits[i] = i % 2 == 0 ? -kInfinity : 0.0F;
    const Edits edits(rows, dim, random);
    const TensorView x = device.floats(logits, {rows, dim});
    edits.run(device, x);
    return device.read(x);
  };
}

TEST_P(LogitEdits, AreTheReferencesBitForBit) {
  if (!backend_->can_edit()) return;  // logits are fetched instead
  for (const std::int64_t dim : {1, 31, 32, 33, 1000, 32000, 151937}) {
    for (const std::int64_t rows : {1, 4, 9})
      expect_close(0, 1, fmt::format("{} rows of {}", rows, dim), edit_op(rows, dim));
  }
}

// What may not follow does not hide that the logits are no numbers.
TEST_P(LogitEdits, LeaveWhatIsNoNumber) {
  if (!backend_->can_edit() || !backend_->can_choose()) return;
  constexpr std::int64_t kDim = 100;
  const auto choose = [&](std::optional<float> bad, std::int32_t word) {
    Device device(*backend_);
    std::vector<float> logits(kDim, 0.5F);
    if (bad) logits[40] = *bad;
    std::vector<std::int32_t> rules;
    append(rules, EditRule{.mask = 0});
    std::vector<std::int32_t> masks(mask_words(kDim), 0);
    masks[2] = word;
    const TensorView x = device.floats(logits, {1, kDim});
    backend_->edit_logits({.x = x,
                           .rules = device.ints(rules, {1, kEditWords}),
                           .changes = {},
                           .masks = device.ints(masks, {1, mask_words(kDim)})});
    const TensorView out = device.ints(std::vector<std::int32_t>(1));
    backend_->choose(
        {.x = x,
         .rules = device.ints(std::vector<std::int32_t>(kChoiceWords), {1, kChoiceWords}),
         .out = out});
    std::int32_t id = 0;
    backend_->download(out.data, std::as_writable_bytes(std::span(&id, 1)));
    return id;
  };
  EXPECT_EQ(choose({}, 0b1000), 67);
  EXPECT_EQ(choose(std::nanf(""), 0b1000), -1);
  EXPECT_EQ(choose(kInfinity, 0b1000), -1);
  EXPECT_EQ(choose(-kInfinity, 0b1000), 67);
  EXPECT_EQ(choose({}, 0), -1) << "nothing may follow";
}

TEST(LogitEditsOfTheReference, EachInItsOrder) {
  const auto backend = make_reference_backend({});
  Device device(*backend);
  std::vector<std::int32_t> rules;
  append(rules, EditRule{.num_changes = 4,
                         .mask = 0,
                         .repetition_penalty = 2,
                         .frequency_penalty = 0.25F,
                         .presence_penalty = 1});
  std::vector<std::int32_t> changes;
  append(changes, LogitChange{.id = 0, .bias = 3, .count = -1});  // alone
  append(changes, LogitChange{.id = 1, .bias = -5, .count = 0});  // negative by then: multiplied
  append(changes, LogitChange{.id = 2, .bias = 0, .count = 2});
  append(changes, LogitChange{.id = 4, .bias = 9, .count = 7});  // and may not follow
  const TensorView x = device.floats(std::vector<float>{1, 4, 8, 6, 5, 0}, {1, 6});
  backend->edit_logits({.x = x,
                        .rules = device.ints(rules, {1, kEditWords}),
                        .changes = device.ints(changes, {4, kChangeWords}),
                        .masks = device.ints(std::vector<std::int32_t>{0b001111}, {1, 1})});
  EXPECT_EQ(device.read(x), (std::vector<float>{4, -2, 2.5F, 6, -kInfinity, -kInfinity}));
}

}  // namespace
}  // namespace llorch::compute::test
