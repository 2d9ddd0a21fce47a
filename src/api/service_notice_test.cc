#include "api/service_notice.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>

#include "support/test_paths.h"

namespace llorch::api {
namespace {

// A socket as systemd's; empty when nothing came.
class Listener {
 public:
  explicit Listener(const std::string& name) : fd_(::socket(AF_UNIX, SOCK_DGRAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::copy(name.begin(), name.end(), std::begin(address.sun_path));
    if (name[0] == '@') address.sun_path[0] = '\0';
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
    EXPECT_EQ(::bind(fd_, reinterpret_cast<const sockaddr*>(&address), length), 0);
  }
  ~Listener() { ::close(fd_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  std::string receive() const {
    std::array<char, 256> buffer{};
    const ssize_t got = ::recv(fd_, buffer.data(), buffer.size(), MSG_DONTWAIT);
    return got > 0 ? std::string(buffer.data(), static_cast<std::size_t>(got)) : "";
  }

 private:
  int fd_;
};

TEST(ServiceNotice, ReachesASocketOnDiskAndAnAbstractOne) {
  const llorch::test::TempDir folder;
  for (const std::string& name :
       {(folder / "notify").string(), "@llorch-test-" + std::to_string(::getpid())}) {
    const Listener listener(name);
    EXPECT_TRUE(send_service_notice(name.c_str(), "READY=1"));
    EXPECT_EQ(listener.receive(), "READY=1") << name;
  }
}

TEST(ServiceNotice, NobodyListeningIsNoError) {
  EXPECT_FALSE(send_service_notice(nullptr, "READY=1"));
  EXPECT_FALSE(send_service_notice("", "READY=1"));
  EXPECT_FALSE(send_service_notice("relative", "READY=1"));
  EXPECT_FALSE(send_service_notice("/nowhere/at/all", "READY=1"));
  EXPECT_FALSE(send_service_notice(std::string(300, '/').c_str(), "READY=1"));
}

}  // namespace
}  // namespace llorch::api
