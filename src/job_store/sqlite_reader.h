// Everything that only reads the database, on a connection of its own beside the writer's. One
// thread at a time. Private to the module.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "job_store/sqlite.h"
#include "job_store/store.h"

namespace llorch::job_store {

class SqliteReader {
 public:
  static Result<std::unique_ptr<SqliteReader>> open(const std::filesystem::path& file);

  Status load_open(const std::function<void(fleet::JobRecords)>& each);
  Result<fleet::JobRecords> read_job(const fleet::JobId& job);
  Result<std::string> read_body(const fleet::JobId& job);
  Result<std::vector<fleet::AnswerGroup>> read_answer(const fleet::JobId& job,
                                                      const fleet::Position& from);
  Result<fleet::JobPage> list_jobs(const fleet::JobFilter& filter, const fleet::Cursor& after);
  Result<std::optional<fleet::JobId>> find_idempotent(fleet::KeyId key, std::string_view word,
                                                      fleet::UnixMs now_ms);
  Result<std::vector<fleet::Entry>> list(fleet::Bucket bucket);
  Status backup(const std::filesystem::path& file);

 private:
  SqliteReader(std::filesystem::path file, std::unique_ptr<Connection> connection)
      : file_(std::move(file)), connection_(std::move(connection)) {}
  // The records and the stored position of the job in row `n`.
  Result<fleet::JobRecords> read_row(std::int64_t n, const fleet::JobId& job);
  // Runs `each` for the rows (n, id) of a statement that is bound.
  Status for_each_job(Statement& statement,
                      const std::function<void(std::int64_t n, fleet::JobRecords)>& each);
  Result<std::int64_t> find_row(const fleet::JobId& job);  // NotFound

  const std::filesystem::path file_;
  const std::unique_ptr<Connection> connection_;
  Statement find_, records_, position_;
};

}  // namespace llorch::job_store
