// Connections to a server of this machine that never say anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace llorch::test {

// Raises this process's own limit where it can. False: the hard limit is below `wanted`.
bool allow_descriptors(std::size_t wanted);

class IdleSockets {
 public:
  IdleSockets(std::uint16_t port, std::size_t count);
  ~IdleSockets();
  IdleSockets(const IdleSockets&) = delete;
  IdleSockets& operator=(const IdleSockets&) = delete;

  std::size_t num_connected() const { return sockets_.size(); }

 private:
  std::vector<int> sockets_;
};

}  // namespace llorch::test
