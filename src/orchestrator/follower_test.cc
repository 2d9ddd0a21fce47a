#include "orchestrator/follower.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace llorch::orchestrator {
namespace {

fleet::Position position(std::string_view text) {
  return fleet::position_from_text(text).value();
}

std::string event(std::string_view id, std::string_view data) {
  return fmt::format("id: {}\ndata: {}\n\n", id, data);
}

TEST(EventFilter, PassesWhatIsBehindTheLastPosition) {
  EventFilter filter(position("2"), position("0"));
  EXPECT_EQ(filter.take(event("1", "a") + event("2", "b")), "");
  EXPECT_TRUE(filter.is_open());
  EXPECT_EQ(filter.take(event("3", "c")), event("3", "c"));
}

TEST(EventFilter, WhoeverComesBackTwiceHearsNothingTwice) {
  // Its first connection ended ahead in choice 0; made again, choice 1 is the one that is ahead.
  EventFilter filter(position("5.3"), position("3.3"));
  EXPECT_EQ(filter.take(event("3.4", "one 4")), event("5.4", "one 4"))
      << "it has still seen five ids of choice 0";
  EXPECT_EQ(filter.take(event("4.4", "zero 4") + event("5.4", "zero 5")), "");
  EXPECT_TRUE(filter.is_open());

  EventFilter again(position("5.4"), position("3.3"));
  EXPECT_EQ(again.take(event("3.4", "one 4") + event("4.4", "zero 4") + event("5.4", "zero 5") +
                       event("6.4", "zero 6")),
            event("6.4", "zero 6"));
}

}  // namespace
}  // namespace llorch::orchestrator
