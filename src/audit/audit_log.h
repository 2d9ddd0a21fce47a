// AuditLog: appends to the audit log of a home. Each line is on the disk before whoever waits for
// it goes on.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "audit/audit_chain.h"
#include "audit/audit_files.h"
#include "base/mutex.h"
#include "base/owner_loop.h"
#include "base/result.h"

namespace llorch::audit {

struct LogOptions {
  std::filesystem::path folder;  // must be there
  std::optional<Anchor> anchor;  // what the store says; nothing: it has never heard of a log
  // Keeps the anchor where an attacker of the files does not reach it; called on the log's thread,
  // durable when it returns.
  std::function<Status(const Anchor& anchor)> keep_anchor;
  std::int64_t file_bytes = std::int64_t{8} << 20;  // then the next file begins
  std::size_t old_files = 8;                        // the oldest go
};

// Any thread, but for the constructor. One process for each folder: whoever has the store's lease.
class AuditLog {
 public:
  // Goes on behind the last line. A line that a killed writer left unfinished is taken away, lines
  // that the store knows and nobody finds are left out of the count; either is itself written down.
  static Result<std::unique_ptr<AuditLog>> open(LogOptions options);
  ~AuditLog();
  AuditLog(const AuditLog&) = delete;
  AuditLog& operator=(const AuditLog&) = delete;

  // Waits for the disk: not on an io thread. An error: the line, or the store's knowledge of it, is
  // not there.
  Status append(const Act& act);
  // Does not wait, and says nothing where the log cannot keep up.
  void note(const Act& act);
  // The same for requests of strangers, who could fill the disk: a few lines a minute, the rest is
  // counted and told by the next.
  void note_refusal(const std::string& key, const std::string& path, std::string_view result);

  Head head() const;

 private:
  class Writer;
  explicit AuditLog(std::unique_ptr<Writer> writer);

  mutable base::Mutex mutex_;
  Head head_ LLORCH_GUARDED_BY(mutex_);
  std::chrono::steady_clock::time_point minute_ LLORCH_GUARDED_BY(mutex_);
  int refusals_ LLORCH_GUARDED_BY(mutex_) = 0;
  std::size_t left_out_ LLORCH_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<Writer> writer_;  // of the loop's thread
  base::OwnerLoop loop_;            // last: it uses the others
};

}  // namespace llorch::audit
