#include "base/descriptors.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

namespace llorch::base {
namespace {

TEST(Descriptors, TheLimitIsRaisedToTheHardOne) {
  // In a child: the limit is the whole process's.
  const pid_t child = ::fork();
  if (child == 0) {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_max = std::min<rlim_t>(limit.rlim_max, 300);
    limit.rlim_cur = 100;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    const bool is_raised = raise_descriptor_limit() == limit.rlim_max;
    ::getrlimit(RLIMIT_NOFILE, &limit);
    ::_exit(is_raised && limit.rlim_cur == limit.rlim_max ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(Descriptors, ConnectionsLeaveAReserve) {
  EXPECT_EQ(connections_within(4096, 512), 3584u);
  EXPECT_EQ(connections_within(65'536, 512), 8192u);
  EXPECT_EQ(connections_within(256, 512), 128u);
  EXPECT_EQ(connections_within(0, 512), 1u);
}

}  // namespace
}  // namespace llorch::base
