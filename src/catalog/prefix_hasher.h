// Hashes of a whole file while it is still being written: a thread reads what is final, in order,
// so that little is left to do at the end. Private to catalog/.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/positioned_file.h"
#include "base/result.h"

namespace llorch::catalog {

struct WholeHashes {
  std::string sha256;         // hex
  std::string sha512_base64;  // empty unless asked for
  std::string git_sha1;       // hex, of git's "blob <size>" form; empty unless asked for
};

class PrefixHasher {
 public:
  struct Wanted {
    bool sha512 = false;
    bool git_sha1 = false;
  };

  PrefixHasher(std::shared_ptr<base::PositionedFile> file, std::int64_t size, Wanted wanted);
  ~PrefixHasher();
  PrefixHasher(const PrefixHasher&) = delete;
  PrefixHasher& operator=(const PrefixHasher&) = delete;

  // The first `bytes` of the file will not change any more. Never less than before.
  void advance(std::int64_t bytes);

  std::int64_t hashed() const;
  // Waits for the end of the file at most so long; nothing: not there yet.
  std::optional<Result<WholeHashes>> wait(std::chrono::milliseconds patience);

 private:
  void work(const std::stop_token& stop);
  void finish(std::optional<Result<WholeHashes>> result);

  const std::shared_ptr<base::PositionedFile> file_;
  const std::int64_t size_;
  const Wanted wanted_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::int64_t final_ = 0;  // guarded by mutex_, as the next two
  std::int64_t hashed_ = 0;
  std::optional<Result<WholeHashes>> result_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace llorch::catalog
