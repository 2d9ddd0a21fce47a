#include "job_store/sqlite.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace llorch::job_store {
namespace {

constexpr int kBusyPatienceMs = 5000;
// What is bound stays where it is until the statement is reset (SQLITE_STATIC).
constexpr sqlite3_destructor_type kStays = nullptr;

std::string advice_for_damage(const std::string& file) {
  return fmt::format(
      "the file is damaged. Nothing was changed. Restore a backup (`llorch restore FILE`), or move "
      "{0} and {0}-wal away to begin with no jobs, hosts and keys; `sqlite3 {0} .recover` may save "
      "some of it",
      file);
}

// What an expected failure of SQLite means to whoever runs the orchestrator.
Error explain(int code, int system_error, const std::string& file, std::string_view said) {
  const std::string reason =
      system_error != 0 ? std::string(std::strerror(system_error)) : std::string(said);
  switch (code & 0xff) {
    case SQLITE_CONSTRAINT:
      return {ErrorCode::Conflict, std::string(said)};
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return {ErrorCode::Corrupt, fmt::format("{}: {}: {}", file, said, advice_for_damage(file))};
    case SQLITE_FULL:
      return {ErrorCode::Unavailable,
              fmt::format("{}: the disk is full; make room, then try again", file)};
    case SQLITE_IOERR:
      return {
          ErrorCode::Unavailable,
          fmt::format("{}: the disk does not take or give it: {}; see to the disk (room, quota, "
                      "the kernel's log), then try again",
                      file, reason)};
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return {ErrorCode::Unavailable,
              fmt::format("{}: another program has held it for {} s; end that program", file,
                          kBusyPatienceMs / 1000)};
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_READONLY:
      return {ErrorCode::Forbidden,
              fmt::format("{} cannot be opened for writing ({}): it and its folder must be this "
                          "user's own",
                          file, reason)};
    case SQLITE_NOMEM:
      return {ErrorCode::OutOfMemory, fmt::format("{}: not enough memory", file)};
    default:
      return {ErrorCode::Internal, fmt::format("{}: {}", file, said)};
  }
}

int open_flags(Connection::Mode mode) {
  constexpr int kCommon = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  switch (mode) {
    case Connection::Mode::Create:
      return kCommon | SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    case Connection::Mode::Write:
      return kCommon | SQLITE_OPEN_READWRITE;
    case Connection::Mode::Read:
      break;
  }
  return kCommon | SQLITE_OPEN_READONLY;
}

}  // namespace

Statement::~Statement() {
  ::sqlite3_finalize(statement_);
}

Statement::Statement(Statement&& other) noexcept
    : connection_(other.connection_), statement_(std::exchange(other.statement_, nullptr)) {}

Statement& Statement::operator=(Statement&& other) noexcept {
  std::swap(connection_, other.connection_);
  std::swap(statement_, other.statement_);
  return *this;
}

Statement& Statement::bind(int parameter, std::int64_t value) {
  CHECK(::sqlite3_bind_int64(statement_, parameter, value) == SQLITE_OK, "no such parameter");
  return *this;
}

Statement& Statement::bind_blob(int parameter, std::string_view bytes) {
  // A null pointer would be NULL, not an empty blob.
  const char* data = bytes.empty() ? "" : bytes.data();
  CHECK(::sqlite3_bind_blob64(statement_, parameter, data, bytes.size(), kStays) == SQLITE_OK,
        "no such parameter, or above 1 GB");
  return *this;
}

Statement& Statement::bind_text(int parameter, std::string_view text) {
  const char* data = text.empty() ? "" : text.data();
  CHECK(::sqlite3_bind_text64(statement_, parameter, data, text.size(), kStays, SQLITE_UTF8) ==
            SQLITE_OK,
        "no such parameter, or above 1 GB");
  return *this;
}

Statement& Statement::bind_null(int parameter) {
  CHECK(::sqlite3_bind_null(statement_, parameter) == SQLITE_OK, "no such parameter");
  return *this;
}

Result<bool> Statement::step() {
  const int code = ::sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  Error error = connection_->error("");
  reset();
  return error;
}

Status Statement::run() {
  const Result<bool> row = step();
  if (!row.ok()) return row.error();
  CHECK(!*row, "a statement that answers was run for its effect");
  reset();
  return ok_status();
}

void Statement::reset() {
  ::sqlite3_reset(statement_);
}

