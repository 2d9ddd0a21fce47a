// The store of one orchestrator in one SQLite file.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "job_store/store.h"

namespace llorch::job_store {

struct SqliteOptions {
  std::filesystem::path file;  // made where it is not there; its folder must be
  // Bounds of what waits to be written. Submissions, answers and entries may fill seven eighths;
  // the rest is for the records of jobs that are there already.
  std::size_t max_waiting = 32'768;
  std::size_t max_waiting_bytes = std::size_t{128} << 20;
  // Bounds of one transaction.
  std::size_t max_group = 512;
  std::size_t max_group_bytes = std::size_t{4} << 20;
  std::chrono::milliseconds lazy{200};          // the longest that a lazy write waits
  std::chrono::milliseconds lease_patience{0};  // for a process that is about to end
};

// Takes the lease (one process for each file), opens and migrates. Conflict names the holder;
// Corrupt, Unsupported, Forbidden and Unavailable say what to do. Destroying the store writes what
// waits and lets the listener hear of it.
Result<std::unique_ptr<Store>> open_sqlite_store(const SqliteOptions& options,
                                                 OnWritten on_written);

// One entry of a store that another process may be using now. Nothing: there is no such entry, or
// no store.
Result<std::optional<std::string>> read_entry(const std::filesystem::path& file,
                                              fleet::Bucket bucket, std::string_view key);

// What a backup holds, after its SHA-256 was compared and every page of it was looked at.
struct BackupReport {
  // It has its SHA-256. Copies made before there was one do not: of those, damage inside a text or
  // a number goes unnoticed.
  bool is_sealed = false;
  std::int64_t num_jobs = 0;
  std::int64_t num_open_jobs = 0;
  std::int64_t num_entries = 0;
  std::filesystem::path kept;  // restored: where the old file is now; empty: there was none
};
Result<BackupReport> check_backup(const std::filesystem::path& file);

// Puts a checked backup into the place of `file`, which is kept beside it as FILE.before-restore,
// or -2, -3… where that is taken.
// Conflict while an orchestrator has the lease. The boot counter goes on far above the backup's, so
// that no attempt from before is taken for a new one.
Result<BackupReport> restore_backup(const std::filesystem::path& backup,
                                    const std::filesystem::path& file);

}  // namespace llorch::job_store
