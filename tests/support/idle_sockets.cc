#include "support/idle_sockets.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "support/listener.h"

namespace llorch::test {

bool allow_descriptors(std::size_t wanted) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur >= wanted) return true;
  limit.rlim_cur = std::min<rlim_t>(wanted, limit.rlim_max);
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= wanted;
}

IdleSockets::IdleSockets(std::uint16_t port, std::size_t count) {
  while (sockets_.size() < count) {
    const int fd = connect_to(port);
    if (fd < 0) return;
    sockets_.push_back(fd);
  }
}

IdleSockets::~IdleSockets() {
  for (const int fd : sockets_) ::close(fd);
}

}  // namespace llorch::test
