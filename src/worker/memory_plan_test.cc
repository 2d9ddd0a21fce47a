#include "worker/memory_plan.h"

#include <gtest/gtest.h>

#include "contract/model_entry.h"

namespace llorch::worker {
namespace {

WorkerOptions builtin_options() {
  WorkerOptions options;
  options.model = contract::kBuiltinModel;
  options.threads = 1;
  return options;
}

TEST(PlanMemory, OneCardHasNoListOfCards) {
  const auto need = plan_memory(builtin_options(), {{"cuda:0"}});
  ASSERT_TRUE(need.ok()) << need.error().message;
  EXPECT_TRUE(need->cards.empty());
  EXPECT_GT(need->host_bytes, 0);
}

TEST(PlanMemory, SeveralCardsShareTheModelAndEachIsTold) {
  const auto whole = plan_memory(builtin_options(), {{"cuda:0"}}).take();
  const auto need = plan_memory(builtin_options(), {{"cuda:0", "cuda:3"}}).take();
  ASSERT_EQ(need.cards.size(), 2U);
  EXPECT_EQ(need.cards[0].device, "cuda:0");
  EXPECT_EQ(need.cards[1].device, "cuda:3");
  std::int64_t sum = 0;
  for (const contract::CardNeed& card : need.cards) {
    EXPECT_EQ(card.kv_bytes, whole.kv_bytes / 2) << "half of the layers";
    EXPECT_EQ(card.runtime_bytes, whole.runtime_bytes) << "a context on each";
    EXPECT_GT(card.weights_bytes, 0);
    EXPECT_LT(card.weights_bytes, whole.weights_bytes);
    sum += card.weights_bytes + card.kv_bytes + card.scratch_bytes + card.runtime_bytes;
  }
  EXPECT_EQ(need.kv_bytes, whole.kv_bytes);
  EXPECT_EQ(need.device_bytes(), sum);
  EXPECT_GT(need.device_bytes(), whole.device_bytes());
}

TEST(PlanMemory, MoreCardsThanLayersAreRefused) {
  const std::vector<std::string> devices(16, "cuda:0");
  const auto need = plan_memory(builtin_options(), devices);
  ASSERT_FALSE(need.ok());
  EXPECT_NE(need.error().message.find("layers cannot be shared by 16 devices"), std::string::npos);
}

}  // namespace
}  // namespace llorch::worker
