// Store: what the orchestrator must not forget. Jobs as records, their answers in groups, and small
// entries with revisions. The unit of atomicity is one record of one job, so that stores without
// transactions over several can follow.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "fleet/ids.h"
#include "fleet/records.h"

namespace llorch::job_store {

struct RecordWritten {
  fleet::JobId job;
  std::uint32_t seq = 0;
  fleet::WriteOutcome outcome = fleet::WriteOutcome::Durable;
};

struct AnswerWritten {
  fleet::AttemptId attempt;
  fleet::Position upto;  // told once this group is
  fleet::WriteOutcome outcome = fleet::WriteOutcome::Durable;
};

// What became of writes, in the order they were given. Durable: it survives a crash of the program,
// of the system and of the machine from now on. Failed: nothing was promised; it may be given
// again.
struct Written {
  std::vector<RecordWritten> records;
  std::vector<AnswerWritten> answers;
  std::string failure;  // why the failed ones failed, and what to do
};

// For how long a word of Idempotency-Key stands for its job, from the submission on.
inline constexpr std::int64_t kIdempotencyMs = 86'400'000;

// How long and how much is kept. Live jobs are always kept whole.
struct Retention {
  fleet::UnixMs now_ms = 0;
  std::int64_t texts_ms = 3'600'000;                     // bodies and answers, after the end
  std::int64_t texts_bytes = std::int64_t{256} << 20;    // those of ended jobs, in all
  std::int64_t jobs_ms = 30 * std::int64_t{86'400'000};  // ended jobs
  std::int64_t jobs_max = 100'000;
  std::int64_t slice_rows = 1000;  // of each kind, in one call
};

// append, append_answer and keep may be called by any thread and never wait; everything else waits
// for the disk and belongs on work threads.
class Store {
 public:
  virtual ~Store() = default;

  // A higher number than any before, durably: the time in milliseconds, or one more than the last.
  // So it is also above those of a store that is no more. Before anything is appended.
  virtual Result<fleet::Boot> begin_boot() = 0;

  // One record, if the job has exactly `expected_seq` records and has not ended; record 0 makes the
  // job, unless its id is taken or its idempotency word stands for another job of the same key. An
  // eager one is synced at once, a lazy one rides along with others or is synced within 200 ms.
  // What became of it is heard by the listener. False: too much waits; nothing was taken.
  [[nodiscard]] virtual bool append(fleet::JobWrite write) = 0;
  // Lazy. A group that does not begin where the stored answer ends, or whose job has ended, is a
  // Conflict: what is stored has no holes. Writes of one job keep their order.
  [[nodiscard]] virtual bool append_answer(fleet::AnswerGroup group) = 0;
  // An entry, whatever is there, lazily; nobody hears of it.
  [[nodiscard]] virtual bool keep(fleet::Bucket bucket, std::string key, std::string value) = 0;

  // Jobs that have not ended, in the order they were submitted.
  virtual Status load_open(const std::function<void(fleet::JobRecords)>& each) = 0;
  // NotFound.
  virtual Result<fleet::JobRecords> read_job(const fleet::JobId& job) = 0;
  // The body of its request. NotFound, also when it is no longer kept.
  virtual Result<std::string> read_body(const fleet::JobId& job) = 0;
  // The groups that tell something behind `from`, in order. Empty also when they are no longer
  // kept.
  virtual Result<std::vector<fleet::AnswerGroup>> read_answer(const fleet::JobId& job,
                                                              const fleet::Position& from) = 0;
  // Newest first.
  virtual Result<fleet::JobPage> list_jobs(const fleet::JobFilter& filter,
                                           const fleet::Cursor& after) = 0;
  // The job of this key that was submitted with that word, less than 24 hours before `now_ms`.
  virtual Result<std::optional<fleet::JobId>> find_idempotent(fleet::KeyId key,
                                                              std::string_view word,
                                                              fleet::UnixMs now_ms) = 0;

  // Durable when it returns. `expected`: the revision that must be there, 0 for none; nothing: any.
  // Conflict names the one that is there. Revisions grow and are never given twice.
  virtual Result<fleet::Revision> put(fleet::Bucket bucket, std::string_view key,
                                      std::string_view value,
                                      std::optional<fleet::Revision> expected) = 0;
  // The same for taking an entry away. Nothing to take away is no failure unless one was expected.
  virtual Status erase(fleet::Bucket bucket, std::string_view key,
                       std::optional<fleet::Revision> expected) = 0;
  virtual Result<std::vector<fleet::Entry>> list(fleet::Bucket bucket) = 0;  // by key

  // Forgets one slice of what is too old or too much. True: something was; call again when idle.
  virtual Result<bool> forget(const Retention& retention) = 0;

  // A whole copy in one file, for its owner alone, while everything goes on.
  virtual Status backup(const std::filesystem::path& file) = 0;
};

// Called on the store's own thread with what has been written since the last time; must not wait.
using OnWritten = std::function<void(Written)>;

}  // namespace llorch::job_store
