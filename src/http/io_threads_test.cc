#include "http/io_threads.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>

#include "http/feed.h"

namespace llorch::http {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(IoThreads, RunsCoroutinesThatWait) {
  IoThreads threads(2);
  const auto feed = std::make_shared<EventFeed<int>>(1);
  const auto got = std::make_shared<std::promise<int>>();
  threads.spawn([feed, got]() -> Task<void> {
    const auto next = co_await feed->next(milliseconds(60'000));
    got->set_value(next.item.value_or(0));
  });
  ASSERT_TRUE(feed->try_push(7));
  std::future<int> answer = got->get_future();
  ASSERT_EQ(answer.wait_for(seconds(60)), std::future_status::ready);
  EXPECT_EQ(answer.get(), 7);
}

TEST(IoThreads, GoesOnAfterACoroutineThrew) {
  IoThreads threads(1);
  threads.spawn([]() -> Task<void> {
    throw std::runtime_error("on purpose");
    co_return;
  });
  const auto done = std::make_shared<std::promise<void>>();
  threads.spawn([done]() -> Task<void> {
    done->set_value();
    co_return;
  });
  EXPECT_EQ(done->get_future().wait_for(seconds(60)), std::future_status::ready);
}

TEST(IoThreads, StopDestroysWhatStillWaits) {
  IoThreads threads(2);
  const auto held = std::make_shared<int>(1);
  const auto begun = std::make_shared<std::promise<void>>();
  threads.spawn([held, begun]() -> Task<void> {
    Waker waker;
    begun->set_value();
    co_await waker.wait_until(std::chrono::steady_clock::now() + std::chrono::hours(1));
  });
  begun->get_future().wait();
  threads.stop();
  EXPECT_EQ(held.use_count(), 1);
  threads.stop();
  threads.spawn([held]() -> Task<void> { co_return; });  // nothing happens
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace
}  // namespace llorch::http
