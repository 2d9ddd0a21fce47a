// The database's file: who may use it, its schema and how that grew, copies of it. Private to the
// module.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "base/result.h"
#include "job_store/sqlite.h"

namespace llorch::job_store {

// Opens the file for its one writer, making it (0600) where it is not there and bringing an older
// schema up to ours. Only for the holder of its lease.
Result<std::unique_ptr<Connection>> open_for_writing(const std::filesystem::path& file);

// Whether it is one of ours, of a version that we know: Corrupt, Unsupported.
Status check_identity(const Connection& connection, const std::filesystem::path& file);

// The lock file that stands for the lease.
std::filesystem::path lease_file(const std::filesystem::path& file);

// A whole copy of what `source` reads, in a file of its own for its owner alone, looked through
// before it gets its name.
Status write_backup(const Connection& source, const std::filesystem::path& file);

// What the schema's meta table counts.
inline constexpr const char* kBootCounter = "boot";
inline constexpr const char* kRevisionCounter = "revision";
Result<std::int64_t> read_counter(const Connection& connection, const char* name);
Status write_counter(const Connection& connection, const char* name, std::int64_t value);

}  // namespace llorch::job_store
