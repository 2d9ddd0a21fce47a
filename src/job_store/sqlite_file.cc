#include "job_store/sqlite_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/file_lock.h"
#include "job_store/file_seal.h"
#include "job_store/sqlite_store.h"

namespace llorch::job_store {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kApplicationId = 0x6c6c6f72;  // "llor"
// Added to the boot counter of a restored file: above every boot that came after the backup, so
// that pools and attempts from then are never taken for new ones.
constexpr std::int64_t kRestoredBoots = 1'000'000;

// Each brings the schema one version further; user_version counts them. Never changed, only added
// to.
constexpr std::array kMigrations = {
    // job.state is a fleet::JobState, 0 while it lives; kept_bytes: body and answer of an ended
    // one.
    // answer.first: ids told before the group; upto: the position behind it.
    "CREATE TABLE job(n INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, key_id INTEGER NOT NULL, "
    "idem TEXT,"
    "  state INTEGER NOT NULL, submitted_ms INTEGER NOT NULL, ended_ms INTEGER,"
    "  kept_bytes INTEGER NOT NULL DEFAULT 0);"
    "CREATE TABLE record(job INTEGER, seq INTEGER, kind INTEGER NOT NULL, body BLOB NOT NULL,"
    "  PRIMARY KEY(job, seq)) WITHOUT ROWID;"
    "CREATE TABLE body(job INTEGER PRIMARY KEY, body BLOB NOT NULL);"
    "CREATE TABLE answer(job INTEGER, part INTEGER, first INTEGER NOT NULL, count INTEGER NOT NULL,"
    "  boot INTEGER NOT NULL, attempt INTEGER NOT NULL, start BLOB NOT NULL, upto BLOB NOT NULL,"
    "  ids BLOB NOT NULL, events BLOB NOT NULL, PRIMARY KEY(job, part)) WITHOUT ROWID;"
    "CREATE TABLE entry(bucket INTEGER, key TEXT, value BLOB NOT NULL, revision INTEGER NOT NULL,"
    "  PRIMARY KEY(bucket, key)) WITHOUT ROWID;"
    "CREATE TABLE meta(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;"
    "INSERT INTO meta VALUES('boot', 0), ('revision', 0);"
    "CREATE INDEX job_open ON job(n) WHERE ended_ms IS NULL;"
    "CREATE INDEX job_ended ON job(ended_ms) WHERE ended_ms IS NOT NULL;"
    "CREATE INDEX job_kept ON job(ended_ms, kept_bytes) WHERE kept_bytes > 0;"
    "CREATE UNIQUE INDEX job_idem ON job(key_id, idem) WHERE idem IS NOT NULL;"
    "CREATE INDEX job_idem_age ON job(submitted_ms) WHERE idem IS NOT NULL;",
};

// The writer decides when the log is moved over; readers are never in its way.
constexpr const char* kWriterSettings =
    "PRAGMA synchronous=FULL; PRAGMA journal_size_limit=67108864; PRAGMA cell_size_check=ON; "
    "PRAGMA temp_store=MEMORY;";

// Made by us, so that it is never readable to others, not even for a moment. One that is there
// stays.
Status make_file(const fs::path& file) {
  const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0)
    return Error{ErrorCode::Forbidden,
                 fmt::format("{} cannot be opened: {}", file.string(), std::strerror(errno))};
  ::close(fd);
  base::make_private(file);
  return ok_status();
}

// A log beside the file, which readers share memory over; not every file system can do that.
Status begin_log(Connection& connection, const fs::path& file) {
  Result<Statement> statement = connection.prepare("PRAGMA journal_mode=WAL");
  if (!statement.ok()) return statement.error();
  const Result<bool> row = statement->step();
  if (!row.ok()) return row.error();
  if (statement->bytes(0) != "wal")
    return Error{ErrorCode::Unsupported,
                 fmt::format("{} lies on a file system without shared memory (a network's?); let "
                             "LLORCH_HOME name a folder on a local disk",
                             file.string())};
  connection.keep_log();
  return ok_status();
}

Status migrate(const Connection& connection, std::int64_t version) {
  for (auto i = static_cast<std::size_t>(version); i < kMigrations.size(); ++i) {
    const std::string script =
        fmt::format("BEGIN IMMEDIATE; {} PRAGMA application_id={}; PRAGMA user_version={}; COMMIT;",
                    kMigrations[i], kApplicationId, i + 1);
    if (const Status done = connection.execute(script.c_str()); !done.ok()) return done;
  }
  return ok_status();
}

