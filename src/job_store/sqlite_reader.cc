#include "job_store/sqlite_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "fleet/record_codec.h"
#include "job_store/sqlite_file.h"
#include "job_store/sqlite_rows.h"

namespace llorch::job_store {
namespace {

constexpr std::uint32_t kMaxPage = 1000;

Error not_found(const fleet::JobId& job) {
  return {ErrorCode::NotFound, fmt::format("there is no job {}", fleet::text(job))};
}

Error damaged(const fleet::JobId& job, const Error& error) {
  return {ErrorCode::Corrupt,
          fmt::format("job {} cannot be read: {}; restore a backup (`llorch restore FILE`)",
                      fleet::text(job), error.message)};
}

// ", 3, 4, 5": ends as they are stored, and 0 once for every state of a live job.
std::string state_list(const std::vector<fleet::JobState>& states) {
  std::string list;
  for (const fleet::JobState state : states)
    list += fmt::format("{}{}", list.empty() ? "" : ", ",
                        fleet::is_end(state) ? static_cast<int>(state) : 0);
  return list;
}

}  // namespace

Result<std::unique_ptr<SqliteReader>> SqliteReader::open(const std::filesystem::path& file) {
  Result<std::unique_ptr<Connection>> connection = Connection::open(file, Connection::Mode::Read);
  if (!connection.ok()) return connection.error();
  std::unique_ptr<SqliteReader> reader(new SqliteReader(file, connection.take()));
  const std::pair<Statement*, const char*> statements[] = {
      {&reader->find_, "SELECT n FROM job WHERE id=?1"},
      {&reader->records_, "SELECT seq, kind, body FROM record WHERE job=?1 ORDER BY seq"},
      {&reader->position_, "SELECT upto FROM answer WHERE job=?1 ORDER BY part DESC LIMIT 1"},
  };
  for (const auto& [statement, sql] : statements) {
    Result<Statement> prepared = reader->connection_->prepare(sql);
    if (!prepared.ok()) return prepared.error();
    *statement = prepared.take();
  }
  return reader;
}

Result<std::int64_t> SqliteReader::find_row(const fleet::JobId& job) {
  const std::string id = id_bytes(job);
  const Result<bool> row = find_.bind_blob(1, id).step();
  if (!row.ok()) return row.error();
  const std::int64_t n = *row ? find_.integer(0) : 0;
  find_.reset();
  if (!*row) return not_found(job);
  return n;
}

Result<fleet::JobRecords> SqliteReader::read_row(std::int64_t n, const fleet::JobId& job) {
  fleet::JobRecords records{job, {}, {}};
  records_.bind(1, n);
  for (;;) {
    const Result<bool> row = records_.step();
    if (!row.ok()) return row.error();
    if (!*row) break;
    const auto kind = static_cast<std::uint8_t>(records_.integer(1));
    Result<fleet::Record> record = fleet::decode_record(kind, records_.bytes(2));
    const bool is_next = records_.integer(0) == static_cast<std::int64_t>(records.records.size());
    if (!record.ok() || !is_next) {
      records_.reset();
      return damaged(
          job, record.ok() ? Error{ErrorCode::Corrupt, "a record is missing"} : record.error());
    }
    records.records.push_back(record.take());
  }
  records_.reset();
  const Result<bool> has_answer = position_.bind(1, n).step();
  if (!has_answer.ok()) return has_answer.error();
  if (*has_answer) {
    Result<fleet::Position> stored = fleet::decode_position(position_.bytes(0));
    position_.reset();
    if (!stored.ok()) return damaged(job, stored.error());
    records.stored = stored.take();
  }
  position_.reset();
  return records;
}

Status SqliteReader::for_each_job(
    Statement& statement, const std::function<void(std::int64_t n, fleet::JobRecords)>& each) {
  for (;;) {
    const Result<bool> row = statement.step();
    if (!row.ok()) return row.error();
    if (!*row) return ok_status();
    const std::int64_t n = statement.integer(0);
    Result<fleet::JobRecords> records = read_row(n, id_of(statement.bytes(1)));
    if (!records.ok()) return records.error();
    each(n, records.take());
  }
}

Status SqliteReader::load_open(const std::function<void(fleet::JobRecords)>& each) {
  Result<Statement> open =
      connection_->prepare("SELECT n, id FROM job WHERE ended_ms IS NULL ORDER BY n");
  if (!open.ok()) return open.error();
  return for_each_job(
      *open, [&each](std::int64_t, fleet::JobRecords records) { each(std::move(records)); });
}

Result<fleet::JobRecords> SqliteReader::read_job(const fleet::JobId& job) {
  const Result<std::int64_t> n = find_row(job);
  if (!n.ok()) return n.error();
  return read_row(*n, job);
}

Result<std::string> SqliteReader::read_body(const fleet::JobId& job) {
  const Result<std::int64_t> n = find_row(job);
  if (!n.ok()) return n.error();
  Result<Statement> statement = connection_->prepare("SELECT body FROM body WHERE job=?1");
  if (!statement.ok()) return statement.error();
  const Result<bool> row = statement->bind(1, *n).step();
  if (!row.ok()) return row.error();
  if (*row) return std::string(statement->bytes(0));
  return Error{ErrorCode::NotFound,
               fmt::format("the request of job {} is no longer kept", fleet::text(job))};
}

Result<std::vector<fleet::AnswerGroup>> SqliteReader::read_answer(const fleet::JobId& job,
                                                                  const fleet::Position& from) {
  const Result<std::int64_t> n = find_row(job);
  if (!n.ok()) return n.error();
  Result<Statement> statement = connection_->prepare(
      "SELECT boot, attempt, start, ids, events FROM answer WHERE job=?1 AND "
      "(first+count > ?2 OR (count=0 AND first >= ?2)) ORDER BY part");
  if (!statement.ok()) return statement.error();
  statement->bind(1, *n).bind(2, to_column(from.total()));
  std::vector<fleet::AnswerGroup> groups;
  for (;;) {
    const Result<bool> row = statement->step();
    if (!row.ok()) return row.error();
    if (!*row) return groups;
    Result<fleet::Position> start = fleet::decode_position(statement->bytes(2));
    Result<std::vector<fleet::ChoiceIds>> ids = fleet::decode_ids(statement->bytes(3));
    if (!start.ok()) return damaged(job, start.error());
    if (!ids.ok()) return damaged(job, ids.error());
    groups.push_back({{job, static_cast<fleet::Boot>(statement->integer(0)),
                       static_cast<std::uint32_t>(statement->integer(1))},
                      start.take(),
                      ids.take(),
                      std::string(statement->bytes(4))});
  }
}

Result<fleet::JobPage> SqliteReader::list_jobs(const fleet::JobFilter& filter,
                                               const fleet::Cursor& after) {
  std::string sql =
      "SELECT n, id FROM job WHERE n < ?1 AND submitted_ms >= ?2 AND submitted_ms <= ?3";
  if (filter.key) sql += " AND key_id = ?4";
  if (!filter.states.empty()) sql += fmt::format(" AND state IN ({})", state_list(filter.states));
  sql += " ORDER BY n DESC LIMIT ?5";
  Result<Statement> statement = connection_->prepare(sql);
  if (!statement.ok()) return statement.error();
  constexpr std::int64_t kNoBound = std::numeric_limits<std::int64_t>::max();
  const std::uint32_t limit = std::clamp<std::uint32_t>(filter.limit, 1, kMaxPage);
  statement->bind(1, after.before > 0 ? after.before : kNoBound)
      .bind(2, filter.submitted_from_ms)
      .bind(3, filter.submitted_until_ms > 0 ? filter.submitted_until_ms : kNoBound)
      .bind(5, std::int64_t{limit} + 1);  // one more tells whether there are more
  if (filter.key) statement->bind(4, to_column(filter.key->value));
  fleet::JobPage page;
  std::int64_t last = 0;
  const Status done = for_each_job(*statement, [&](std::int64_t n, fleet::JobRecords records) {
    if (page.jobs.size() == limit) {
      page.next = fleet::Cursor{last};
      return;
    }
    last = n;
    page.jobs.push_back(std::move(records));
  });
  if (!done.ok()) return done.error();
  return page;
}

Result<std::optional<fleet::JobId>> SqliteReader::find_idempotent(fleet::KeyId key,
                                                                  std::string_view word,
                                                                  fleet::UnixMs now_ms) {
  Result<Statement> statement =
      connection_->prepare("SELECT id FROM job WHERE key_id=?1 AND idem=?2 AND submitted_ms > ?3");
  if (!statement.ok()) return statement.error();
  statement->bind(1, to_column(key.value)).bind_text(2, word).bind(3, now_ms - kIdempotencyMs);
  const Result<bool> row = statement->step();
  if (!row.ok()) return row.error();
  return *row ? std::optional(id_of(statement->bytes(0))) : std::nullopt;
}

Result<std::vector<fleet::Entry>> SqliteReader::list(fleet::Bucket bucket) {
  Result<Statement> statement =
      connection_->prepare("SELECT key, value, revision FROM entry WHERE bucket=?1 ORDER BY key");
  if (!statement.ok()) return statement.error();
  statement->bind(1, static_cast<std::int64_t>(bucket));
  std::vector<fleet::Entry> entries;
  for (;;) {
    const Result<bool> row = statement->step();
    if (!row.ok()) return row.error();
    if (!*row) return entries;
    entries.push_back({std::string(statement->bytes(0)), std::string(statement->bytes(1)),
                       static_cast<fleet::Revision>(statement->integer(2))});
  }
}

Status SqliteReader::backup(const std::filesystem::path& file) {
  return write_backup(*connection_, file);
}

}  // namespace llorch::job_store
