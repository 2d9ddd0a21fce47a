// The socket of a service manager, as programs that are started by one find it.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace llorch::test {

class NotifySocket {
 public:
  explicit NotifySocket(const std::filesystem::path& path);
  ~NotifySocket();
  NotifySocket(const NotifySocket&) = delete;
  NotifySocket& operator=(const NotifySocket&) = delete;

  // For the environment of a program: NOTIFY_SOCKET=…
  std::string variable() const { return "NOTIFY_SOCKET=" + name_; }
  // Waits until what was told has this in it.
  bool hears(std::string_view text);
  // Everything that was told, a line end behind each message.
  const std::string& heard() const { return heard_; }

 private:
  std::string name_;
  int socket_;
  std::string heard_;
};

}  // namespace llorch::test