std::string free_name(const std::string& wanted) {
  std::error_code error;
  std::string name = wanted;
  for (int i = 2; fs::exists(name, error); ++i) name = fmt::format("{}-{}", wanted, i);
  return name;
}

// What was there stays beside it, whole: a damaged one may still hold what the backup lacks. Until
// the new file takes the name, the old one has it too. Empty: there was nothing.
Result<fs::path> keep_old(const fs::path& file) {
  std::error_code error;
  if (!fs::exists(file, error)) return fs::path();
  // Opening and closing a good one moves its log into it.
  if (const auto old = Connection::open(file, Connection::Mode::Write); old.ok()) [[maybe_unused]]
    const auto looked = (*old)->query_integer("SELECT count(*) FROM sqlite_schema");
  const std::string kept = free_name(file.string() + ".before-restore");
  fs::create_hard_link(file, kept, error);
  if (error) fs::copy_file(file, kept, error);
  // The log of a damaged one must not be taken for the new one's.
  if (!error && fs::exists(file.string() + "-wal"))
    fs::rename(file.string() + "-wal", kept + "-wal", error);
  if (!error) fs::remove(file.string() + "-shm", error);
  if (!error) return fs::path(kept);
  return Error{ErrorCode::Forbidden,
               fmt::format("{} cannot be kept as {}: {}", file.string(), kept, error.message())};
}

Status sync_file(const fs::path& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  const bool is_good = fd >= 0 && ::fsync(fd) == 0;
  const int number = errno;
  if (fd >= 0) ::close(fd);
  if (is_good) return ok_status();
  return Error{ErrorCode::Unavailable,
               fmt::format("{} cannot be synced: {}", file.string(), std::strerror(number))};
}

// Moves it into place so that a crash leaves the old file or the new one.
Status rename_durably(const fs::path& from, const fs::path& to) {
  if (const Status synced = sync_file(from); !synced.ok()) return synced;
  std::error_code error;
  fs::rename(from, to, error);
  if (error)
    return Error{ErrorCode::Forbidden, fmt::format("{} cannot be named {}: {}", from.string(),
                                                   to.string(), error.message())};
  return sync_file(to.parent_path().empty() ? fs::path(".") : to.parent_path());
}

// Into a fresh file beside `file`, which becomes complete in itself: no log beside it.
Status copy_whole(const Connection& source, const fs::path& file) {
  if (const Status made = make_file(file); !made.ok()) return made;
  Result<std::unique_ptr<Connection>> target = Connection::open(file, Connection::Mode::Write);
  if (!target.ok()) return target.error();
  if (const Status copied = source.copy_to(**target); !copied.ok()) return copied;
  return (*target)->execute("PRAGMA journal_mode=DELETE;");
}

}  // namespace

fs::path lease_file(const fs::path& file) {
  return file.string() + ".lock";
}

Status check_identity(const Connection& connection, const fs::path& file) {
  const Result<std::int64_t> id = connection.query_integer("PRAGMA application_id");
  const Result<std::int64_t> version = connection.query_integer("PRAGMA user_version");
  if (!id.ok()) return id.error();
  if (!version.ok()) return version.error();
  if (*id != kApplicationId)
    return Error{
        ErrorCode::Corrupt,
        fmt::format("{} is a database of another program; name another file", file.string())};
  if (*version < 1 || *version > static_cast<std::int64_t>(kMigrations.size()))
    return Error{
        ErrorCode::Unsupported,
        fmt::format("{} was written by a newer llorch (schema {}, this one knows {}): update "
                    "this program, or restore a backup from before",
                    file.string(), *version, kMigrations.size())};
  return ok_status();
}

Result<std::unique_ptr<Connection>> open_for_writing(const fs::path& file) {
  if (const Status made = make_file(file); !made.ok()) return made.error();
  Result<std::unique_ptr<Connection>> connection = Connection::open(file, Connection::Mode::Create);
  if (!connection.ok()) return connection;
  const Result<std::int64_t> num_tables =
      (*connection)->query_integer("SELECT count(*) FROM sqlite_schema");
  if (!num_tables.ok()) return num_tables.error();
  // An empty file is ours to make; vacuuming must be chosen before its first table.
  std::int64_t version = 0;
  Status ready = ok_status();
  if (*num_tables == 0) {
    ready = (*connection)->execute("PRAGMA auto_vacuum=INCREMENTAL;");
  } else {
    ready = check_identity(**connection, file);
    const Result<std::int64_t> found = (*connection)->query_integer("PRAGMA user_version");
    if (found.ok()) version = *found;
  }
  if (ready.ok()) ready = begin_log(**connection, file);
  if (ready.ok()) ready = (*connection)->execute(kWriterSettings);
  if (ready.ok()) ready = migrate(**connection, version);
  if (!ready.ok()) return ready.error();
  return connection;
}

