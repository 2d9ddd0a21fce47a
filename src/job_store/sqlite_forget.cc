// What the writer takes away: texts, jobs and idempotency words that are too old or too many.
#include <fmt/format.h>

#include <vector>

#include "job_store/sqlite_writer.h"

namespace llorch::job_store {

Result<std::int64_t> SqliteWriter::delete_from(const char* table, const char* column,
                                               std::int64_t job) {
  Result<Statement> statement =
      connection_->prepare(fmt::format("DELETE FROM {} WHERE {}=?1", table, column));
  if (!statement.ok()) return statement.error();
  if (const Status done = statement->bind(1, job).run(); !done.ok()) return done.error();
  return connection_->num_changed();
}

Result<std::int64_t> SqliteWriter::forget_texts(const Retention& retention) {
  const Result<std::int64_t> sum = connection_->query_integer(
      "SELECT coalesce(sum(kept_bytes), 0) FROM job WHERE kept_bytes > 0");
  if (!sum.ok()) return sum.error();
  Result<Statement> oldest = connection_->prepare(
      "SELECT n, ended_ms, kept_bytes FROM job WHERE kept_bytes > 0 ORDER BY ended_ms LIMIT ?1");
  if (!oldest.ok()) return oldest.error();
  std::vector<std::int64_t> jobs;
  std::int64_t bytes = *sum;
  oldest->bind(1, retention.slice_rows);
  for (;;) {
    const Result<bool> row = oldest->step();
    if (!row.ok()) return row.error();
    const bool is_old = *row && oldest->integer(1) <= retention.now_ms - retention.texts_ms;
    if (!*row || (!is_old && bytes <= retention.texts_bytes)) break;
    jobs.push_back(oldest->integer(0));
    bytes -= oldest->integer(2);
  }
  oldest->reset();
  Result<Statement> mark = connection_->prepare("UPDATE job SET kept_bytes=0 WHERE n=?1");
  if (!mark.ok()) return mark.error();
  std::int64_t num_rows = 0;
  for (const std::int64_t job : jobs) {
    if (num_rows >= retention.slice_rows) break;
    for (const char* table : {"answer", "body"}) {
      const Result<std::int64_t> rows = delete_from(table, "job", job);
      if (!rows.ok()) return rows;
      num_rows += *rows;
    }
    if (const Status marked = mark->bind(1, job).run(); !marked.ok()) return marked.error();
  }
  return num_rows;
}

Result<std::int64_t> SqliteWriter::forget_jobs(const Retention& retention) {
  const Result<std::int64_t> count =
      connection_->query_integer("SELECT count(*) FROM job WHERE ended_ms IS NOT NULL");
  if (!count.ok()) return count.error();
  Result<Statement> oldest = connection_->prepare(
      "SELECT n, ended_ms FROM job WHERE ended_ms IS NOT NULL ORDER BY ended_ms LIMIT ?1");
  if (!oldest.ok()) return oldest.error();
  std::vector<std::int64_t> jobs;
  oldest->bind(1, retention.slice_rows);
  for (std::int64_t left = *count;; --left) {
    const Result<bool> row = oldest->step();
    if (!row.ok()) return row.error();
    const bool is_old = *row && oldest->integer(1) <= retention.now_ms - retention.jobs_ms;
    if (!*row || (!is_old && left <= retention.jobs_max)) break;
    jobs.push_back(oldest->integer(0));
  }
  oldest->reset();
  std::int64_t num_rows = 0;
  for (const std::int64_t job : jobs) {
    if (num_rows >= retention.slice_rows) break;
    for (const char* table : {"answer", "body", "record"}) {
      const Result<std::int64_t> rows = delete_from(table, "job", job);
      if (!rows.ok()) return rows;
      num_rows += *rows;
    }
    const Result<std::int64_t> rows = delete_from("job", "n", job);
    if (!rows.ok()) return rows;
    num_rows += *rows;
  }
  return num_rows;
}

Result<std::int64_t> SqliteWriter::forget_words(const Retention& retention) {
  Result<Statement> statement = connection_->prepare(
      "UPDATE job SET idem=NULL WHERE n IN (SELECT n FROM job WHERE idem IS NOT NULL AND "
      "submitted_ms<=?1 ORDER BY submitted_ms LIMIT ?2)");
  if (!statement.ok()) return statement.error();
  const Status done =
      statement->bind(1, retention.now_ms - kIdempotencyMs).bind(2, retention.slice_rows).run();
  if (!done.ok()) return done.error();
  return connection_->num_changed();
}

Result<bool> SqliteWriter::forget(const Retention& retention) {
  std::int64_t num_rows = 0;
  const Status done = in_transaction([&]() -> Status {
    for (const auto part :
         {&SqliteWriter::forget_texts, &SqliteWriter::forget_jobs, &SqliteWriter::forget_words}) {
      const Result<std::int64_t> rows = (this->*part)(retention);
      if (!rows.ok()) return rows.error();
      num_rows += *rows;
    }
    return ok_status();
  });
  if (!done.ok()) return done.error();
  // Pages that became free go back to the system in slices too.
  const Status vacuumed = connection_->execute("PRAGMA incremental_vacuum(1000)");
  if (!vacuumed.ok()) return vacuumed.error();
  return num_rows > 0;
}

}  // namespace llorch::job_store
