#include "job_store/sqlite_store.h"

#include <atomic>
#include <deque>
#include <utility>
#include <vector>

#include "base/channel.h"
#include "base/clock.h"
#include "base/file_lock.h"
#include "base/log.h"
#include "base/mutex.h"
#include "base/owner_loop.h"
#include "job_store/sqlite_file.h"
#include "job_store/sqlite_reader.h"
#include "job_store/sqlite_writer.h"

namespace llorch::job_store {
namespace {

using base::Clock;

// Questions to the writer's thread (put, forget …): as many as work threads can ask at once.
constexpr std::size_t kMaxQuestions = 256;
// What a change takes beside its texts, roughly.
constexpr std::size_t kChangeBytes = 256;

struct Waiting {
  Change change;
  bool is_eager = false;
  std::size_t bytes = 0;
  Clock::TimePoint due;  // of a lazy one
};

std::size_t bytes_of(const Change& change) {
  if (const auto* write = std::get_if<fleet::JobWrite>(&change))
    return kChangeBytes + (write->body ? write->body->size() : 0);
  if (const auto* group = std::get_if<fleet::AnswerGroup>(&change))
    return kChangeBytes + group->events.size();
  const auto& entry = std::get<EntryWrite>(change);
  return kChangeBytes + entry.key.size() + entry.value.size();
}

// The writer's thread owns the writer and what it has taken from the channel. It commits all that
// waits at once: while one sync runs, the next group gathers.
class SqliteStore final : public Store {
 public:
  SqliteStore(SqliteOptions options, std::unique_ptr<base::FileLock> lease,
              std::unique_ptr<SqliteWriter> writer, OnWritten on_written)
      : options_(std::move(options)),
        lease_(std::move(lease)),
        on_written_(std::move(on_written)),
        channel_(options_.max_waiting),
        writer_(std::move(writer)),
        loop_("store", kMaxQuestions, [this] { return turn(); }) {}

  ~SqliteStore() override {
    loop_.ask([this] {
      take_waiting();
      while (!waiting_.empty()) write_group();
    });
    loop_.stop();
  }

  Result<fleet::Boot> begin_boot() override {
    return loop_.ask([this] { return writer_->begin_boot(); });
  }

  bool append(fleet::JobWrite write) override {
    const bool is_eager = write.eager;
    const bool may_use_reserve = write.expected_seq > 0;
    return accept(std::move(write), is_eager, may_use_reserve);
  }

  bool append_answer(fleet::AnswerGroup group) override {
    return accept(std::move(group), /*is_eager=*/false, /*may_use_reserve=*/false);
  }

  bool keep(fleet::Bucket bucket, std::string key, std::string value) override {
    return accept(EntryWrite{bucket, std::move(key), std::move(value)}, /*is_eager=*/false,
                  /*may_use_reserve=*/false);
  }

  Status load_open(const std::function<void(fleet::JobRecords)>& each) override {
    return read<Status>([&](SqliteReader& reader) { return reader.load_open(each); });
  }
  Result<fleet::JobRecords> read_job(const fleet::JobId& job) override {
    return read<Result<fleet::JobRecords>>(
        [&](SqliteReader& reader) { return reader.read_job(job); });
  }
  Result<std::string> read_body(const fleet::JobId& job) override {
    return read<Result<std::string>>([&](SqliteReader& reader) { return reader.read_body(job); });
  }
  Result<std::vector<fleet::AnswerGroup>> read_answer(const fleet::JobId& job,
                                                      const fleet::Position& from) override {
    return read<Result<std::vector<fleet::AnswerGroup>>>(
        [&](SqliteReader& reader) { return reader.read_answer(job, from); });
  }
  Result<fleet::JobPage> list_jobs(const fleet::JobFilter& filter,
                                   const fleet::Cursor& after) override {
    return read<Result<fleet::JobPage>>(
        [&](SqliteReader& reader) { return reader.list_jobs(filter, after); });
  }
  Result<std::optional<fleet::JobId>> find_idempotent(fleet::KeyId key, std::string_view word,
                                                      fleet::UnixMs now_ms) override {
    return read<Result<std::optional<fleet::JobId>>>(
        [&](SqliteReader& reader) { return reader.find_idempotent(key, word, now_ms); });
  }
  Result<std::vector<fleet::Entry>> list(fleet::Bucket bucket) override {
    return read<Result<std::vector<fleet::Entry>>>(
        [&](SqliteReader& reader) { return reader.list(bucket); });
  }
  Status backup(const std::filesystem::path& file) override {
    return read<Status>([&](SqliteReader& reader) { return reader.backup(file); });
  }

  Result<fleet::Revision> put(fleet::Bucket bucket, std::string_view key, std::string_view value,
                              std::optional<fleet::Revision> expected) override {
    return loop_.ask([&] { return writer_->put(bucket, key, value, expected); });
  }
  Status erase(fleet::Bucket bucket, std::string_view key,
               std::optional<fleet::Revision> expected) override {
    return loop_.ask([&] { return writer_->erase(bucket, key, expected); });
  }
  Result<bool> forget(const Retention& retention) override {
    return loop_.ask([&] { return writer_->forget(retention); });
  }

