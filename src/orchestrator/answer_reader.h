// AnswerReader: the stream of one attempt → steps of an answer, which go into its log whole or not
// at all. Pure: bytes in, values out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "fleet/records.h"
#include "orchestrator/frames.h"

namespace llorch::orchestrator {

// How a job's client wants its answer. One for all attempts of the job.
struct AnswerForm {
  fleet::JobKind kind = fleet::JobKind::Execute;
  std::uint32_t choices = 1;
  std::string job_id;        // the job's own, in `started`; empty: as the worker said
  ChunkHead head;            // OpenAI's
  bool keeps_ids = false;    // chunks go out with their ids
  bool keeps_usage = false;  // and with the usage at their end, as the client asked for it
};

// Which parts of an answer have been told by the attempts before this one.
struct AnswerProgress {
  bool has_started = false;       // `started`
  std::vector<bool> has_begun;    // a choice's first chunk
  std::vector<bool> is_finished;  // a choice's last
};

// Events that belong together, and the ids that they tell.
struct AnswerStep {
  std::uint32_t choice = 0;
  std::vector<std::int32_t> ids;
  std::string text;         // whole events
  std::size_t last_at = 0;  // where in it the last one begins
};

// What an attempt has said of itself.
struct AttemptFacts {
  bool has_started = false;
  std::uint32_t prompt_tokens = 0;  // 0: not known
  std::uint32_t cached_tokens = 0;
  double prefill_ms = 0;
  double decode_ms = 0;
  std::string stop_reason;
  std::uint64_t odd_events = 0;  // in a form that had to be parsed as a whole
};

class AnswerReader {
 public:
  AnswerReader(AnswerForm form, AnswerProgress told);

  enum class State : std::uint8_t {
    Open,
    Whole,  // the answer has ended; end_text() ends it for its followers
    Failed  // the worker gave up: see error()
  };

  // Appends the steps that `bytes` complete. An error: this stream cannot be understood.
  Status feed(std::string_view bytes, std::vector<AnswerStep>& steps);

  State state() const { return state_; }
  // All choices are finished: nothing but the end is missing.
  bool is_finished() const;
  const AttemptFacts& facts() const { return facts_; }
  // What comes behind the last step: `end`; or the usage, if the client wants it, and [DONE].
  const std::string& end_text() const { return end_text_; }
  const Error& error() const { return error_; }
  bool is_retriable() const { return is_retriable_; }  // the worker's word about its error
  const AnswerProgress& told() const { return told_; }
  // The worker's name for the request, where it is not the attempt's own; empty: not known.
  const std::string& worker_job_id() const { return head_.worker_id(); }

 private:
  Status take_event(const Frame& frame, std::vector<AnswerStep>& steps);
  Status take_chunk(const Frame& frame, std::vector<AnswerStep>& steps);
  void take_usage(std::string_view data, std::string_view text);
  void take_failure(std::string_view data);
  void hold(std::string_view event, std::string_view data);
  void give(std::uint32_t choice, std::vector<std::int32_t> ids, std::vector<AnswerStep>& steps);

  const AnswerForm form_;
  AnswerProgress told_;
  FrameReader frames_;
  HeadSwap head_;
  std::vector<Frame> new_frames_;
  std::string held_;         // events whose ids have yet to come
  std::size_t held_at_ = 0;  // where the newest of them begins
  State state_ = State::Open;
  AttemptFacts facts_;
  std::string end_text_;
  Error error_;
  bool is_retriable_ = false;
};

// The end of an answer whose choices are all finished, where no worker has written it.
std::string missing_end(const AnswerForm& form);

// The tokens that an answer of OpenAI's embeddings says it has read; 0: it does not say.
std::uint32_t embedding_tokens(std::string_view body);

// What OpenAI's form of an error says: {"error":{"message","type","param","code"}}. Corrupt where
// it is something else.
Error openai_failure(std::string_view body);

// One event of a stream as text. No line in `event` and `data` ends.
void append_event(std::string_view event, std::string_view data, std::string& text);

}  // namespace llorch::orchestrator
