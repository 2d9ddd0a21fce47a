// Everything that changes the database, on the one thread that may. Private to the module.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/result.h"
#include "job_store/sqlite.h"
#include "job_store/store.h"

namespace llorch::job_store {

struct EntryWrite {
  fleet::Bucket bucket = fleet::Bucket::Hosts;
  std::string key;
  std::string value;
};
using Change = std::variant<fleet::JobWrite, fleet::AnswerGroup, EntryWrite>;

class SqliteWriter {
 public:
  static Result<std::unique_ptr<SqliteWriter>> open(const std::filesystem::path& file);

  // One transaction, one sync. Either all of them that are no conflict are durable, or all failed.
  Written write(std::span<const Change* const> changes);

  Result<fleet::Boot> begin_boot();
  Result<fleet::Revision> put(fleet::Bucket bucket, std::string_view key, std::string_view value,
                              std::optional<fleet::Revision> expected);
  Status erase(fleet::Bucket bucket, std::string_view key, std::optional<fleet::Revision> expected);
  Result<bool> forget(const Retention& retention);
  // Moves the log into the file once it is long. What fails is tried again later.
  void checkpoint_if_long();

 private:
  explicit SqliteWriter(std::unique_ptr<Connection> connection)
      : connection_(std::move(connection)) {}
  Status prepare_all();

  // Commits what `work` did if it and the commit went well, else takes it back.
  template <class Work>
  Status in_transaction(Work work);
  // The outcome of one change inside a transaction; an error ends that.
  Result<fleet::WriteOutcome> apply(const fleet::JobWrite& write);
  Result<fleet::WriteOutcome> apply(const fleet::AnswerGroup& group);
  Result<fleet::WriteOutcome> apply(const EntryWrite& write);
  Result<fleet::WriteOutcome> submit(const fleet::JobWrite& write);
  Status add_record(std::int64_t job, const fleet::JobWrite& write);
  Status check_revision(fleet::Bucket bucket, std::string_view key,
                        std::optional<fleet::Revision> expected);
  Status write_entry(fleet::Bucket bucket, std::string_view key, std::string_view value);
  // Rows that were taken away.
  Result<std::int64_t> forget_texts(const Retention& retention);
  Result<std::int64_t> forget_jobs(const Retention& retention);
  Result<std::int64_t> forget_words(const Retention& retention);
  Result<std::int64_t> delete_from(const char* table, const char* column, std::int64_t job);

  const std::unique_ptr<Connection> connection_;
  std::int64_t revision_ = 0;            // the newest given
  std::int64_t checkpointed_pages_ = 0;  // in the log when it was last moved over
  // Prepared once.
  Statement begin_, commit_, rollback_;
  Statement find_job_, insert_job_, free_word_, insert_record_, insert_body_, end_job_;
  Statement last_part_, insert_answer_;
  Statement find_revision_, insert_entry_, erase_entry_, set_counter_;
};

template <class Work>
Status SqliteWriter::in_transaction(Work work) {
  const std::int64_t revision = revision_;
  Status done = connection_->check_place();
  if (!done.ok()) return done;
  done = begin_.run();
  if (!done.ok()) return done;
  done = work();
  if (done.ok()) done = commit_.run();
  if (!done.ok()) {
    revision_ = revision;
    // SQLite may have rolled it back itself; then there is nothing to do.
    [[maybe_unused]] const Status rolled_back = rollback_.run();
  }
  return done;
}

}  // namespace llorch::job_store
