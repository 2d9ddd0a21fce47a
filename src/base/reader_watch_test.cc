#include "base/reader_watch.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>

#include "base/interrupt.h"
#include "support/eventually.h"

namespace llorch::base {
namespace {

using test::eventually;

TEST(ReaderWatch, InterruptsWhenNobodyReadsAnyMore) {
  for (const bool is_pipe : {true, false}) {
    std::array<int, 2> ends{};  // the reader's, ours
    ASSERT_EQ(is_pipe ? ::pipe(ends.data()) : ::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()),
              0);
    const int second_reader = ::dup(ends[0]);
    std::atomic<int> calls = 0;
    const InterruptWatch interrupts([&calls] { ++calls; });
    const ReaderWatch watch(ends[1]);
    ::close(ends[0]);
    EXPECT_EQ(calls, 0) << "somebody still reads";
    ::close(second_reader);
    EXPECT_TRUE(eventually([&] { return calls == 1; })) << (is_pipe ? "pipe" : "socket");
    ::close(ends[1]);
  }
}

TEST(ReaderWatch, EndsWithoutASignal) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const InterruptWatch interrupts([] {});
  { const ReaderWatch watch(ends[1]); }
  { const ReaderWatch watch(-1); }
  ::close(ends[0]);
  ::close(ends[1]);
  EXPECT_FALSE(interrupts.interrupted());
}

}  // namespace
}  // namespace llorch::base