std::int64_t Statement::integer(int column) const {
  return ::sqlite3_column_int64(statement_, column);
}

std::string_view Statement::bytes(int column) const {
  const auto* data = static_cast<const char*>(::sqlite3_column_blob(statement_, column));
  if (data == nullptr) return {};
  return {data, static_cast<std::size_t>(::sqlite3_column_bytes(statement_, column))};
}

bool Statement::is_null(int column) const {
  return ::sqlite3_column_type(statement_, column) == SQLITE_NULL;
}

Result<std::unique_ptr<Connection>> Connection::open(const std::filesystem::path& file, Mode mode) {
  sqlite3* handle = nullptr;
  const int code = ::sqlite3_open_v2(file.c_str(), &handle, open_flags(mode), nullptr);
  if (handle == nullptr) return Error{ErrorCode::OutOfMemory, "not enough memory for SQLite"};
  std::unique_ptr<Connection> connection(new Connection(file, handle));
  if (code != SQLITE_OK) return connection->error("open");
  ::sqlite3_busy_timeout(handle, kBusyPatienceMs);
  return connection;
}

Connection::~Connection() {
  ::sqlite3_close_v2(handle_);
}

Result<Statement> Connection::prepare(std::string_view sql) const {
  sqlite3_stmt* statement = nullptr;
  const int code = ::sqlite3_prepare_v3(handle_, sql.data(), static_cast<int>(sql.size()),
                                        SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  if (code != SQLITE_OK) return error(sql);
  return Statement(this, statement);
}

Status Connection::execute(const char* sql) const {
  if (::sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr) == SQLITE_OK) return ok_status();
  return error(sql);
}

Result<std::int64_t> Connection::query_integer(std::string_view sql) const {
  Result<Statement> statement = prepare(sql);
  if (!statement.ok()) return statement.error();
  const Result<bool> row = statement->step();
  if (!row.ok()) return row.error();
  return *row ? statement->integer(0) : 0;
}

std::int64_t Connection::last_row_id() const {
  return ::sqlite3_last_insert_rowid(handle_);
}

std::int64_t Connection::num_changed() const {
  return ::sqlite3_changes64(handle_);
}

Status Connection::check_place() const {
  int has_moved = 0;
  const int code = ::sqlite3_file_control(handle_, "main", SQLITE_FCNTL_HAS_MOVED, &has_moved);
  if (code != SQLITE_OK || has_moved == 0) return ok_status();
  return Error{ErrorCode::Unavailable,
               fmt::format("{0} was removed or replaced while it is in use, so nothing more can be "
                           "stored. Stop the orchestrator, put the file back or restore a backup "
                           "(`llorch restore FILE`), and start it",
                           file_.string())};
}

Status Connection::copy_to(const Connection& target) const {
  sqlite3_backup* backup = ::sqlite3_backup_init(target.handle_, "main", handle_, "main");
  if (backup == nullptr) return target.error("backup");
  // All pages in one step are one read transaction: writers go on beside it.
  ::sqlite3_backup_step(backup, -1);
  if (::sqlite3_backup_finish(backup) == SQLITE_OK) return ok_status();
  return target.error("backup");
}

void Connection::keep_log() {
  // In the place of SQLite's own hook, which would checkpoint in the middle of somebody's commit.
  ::sqlite3_wal_hook(
      handle_,
      [](void* pages, sqlite3*, const char*, int num_pages) {
        *static_cast<std::int64_t*>(pages) = num_pages;
        return SQLITE_OK;
      },
      &log_pages_);
}

Status Connection::checkpoint() const {
  const int code =
      ::sqlite3_wal_checkpoint_v2(handle_, nullptr, SQLITE_CHECKPOINT_PASSIVE, nullptr, nullptr);
  if (code == SQLITE_OK || code == SQLITE_BUSY) return ok_status();
  return error("checkpoint");
}

Error Connection::error(std::string_view doing) const {
  const int code = ::sqlite3_extended_errcode(handle_);
  const int kind = code & 0xff;
  const bool has_system_error = kind == SQLITE_IOERR || kind == SQLITE_CANTOPEN;
  Error explained = explain(code, has_system_error ? ::sqlite3_system_errno(handle_) : 0,
                            file_.string(), ::sqlite3_errmsg(handle_));
  if (explained.code == ErrorCode::Internal && !doing.empty())
    explained.message += fmt::format(" in \"{}\"", doing);
  return explained;
}

}  // namespace llorch::job_store
