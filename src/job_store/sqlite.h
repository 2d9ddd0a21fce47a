// SQLite's C interface as values: a connection, a statement, errors that say what to do. Private to
// the module, the only place that names sqlite3.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace llorch::job_store {

class Connection;

// One prepared statement. Parameters and columns are counted as SQLite does: from 1, from 0. Views
// that are bound must live until the statement is reset; views of columns until the next step.
class Statement {
 public:
  Statement() = default;
  ~Statement();
  Statement(Statement&& other) noexcept;
  Statement& operator=(Statement&& other) noexcept;

  Statement& bind(int parameter, std::int64_t value);
  Statement& bind_blob(int parameter, std::string_view bytes);
  Statement& bind_text(int parameter, std::string_view text);
  Statement& bind_null(int parameter);

  // True: a row is there. Conflict: a constraint, for example uniqueness, was broken.
  Result<bool> step();
  // To the end, without rows, and reset.
  Status run();
  // Ready to be bound and stepped again.
  void reset();

  std::int64_t integer(int column) const;
  std::string_view bytes(int column) const;
  bool is_null(int column) const;

 private:
  friend class Connection;
  Statement(const Connection* connection, sqlite3_stmt* statement)
      : connection_(connection), statement_(statement) {}

  const Connection* connection_ = nullptr;
  sqlite3_stmt* statement_ = nullptr;
};

// Belongs to one thread at a time. Statements must not outlive it.
class Connection {
 public:
  enum class Mode : std::uint8_t { Create, Write, Read };

  static Result<std::unique_ptr<Connection>> open(const std::filesystem::path& file, Mode mode);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  Result<Statement> prepare(std::string_view sql) const;
  // For texts of the program itself: a broken one is a broken program.
  Status execute(const char* sql) const;
  // The one number that a statement answers.
  Result<std::int64_t> query_integer(std::string_view sql) const;
  std::int64_t last_row_id() const;
  std::int64_t num_changed() const;  // rows, by the last statement
  // An error when the file no longer is what lies at its path: it was removed or replaced, and what
  // is written to it goes with this connection.
  Status check_place() const;
  // Copies everything into `target`, an empty database, in one moment of this one.
  Status copy_to(const Connection& target) const;
  // Pages in the log (WAL) after the last commit of this connection.
  std::int64_t log_pages() const { return log_pages_; }
  // From now on the log grows until checkpoint() moves it into the file, as far as readers let it.
  void keep_log();
  Status checkpoint() const;
  // Of the last call that failed.
  Error error(std::string_view doing) const;

 private:
  Connection(std::filesystem::path file, sqlite3* handle)
      : file_(std::move(file)), handle_(handle) {}

  const std::filesystem::path file_;
  sqlite3* const handle_;
  std::int64_t log_pages_ = 0;
};

}  // namespace llorch::job_store
