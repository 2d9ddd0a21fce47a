#include "support/notify_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "support/eventually.h"

namespace llorch::test {

NotifySocket::NotifySocket(const std::filesystem::path& path)
    : name_(path.string()), socket_(::socket(AF_UNIX, SOCK_DGRAM, 0)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  EXPECT_LT(name_.size(), sizeof(address.sun_path));
  std::copy_n(name_.begin(), std::min(name_.size(), sizeof(address.sun_path) - 1),
              std::begin(address.sun_path));
  EXPECT_EQ(::bind(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
}

NotifySocket::~NotifySocket() {
  ::close(socket_);
}

bool NotifySocket::hears(std::string_view text) {
  return eventually([&] {
    std::array<char, 512> buffer{};
    const ssize_t got = ::recv(socket_, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got > 0) heard_ += std::string(buffer.data(), static_cast<std::size_t>(got)) + "\n";
    return heard_.find(text) != std::string::npos;
  });
}

}  // namespace llorch::test
