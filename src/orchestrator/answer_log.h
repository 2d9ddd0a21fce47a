// AnswerLog: the answer of one job as its followers are told it, whoever makes it. Attempts append,
// the owner's notices and the end come in between, followers read at their own pace, and the store
// gets it in groups.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "fleet/effects.h"
#include "fleet/ids.h"
#include "fleet/records.h"
#include "http/feed.h"
#include "job_store/store.h"
#include "orchestrator/answer_reader.h"

namespace llorch::orchestrator {

// An answer that is no stream: a refusal of the worker's as it is, or the vectors of embeddings.
struct WholeAnswer {
  int status = 200;
  std::string content_type;
  std::string body;
};

struct AnswerLimits {
  std::size_t group_ids = 64;  // of one group for the store,
  std::chrono::milliseconds group_time{200};
  std::size_t pause_bytes = std::size_t{1} << 20;  // not yet safe: the worker has to wait
  std::size_t log_bytes = std::size_t{8} << 20;    // in memory
};

// Where a follower stands: bytes of the answer that it has, and the newest notice.
struct AnswerCursor {
  std::uint64_t at = 0;
  std::uint64_t notice = 0;
  bool had_end = false;
};

// What is new for a follower.
struct AnswerNews {
  std::string bytes;       // of the answer: whole events
  std::string notice;      // beside it
  std::string end;         // behind all of it,
  bool has_ended = false;  // and nothing comes after that
  // What comes next is in the store: behind this position, at this place of the answer, so much.
  std::optional<fleet::Position> read_before;
  std::uint64_t read_at = 0;
  std::size_t read_bytes = 0;
};

// Any thread. `give` hands a group to the store: it never waits, and false means later.
class AnswerLog {
 public:
  using Give = std::function<bool(fleet::AnswerGroup)>;
  using Clock = std::chrono::steady_clock;

  // A job that lives with its connection has one follower and nothing in the store: what that one
  // has read is forgotten.
  AnswerLog(fleet::JobId job, fleet::Holder holder, AnswerForm form, AnswerLimits limits,
            Give give);

  const fleet::JobId& job() const { return job_; }
  const AnswerForm& form() const { return form_; }
  bool is_stored() const { return holder_ != fleet::Holder::Connection; }

  // --- what the store had before this log was made ---

  // The answer has to be read from the store first.
  void await_restore();
  bool needs_restore() const;
  void restore(const std::vector<fleet::AnswerGroup>& groups);

  // --- attempts ---

  struct Resume {
    AnswerProgress told;
    std::vector<std::vector<std::int32_t>> ids;  // for each choice
    std::uint64_t total = 0;
    bool is_whole = false;    // a worker has ended it: only that was not heard of
    std::string stop_reason;  // then
  };
  // From now on this attempt appends, and no other.
  Resume begin_attempt(const fleet::AttemptId& attempt);
  // "host/worker": it took the request. Nobody is woken for that.
  void note_worker(std::string served_by);
  // Both are dropped when the attempt is not the one that appends. Ids told so far.
  std::uint64_t append(const fleet::AttemptId& attempt, std::vector<AnswerStep> steps,
                       const AnswerProgress& told);
  void note_moved(const fleet::AttemptId& attempt, const fleet::JobNotice& notice);
  void keep_whole(const fleet::AttemptId& attempt, WholeAnswer whole);
  // Its last group goes to the store, with `end_text` where it ended the answer. Ids told so far.
  std::uint64_t end_attempt(const fleet::AttemptId& attempt, std::string end_text = {});
  // So much is not safe yet that its worker has to wait; `writer` is notified when it may go on.
  bool must_pause(const http::Waker& writer);

  // --- the owner ---

  void tell(const fleet::JobNotice& notice);

  // --- the store ---

  void note_written(const job_store::AnswerWritten& written);
  // Groups that have waited long enough.
  void give_due(Clock::time_point now);
  // Forgets what is in the store until no more than `bytes` are in memory.
  void shrink(std::size_t bytes);
  std::size_t memory_bytes() const;
  // Ended, and nothing of it waits for the store.
  bool is_settled() const;

  // --- followers ---