 private:
  bool accept(Change change, bool is_eager, bool may_use_reserve) {
    Waiting waiting{std::move(change), is_eager, 0, base::real_clock().now() + options_.lazy};
    waiting.bytes = bytes_of(waiting.change);
    const std::size_t parts = may_use_reserve ? 8 : 7;
    const std::size_t bytes = waiting_bytes_.fetch_add(waiting.bytes) + waiting.bytes;
    const std::size_t count = num_waiting_.fetch_add(1) + 1;
    const bool has_room = count <= options_.max_waiting / 8 * parts &&
                          bytes <= options_.max_waiting_bytes / 8 * parts;
    const std::size_t taken = waiting.bytes;
    if (!has_room || !channel_.try_push(std::move(waiting))) {
      release(taken);
      return false;
    }
    // One wake-up is enough for all that comes until the thread has looked.
    if (!is_woken_.exchange(true)) {
      [[maybe_unused]] const bool posted = loop_.post([] {});
    }
    return true;
  }

  void release(std::size_t bytes) {
    num_waiting_.fetch_sub(1);
    waiting_bytes_.fetch_sub(bytes);
  }

  void take_waiting() {
    is_woken_ = false;
    for (Waiting& each : channel_.take_all()) waiting_.push_back(std::move(each));
  }

  // What the writer's thread does between questions.
  base::OwnerLoop::Rest turn() {
    take_waiting();
    if (is_due()) write_group();
    // One group at a time: questions must not wait for a stream of writes to end.
    if (is_due()) return {Clock::TimePoint::min(), {}};
    return {waiting_.empty() ? Clock::TimePoint::max() : waiting_.front().due, {}};
  }

  bool is_due() const {
    if (waiting_.empty()) return false;
    if (waiting_.size() >= options_.max_group || waiting_.front().due <= base::real_clock().now())
      return true;
    std::size_t bytes = 0;
    for (const Waiting& each : waiting_) {
      bytes += each.bytes;
      if (each.is_eager || bytes >= options_.max_group_bytes) return true;
    }
    return false;
  }

  void write_group() {
    std::vector<const Change*> changes;
    std::size_t bytes = 0;
    for (const Waiting& each : waiting_) {
      if (changes.size() == options_.max_group) break;
      if (!changes.empty() && bytes + each.bytes > options_.max_group_bytes) break;
      changes.push_back(&each.change);
      bytes += each.bytes;
    }
    Written written = writer_->write(changes);
    if (!written.failure.empty())
      base::Logger("store").error("writing failed",
                                  {{"error", written.failure}, {"writes", changes.size()}});
    for (std::size_t i = 0; i < changes.size(); ++i) {
      release(waiting_.front().bytes);
      waiting_.pop_front();
    }
    if (on_written_ && !(written.records.empty() && written.answers.empty()))
      on_written_(std::move(written));
    writer_->checkpoint_if_long();
  }

  // Lends a reader of its own to the calling thread.
  template <class Answer, class Work>
  Answer read(Work work) {
    std::unique_ptr<SqliteReader> reader;
    {
      const base::MutexLock lock(readers_mutex_);
      if (!readers_.empty()) {
        reader = std::move(readers_.back());
        readers_.pop_back();
      }
    }
    if (!reader) {
      Result<std::unique_ptr<SqliteReader>> opened = SqliteReader::open(options_.file);
      if (!opened.ok()) return opened.error();
      reader = opened.take();
    }
    Answer answer = work(*reader);
    const base::MutexLock lock(readers_mutex_);
    readers_.push_back(std::move(reader));
    return answer;
  }

  const SqliteOptions options_;
  const std::unique_ptr<base::FileLock> lease_;
  const OnWritten on_written_;
  base::Channel<Waiting> channel_;
  std::atomic<bool> is_woken_ = false;
  // Of changes that were accepted and not written yet, in the channel or taken from it.
  std::atomic<std::size_t> num_waiting_ = 0;
  std::atomic<std::size_t> waiting_bytes_ = 0;
  const std::unique_ptr<SqliteWriter> writer_;  // the thread's own; closed after the readers
  base::Mutex readers_mutex_;
  std::vector<std::unique_ptr<SqliteReader>> readers_ LLORCH_GUARDED_BY(readers_mutex_);  // idle
  // Owned by the writer's thread.
  std::deque<Waiting> waiting_;
  base::OwnerLoop loop_;  // last: it uses the others
};

}  // namespace

Result<std::optional<std::string>> read_entry(const std::filesystem::path& file,
                                              fleet::Bucket bucket, std::string_view key) {
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return std::optional<std::string>();
  Result<std::unique_ptr<SqliteReader>> reader = SqliteReader::open(file);
  if (!reader.ok()) return reader.error();
  Result<std::vector<fleet::Entry>> entries = (*reader)->list(bucket);
  if (!entries.ok()) return entries.error();
  for (fleet::Entry& entry : *entries) {
    if (entry.key == key) return std::optional(std::move(entry.value));
  }
  return std::optional<std::string>();
}

Result<std::unique_ptr<Store>> open_sqlite_store(const SqliteOptions& options,
                                                 OnWritten on_written) {
  Result<std::unique_ptr<base::FileLock>> lease =
      base::FileLock::acquire(lease_file(options.file), options.lease_patience);
  if (!lease.ok())
    return lease.error().in("one orchestrator at a time may use " + options.file.string());
  Result<std::unique_ptr<SqliteWriter>> writer = SqliteWriter::open(options.file);
  if (!writer.ok()) return writer.error();
  return std::unique_ptr<Store>(
      new SqliteStore(options, lease.take(), writer.take(), std::move(on_written)));
}

}  // namespace llorch::job_store