Result<std::int64_t> read_counter(const Connection& connection, const char* name) {
  return connection.query_integer(fmt::format("SELECT value FROM meta WHERE name='{}'", name));
}

Status write_counter(const Connection& connection, const char* name, std::int64_t value) {
  return connection.execute(
      fmt::format("UPDATE meta SET value={} WHERE name='{}'", value, name).c_str());
}

Status write_backup(const Connection& source, const fs::path& file) {
  std::error_code error;
  if (fs::exists(file, error))
    return Error{ErrorCode::Conflict,
                 fmt::format("{} is there already; name a file that is not", file.string())};
  const fs::path folder = file.has_parent_path() ? file.parent_path() : fs::path(".");
  if (!fs::is_directory(folder, error))
    return Error{
        ErrorCode::NotFound,
        fmt::format("there is no folder {}: make it, or name a file elsewhere", folder.string())};
  const fs::path part = file.string() + ".part";
  fs::remove(part, error);
  Status done = copy_whole(source, part);
  if (done.ok()) {
    const Result<BackupReport> report = check_backup(part);
    if (!report.ok()) done = report.error();
  }
  if (done.ok()) done = seal_file(part);
  if (done.ok()) done = rename_durably(part, file);
  if (!done.ok()) fs::remove(part, error);
  return done;
}

Result<BackupReport> check_backup(const fs::path& file) {
  std::error_code missing;
  if (!fs::exists(file, missing))
    return Error{ErrorCode::NotFound, fmt::format("there is no file {}", file.string())};
  const Result<bool> is_sealed = check_seal(file);
  if (!is_sealed.ok()) return is_sealed.error();
  Result<std::unique_ptr<Connection>> connection = Connection::open(file, Connection::Mode::Read);
  if (!connection.ok()) return connection.error();
  if (const Status known = check_identity(**connection, file); !known.ok()) return known.error();
  Result<Statement> check = (*connection)->prepare("PRAGMA integrity_check(1)");
  if (!check.ok()) return check.error();
  const Result<bool> row = check->step();
  if (!row.ok()) return row.error();
  if (check->bytes(0) != "ok")
    return Error{ErrorCode::Corrupt, fmt::format("{} is damaged: {}; take another backup",
                                                 file.string(), check->bytes(0))};
  BackupReport report;
  report.is_sealed = *is_sealed;
  for (const auto& [sql, count] :
       {std::pair("SELECT count(*) FROM job", &report.num_jobs),
        std::pair("SELECT count(*) FROM job WHERE ended_ms IS NULL", &report.num_open_jobs),
        std::pair("SELECT count(*) FROM entry", &report.num_entries)}) {
    const Result<std::int64_t> found = (*connection)->query_integer(sql);
    if (!found.ok()) return found.error();
    *count = *found;
  }
  return report;
}

Result<BackupReport> restore_backup(const fs::path& backup, const fs::path& file) {
  Result<BackupReport> report = check_backup(backup);
  if (!report.ok()) return report;
  Result<std::unique_ptr<base::FileLock>> lease =
      base::FileLock::acquire(lease_file(file), std::chrono::milliseconds(0));
  if (!lease.ok()) return lease.error().in("stop orchestratord first");
  const fs::path part = file.string() + ".part";
  std::error_code error;
  fs::remove(part, error);
  {
    Result<std::unique_ptr<Connection>> source = Connection::open(backup, Connection::Mode::Read);
    if (!source.ok()) return source.error();
    if (const Status copied = copy_whole(**source, part); !copied.ok()) return copied.error();
    Result<std::unique_ptr<Connection>> copy = Connection::open(part, Connection::Mode::Write);
    if (!copy.ok()) return copy.error();
    const Result<std::int64_t> boot = read_counter(**copy, kBootCounter);
    if (!boot.ok()) return boot.error();
    const Status raised = write_counter(**copy, kBootCounter, *boot + kRestoredBoots);
    if (!raised.ok()) return raised.error();
  }
  const Result<fs::path> kept = keep_old(file);
  if (!kept.ok()) return kept.error();
  report->kept = *kept;
  if (const Status moved = rename_durably(part, file); !moved.ok()) return moved.error();
  return report;
}

}  // namespace llorch::job_store
