#include "base/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace llorch::base {
namespace {

void hold(int descriptor, int flags) {
  if (::fcntl(descriptor, F_GETFD) != -1 || errno != EBADF) return;
  // The lowest free number is this one, as those below are held already.
  const int opened = ::open("/dev/null", flags);
  if (opened == -1 || opened == descriptor) return;
  ::close(opened);
}

}  // namespace

void hold_standard_streams() {
  hold(STDIN_FILENO, O_RDONLY);
  hold(STDOUT_FILENO, O_RDONLY);
  hold(STDERR_FILENO, O_WRONLY);
}

}  // namespace llorch::base
