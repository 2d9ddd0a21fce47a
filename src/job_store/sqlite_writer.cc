#include "job_store/sqlite_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "fleet/record_codec.h"
#include "job_store/sqlite_file.h"
#include "job_store/sqlite_rows.h"

namespace llorch::job_store {
namespace {

using fleet::WriteOutcome;

// 16 MiB: seldom enough not to be felt, small enough that a start replays it in no time.
constexpr std::int64_t kLongLogPages = 4096;

fleet::Position position_behind(const fleet::AnswerGroup& group) {
  fleet::Position upto = group.from;
  for (const fleet::ChoiceIds& choice : group.ids) {
    if (upto.told.size() <= choice.choice) upto.told.resize(choice.choice + 1U);
    upto.told[choice.choice] += static_cast<std::uint32_t>(choice.ids.size());
  }
  return upto;
}

std::int64_t wall_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Result<std::unique_ptr<SqliteWriter>> SqliteWriter::open(const std::filesystem::path& file) {
  Result<std::unique_ptr<Connection>> connection = open_for_writing(file);
  if (!connection.ok()) return connection.error();
  std::unique_ptr<SqliteWriter> writer(new SqliteWriter(connection.take()));
  if (const Status prepared = writer->prepare_all(); !prepared.ok()) return prepared.error();
  const Result<std::int64_t> revision = read_counter(*writer->connection_, kRevisionCounter);
  if (!revision.ok()) return revision.error();
  writer->revision_ = *revision;
  return writer;
}

Status SqliteWriter::prepare_all() {
  const std::pair<Statement*, const char*> statements[] = {
      {&begin_, "BEGIN IMMEDIATE"},
      {&commit_, "COMMIT"},
      {&rollback_, "ROLLBACK"},
      {&find_job_,
       "SELECT n, ended_ms, (SELECT max(seq) FROM record WHERE job=n) FROM job WHERE id=?1"},
      {&insert_job_,
       "INSERT INTO job(id, key_id, idem, state, submitted_ms) VALUES(?1, ?2, ?3, 0, ?4)"},
      {&free_word_, "UPDATE job SET idem=NULL WHERE key_id=?1 AND idem=?2 AND submitted_ms<=?3"},
      {&insert_record_, "INSERT INTO record VALUES(?1, ?2, ?3, ?4)"},
      {&insert_body_, "INSERT INTO body VALUES(?1, ?2)"},
      {&end_job_,
       "UPDATE job SET state=?2, ended_ms=?3, kept_bytes="
       "(SELECT coalesce(sum(length(ids)+length(events)), 0) FROM answer WHERE job=?1)+"
       "(SELECT coalesce(sum(length(body)), 0) FROM body WHERE job=?1) WHERE n=?1"},
      {&last_part_, "SELECT part, first+count FROM answer WHERE job=?1 ORDER BY part DESC LIMIT 1"},
      {&insert_answer_, "INSERT INTO answer VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)"},
      {&find_revision_, "SELECT revision FROM entry WHERE bucket=?1 AND key=?2"},
      {&insert_entry_, "INSERT OR REPLACE INTO entry VALUES(?1, ?2, ?3, ?4)"},
      {&erase_entry_, "DELETE FROM entry WHERE bucket=?1 AND key=?2"},
      {&set_counter_, "UPDATE meta SET value=?2 WHERE name=?1"},
  };
  for (const auto& [statement, sql] : statements) {
    Result<Statement> prepared = connection_->prepare(sql);
    if (!prepared.ok()) return prepared.error();
    *statement = prepared.take();
  }
  return ok_status();
}

Written SqliteWriter::write(std::span<const Change* const> changes) {
  Written written;
  const auto note = [&written](const Change& change, WriteOutcome outcome) {
    if (const auto* write = std::get_if<fleet::JobWrite>(&change))
      written.records.push_back({write->job, write->expected_seq, outcome});
    if (const auto* group = std::get_if<fleet::AnswerGroup>(&change))
      written.answers.push_back({group->attempt, position_behind(*group), outcome});
  };
  const Status done = in_transaction([&]() -> Status {
    for (const Change* change : changes) {
      const Result<WriteOutcome> outcome =
          std::visit([this](const auto& each) { return apply(each); }, *change);
      if (!outcome.ok()) return outcome.error();
      note(*change, *outcome);
    }
    return ok_status();
  });
  if (done.ok()) return written;
  written = {};
  written.failure = done.error().message;
  for (const Change* change : changes) note(*change, WriteOutcome::Failed);
  return written;
}

Result<WriteOutcome> SqliteWriter::apply(const fleet::JobWrite& write) {
  if (write.expected_seq == 0) return submit(write);
  const std::string id = id_bytes(write.job);
  const Result<bool> found = find_job_.bind_blob(1, id).step();
  if (!found.ok()) return found.error();
  const std::int64_t job = find_job_.integer(0);
  const bool is_next =
      *found && find_job_.is_null(1) && find_job_.integer(2) + 1 == write.expected_seq;
  find_job_.reset();
  if (!is_next || std::holds_alternative<fleet::SubmittedRecord>(write.record))
    return WriteOutcome::Conflict;
  if (const Status added = add_record(job, write); !added.ok()) return added.error();
  if (const auto* ended = std::get_if<fleet::EndedRecord>(&write.record)) {
    const Status noted = end_job_.bind(1, job)
                             .bind(2, static_cast<std::int64_t>(ended->state))
                             .bind(3, ended->at_ms)
                             .run();
    if (!noted.ok()) return noted.error();
  }
  return WriteOutcome::Durable;
}

Result<WriteOutcome> SqliteWriter::submit(const fleet::JobWrite& write) {
  const auto* record = std::get_if<fleet::SubmittedRecord>(&write.record);
  if (record == nullptr) return WriteOutcome::Conflict;
  const std::string id = id_bytes(write.job);
  const std::int64_t key = to_column(record->key.value);
  insert_job_.bind_blob(1, id).bind(2, key).bind(4, record->submitted_ms);
  if (record->idempotency.empty()) {
    insert_job_.bind_null(3);
  } else {
    insert_job_.bind_text(3, record->idempotency);
    const Status freed = free_word_.bind(1, key)
                             .bind_text(2, record->idempotency)
                             .bind(3, record->submitted_ms - kIdempotencyMs)
                             .run();
    if (!freed.ok()) return freed.error();
  }
  const Status inserted = insert_job_.run();
  if (!inserted.ok() && inserted.error().code == ErrorCode::Conflict) return WriteOutcome::Conflict;
  if (!inserted.ok()) return inserted.error();
  const std::int64_t job = connection_->last_row_id();
  if (const Status added = add_record(job, write); !added.ok()) return added.error();
  if (write.body == nullptr) return WriteOutcome::Durable;
  const Status stored = insert_body_.bind(1, job).bind_blob(2, *write.body).run();
  if (!stored.ok()) return stored.error();
  return WriteOutcome::Durable;
}

Status SqliteWriter::add_record(std::int64_t job, const fleet::JobWrite& write) {
  const std::string bytes = fleet::encode_record(write.record);
  return insert_record_.bind(1, job)
      .bind(2, write.expected_seq)
      .bind(3, fleet::record_kind(write.record))
      .bind_blob(4, bytes)
      .run();
}

Result<WriteOutcome> SqliteWriter::apply(const fleet::AnswerGroup& group) {
  const std::string id = id_bytes(group.attempt.job);
  const Result<bool> found = find_job_.bind_blob(1, id).step();
  if (!found.ok()) return found.error();
  const std::int64_t job = find_job_.integer(0);
  const bool is_live = *found && find_job_.is_null(1);
  find_job_.reset();
  if (!is_live) return WriteOutcome::Conflict;
  const Result<bool> has_parts = last_part_.bind(1, job).step();
  if (!has_parts.ok()) return has_parts.error();
  const std::int64_t part = *has_parts ? last_part_.integer(0) + 1 : 0;
  const std::int64_t stored = *has_parts ? last_part_.integer(1) : 0;
  last_part_.reset();
  const std::int64_t first = to_column(group.from.total());
  if (first != stored) return WriteOutcome::Conflict;
  const fleet::Position behind = position_behind(group);
  const std::string start = fleet::encode_position(group.from);
  const std::string upto = fleet::encode_position(behind);
  const std::string ids = fleet::encode_ids(group.ids);
  const Status added = insert_answer_.bind(1, job)
                           .bind(2, part)
                           .bind(3, first)
                           .bind(4, to_column(behind.total()) - first)
                           .bind(5, to_column(group.attempt.boot))
                           .bind(6, group.attempt.number)
                           .bind_blob(7, start)
                           .bind_blob(8, upto)
                           .bind_blob(9, ids)
                           .bind_blob(10, group.events)
                           .run();
  if (!added.ok()) return added.error();
  return WriteOutcome::Durable;
}

Result<WriteOutcome> SqliteWriter::apply(const EntryWrite& write) {
  const Status written = write_entry(write.bucket, write.key, write.value);
  if (!written.ok()) return written.error();
  return WriteOutcome::Durable;
}

Result<fleet::Boot> SqliteWriter::begin_boot() {
  std::int64_t boot = 0;
  const Status done = in_transaction([&]() -> Status {
    const Result<std::int64_t> last = read_counter(*connection_, kBootCounter);
    if (!last.ok()) return last.error();
    // Above every boot of a store that was lost or is newer than this copy of it.
    boot = std::max<std::int64_t>(*last + 1, wall_ms());
    return write_counter(*connection_, kBootCounter, boot);
  });
  if (!done.ok()) return done.error();
  return static_cast<fleet::Boot>(boot);
}

Status SqliteWriter::check_revision(fleet::Bucket bucket, std::string_view key,
                                    std::optional<fleet::Revision> expected) {
  if (!expected) return ok_status();
  const Result<bool> row =
      find_revision_.bind(1, static_cast<std::int64_t>(bucket)).bind_text(2, key).step();
  if (!row.ok()) return row.error();
  const auto found = *row ? static_cast<fleet::Revision>(find_revision_.integer(0)) : 0;
  find_revision_.reset();
  if (found == *expected) return ok_status();
  return Error{ErrorCode::Conflict,
               fmt::format("somebody else changed {}: expected revision {}, found {}; look again",
                           key, *expected, found)};
}

Status SqliteWriter::write_entry(fleet::Bucket bucket, std::string_view key,
                                 std::string_view value) {
  ++revision_;
  const Status inserted = insert_entry_.bind(1, static_cast<std::int64_t>(bucket))
                              .bind_text(2, key)
                              .bind_blob(3, value)
                              .bind(4, revision_)
                              .run();
  if (!inserted.ok()) return inserted;
  return set_counter_.bind_text(1, kRevisionCounter).bind(2, revision_).run();
}

Result<fleet::Revision> SqliteWriter::put(fleet::Bucket bucket, std::string_view key,
                                          std::string_view value,
                                          std::optional<fleet::Revision> expected) {
  const Status done = in_transaction([&]() -> Status {
    if (const Status same = check_revision(bucket, key, expected); !same.ok()) return same;
    return write_entry(bucket, key, value);
  });
  if (!done.ok()) return done.error();
  return static_cast<fleet::Revision>(revision_);
}

Status SqliteWriter::erase(fleet::Bucket bucket, std::string_view key,
                           std::optional<fleet::Revision> expected) {
  return in_transaction([&]() -> Status {
    if (const Status same = check_revision(bucket, key, expected); !same.ok()) return same;
    return erase_entry_.bind(1, static_cast<std::int64_t>(bucket)).bind_text(2, key).run();
  });
}

void SqliteWriter::checkpoint_if_long() {
  const std::int64_t pages = connection_->log_pages();
  // The log begins anew after it was moved over whole.
  if (pages < checkpointed_pages_) checkpointed_pages_ = 0;
  if (pages - checkpointed_pages_ < kLongLogPages) return;
  checkpointed_pages_ = pages;
  if (const Status moved = connection_->checkpoint(); !moved.ok())
    base::Logger("store").warn("the log could not be moved over",
                               {{"error", moved.error().message}});
}

}  // namespace llorch::job_store
