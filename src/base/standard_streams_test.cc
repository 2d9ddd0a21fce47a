#include "base/standard_streams.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace llorch::base {
namespace {

// In a child, as the streams are the whole process's.
int exit_code_of(const std::function<bool()>& check) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(check() ? 0 : 1);
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(StandardStreams, ClosedOnesAreHeldSoThatNoFileGetsTheirNumbers) {
  EXPECT_EQ(exit_code_of([] {
              for (int stream = 0; stream < 3; ++stream) ::close(stream);
              hold_standard_streams();
              return ::open("/dev/null", O_RDONLY) > 2;
            }),
            0);
}

TEST(StandardStreams, AnyOfThemMayBeTheClosedOne) {
  for (int closed = 0; closed < 3; ++closed) {
    EXPECT_EQ(exit_code_of([closed] {
                ::close(closed);
                hold_standard_streams();
                return ::fcntl(closed, F_GETFD) != -1 && ::open("/dev/null", O_RDONLY) > 2;
              }),
              0)
        << "descriptor " << closed;
  }
}

TEST(StandardStreams, StdinIsAtItsEndStdoutFailsAndStderrForgets) {
  EXPECT_EQ(exit_code_of([] {
              for (int stream = 0; stream < 3; ++stream) ::close(stream);
              hold_standard_streams();
              char byte = 'x';
              return ::read(0, &byte, 1) == 0 && ::write(1, &byte, 1) == -1 &&
                     ::write(2, &byte, 1) == 1;
            }),
            0);
}

TEST(StandardStreams, OpenOnesStayWhatTheyAre) {
  EXPECT_EQ(exit_code_of([] {
              int ends[2];
              if (::pipe(ends) != 0) return false;
              ::dup2(ends[1], 1);
              hold_standard_streams();
              char byte = 'x';
              return ::write(1, &byte, 1) == 1 && ::read(ends[0], &byte, 1) == 1;
            }),
            0);
}

}  // namespace
}  // namespace llorch::base
