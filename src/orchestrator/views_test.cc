#include "orchestrator/views.h"

#include <gtest/gtest.h>

#include "fleet/test_house.h"

namespace llorch::orchestrator {
namespace {

class Views : public fleet::House {
 protected:
  contract::TaskView view(const fleet::JobId& id) const {
    return view_of_live(fleet, job(id), now);
  }
};

TEST_F(Views, WhatIsPredictedOfAJobThatNobodyFollowsIsOfNow) {
  add_host("a", {worker("w", 1, /*slots=*/1)});
  submit_task({.max_tokens = 100});
  begin_attempt();
  const fleet::JobId before = submit_task({.holder = fleet::Holder::Detached, .max_tokens = 4000});
  const fleet::JobId waiting = submit_task({.holder = fleet::Holder::Detached});
  EXPECT_EQ(view(waiting).queue_position, 2);
  const double first = view(waiting).predicted_start_ms.value_or(0);
  EXPECT_GT(first, 5'000) << "a long one comes before it";
  feed(fleet::StopAsked{.job = before, .cause = fleet::StopCause::Asked});
  sync();
  EXPECT_EQ(view(waiting).queue_position, 1);
  EXPECT_LT(view(waiting).predicted_start_ms.value_or(first), first / 2);
}

}  // namespace
}  // namespace llorch::orchestrator
