// Hashes of a whole file while it is still being written: a thread reads what is final, in order,
// so that little is left to do at the end. Private to fetch/.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "base/mutex.h"
#include "base/positioned_file.h"
#include "base/result.h"

namespace llorch::fetch {

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
  // The hashes, or nothing when the object goes before the file is whole.
  std::optional<Result<WholeHashes>> work();
  // Waits for more than the first `at` bytes. The end of what is final; nothing when it goes.
  std::optional<std::int64_t> wait_for_more(std::int64_t at) LLORCH_EXCLUDES(mutex_);

  const std::shared_ptr<base::PositionedFile> file_;
  const std::int64_t size_;
  const Wanted wanted_;
  mutable base::Mutex mutex_;
  base::CondVar changed_;
  std::int64_t final_ LLORCH_GUARDED_BY(mutex_) = 0;
  std::int64_t hashed_ LLORCH_GUARDED_BY(mutex_) = 0;
  bool stopping_ LLORCH_GUARDED_BY(mutex_) = false;
  std::optional<Result<WholeHashes>> result_ LLORCH_GUARDED_BY(mutex_);
  std::jthread thread_;  // last: it uses the others
};

}  // namespace llorch::fetch