  // Where a follower begins who has seen the events up to `last`: at or before the first new one.
  struct Start {
    AnswerCursor cursor;
    fleet::Position position;  // there
  };
  Start start_behind(const std::optional<fleet::Position>& last) const;
  AnswerNews news(AnswerCursor& cursor);
  struct Followers {
    std::uint32_t count = 0;
    std::uint64_t change = 0;  // one more with each that comes or goes
  };
  // Wakes this one at every change, until it is taken out. How many there are then.
  Followers add_follower(const http::Waker& waker, std::uint64_t number);
  Followers remove_follower(std::uint64_t number);

  std::string served_by() const;
  std::optional<WholeAnswer> whole() const;
  std::optional<fleet::EndedRecord> ended() const;

 private:
  enum class SegmentState : std::uint8_t { Open, Waiting, Given, Durable };
  // A part of the answer: one group of the store.
  struct Segment {
    fleet::AttemptId attempt;
    fleet::Position from;
    fleet::Position upto;
    std::uint64_t at = 0;
    std::size_t bytes = 0;
    std::string text;      // empty once it is forgotten
    std::string end_text;  // stored behind it, told by the owner's word only
    SegmentState state = SegmentState::Open;
    Clock::time_point since;
  };

  Segment& open_segment() LLORCH_REQUIRES(mutex_);
  void add_text(std::string_view text) LLORCH_REQUIRES(mutex_);
  void add_step(AnswerStep step) LLORCH_REQUIRES(mutex_);
  void close_segment() LLORCH_REQUIRES(mutex_);
  void give_groups() LLORCH_REQUIRES(mutex_);
  fleet::AnswerGroup group_of(const Segment& segment) const LLORCH_REQUIRES(mutex_);
  void forget_read(std::uint64_t upto) LLORCH_REQUIRES(mutex_);
  void forget(std::size_t bytes) LLORCH_REQUIRES(mutex_);
  void wake_all() LLORCH_REQUIRES(mutex_);
  std::size_t unsafe_bytes() const LLORCH_REQUIRES(mutex_);

  const fleet::JobId job_;
  const fleet::Holder holder_;
  const AnswerForm form_;
  const AnswerLimits limits_;
  const Give give_;

  mutable base::Mutex mutex_;
  bool needs_restore_ LLORCH_GUARDED_BY(mutex_) = false;
  fleet::AttemptId attempt_ LLORCH_GUARDED_BY(mutex_);  // number 0: none
  fleet::Position told_ LLORCH_GUARDED_BY(mutex_);
  AnswerProgress progress_ LLORCH_GUARDED_BY(mutex_);
  std::vector<std::vector<std::int32_t>> ids_ LLORCH_GUARDED_BY(mutex_);
  std::deque<Segment> segments_ LLORCH_GUARDED_BY(mutex_);
  std::uint64_t bytes_ LLORCH_GUARDED_BY(mutex_) = 0;      // of the whole answer so far
  std::size_t memory_ LLORCH_GUARDED_BY(mutex_) = 0;       // of texts in segments
  std::uint64_t read_upto_ LLORCH_GUARDED_BY(mutex_) = 0;  // by the one follower, not stored
  std::string end_text_ LLORCH_GUARDED_BY(mutex_);         // the worker's
  bool is_whole_ LLORCH_GUARDED_BY(mutex_) = false;
  bool was_refused_ LLORCH_GUARDED_BY(mutex_) = false;  // a group; it goes again
  bool gives_up_ LLORCH_GUARDED_BY(mutex_) = false;     // the store will never take it
  int refusals_ LLORCH_GUARDED_BY(mutex_) = 0;          // one after the other
  std::string stop_reason_ LLORCH_GUARDED_BY(mutex_);
  std::string served_by_ LLORCH_GUARDED_BY(mutex_);
  std::optional<WholeAnswer> whole_ LLORCH_GUARDED_BY(mutex_);
  std::string notice_ LLORCH_GUARDED_BY(mutex_);
  std::uint64_t notice_number_ LLORCH_GUARDED_BY(mutex_) = 0;
  std::optional<fleet::EndedRecord> ended_ LLORCH_GUARDED_BY(mutex_);
  std::vector<std::pair<std::uint64_t, http::Waker>> followers_ LLORCH_GUARDED_BY(mutex_);
  std::uint64_t follower_changes_ LLORCH_GUARDED_BY(mutex_) = 0;
  std::optional<http::Waker> paused_ LLORCH_GUARDED_BY(mutex_);
};

}  // namespace llorch::orchestrator
