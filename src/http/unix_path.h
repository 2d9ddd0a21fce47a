// A unix socket in the file system that a server listens on. Private to http/.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace llorch::http {

class UnixPath {
 public:
  UnixPath() = default;
  ~UnixPath() { remove(); }
  UnixPath(const UnixPath&) = delete;
  UnixPath& operator=(const UnixPath&) = delete;

  // A descriptor that listens there, the caller's: mode 0600, its folder 0700 where it had to be
  // made. What a process that is gone left is replaced; Conflict when a living one listens.
  Result<int> bind(const std::string& path);
  bool is_bound() const { return !path_.empty(); }
  // Unless somebody has put another one in its place.
  void remove();

 private:
  std::string path_;
  std::uint64_t device_ = 0;
  std::uint64_t inode_ = 0;
};

}  // namespace llorch::http
