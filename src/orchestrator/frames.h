// Frames: the events of a worker's stream as views over the bytes that came, and the few places in
// them that a relay reads or writes: the ids at the end, the head of OpenAI's chunks. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "http/sse.h"

namespace llorch::orchestrator {

struct Frame {
  std::string_view event;  // empty: the stream did not say
  std::string_view data;
};

// Cuts a stream into its events. Our own workers write lines that end in LF, and one data line for
// each event: those are found without copying. Any other form is read by http::SseReader, from the
// first odd event on. Comments make no frame. One thread.
class FrameReader {
 public:
  // Appends the frames that `bytes` completes. They stand until the next call, as long as `bytes`
  // does. A line or event past the limits is an error, and everything after it, too.
  Status feed(std::string_view bytes, std::vector<Frame>& frames);

  // Whether this stream had to be read the long way.
  bool is_odd() const { return odd_.has_value(); }

 private:
  Status feed_odd(std::string_view bytes, std::vector<Frame>& frames);

  std::string kept_;                        // what the newest frames are views of, where joined
  std::string rest_;                        // bytes of an event that is not whole yet
  bool is_first_ = true;                    // nothing came before
  std::optional<http::SseReader> odd_;      // reads all from here on
  std::vector<http::SseEvent> odd_events_;  // what its frames are views of
};

// Where a worker tells ids: as the last member of an event of /execute, or of a chunk of OpenAI's.
enum class TailForm : std::uint8_t { Execute, OpenAi };

// An event's JSON with the ids taken out of it.
struct TappedData {
  bool has_ids = false;
  bool was_odd = false;     // not where our workers write them: parsed as a whole
  std::string_view before;  // the data up to the member; all of it where there is none
  std::string anew;         // instead of that, where the object had to be written again

  // The object without that member.
  std::string text() const {
    return !anew.empty() ? anew : std::string(before) + (has_ids ? "}" : "");
  }
};

// Appends the ids to `ids`. Corrupt where there are ids that cannot be read.
Result<TappedData> tap_ids(std::string_view data, TailForm form, std::vector<std::int32_t>& ids);

// What stays the same in all chunks of an answer, whoever makes them.
struct ChunkHead {
  std::string id;
  std::int64_t created = 0;
  std::string model;
};

// Puts the job's own head in front of the chunks of one attempt. A head is compared by its bytes
// and parsed once.
class HeadSwap {
 public:
  explicit HeadSwap(ChunkHead head) : head_(std::move(head)) {}

  struct Swapped {
    std::string_view head;  // ours, up to the comma before "choices"; stands until the next call
    std::string_view rest;  // of the chunk
  };
  // Nothing where the data is no chunk.
  std::optional<Swapped> swap(std::string_view data);

  // The id that the worker gave to the answer; empty before the first chunk.
  const std::string& worker_id() const { return worker_id_; }

 private:
  bool learn(std::string_view theirs);

  const ChunkHead head_;
  std::string theirs_;
  std::string ours_;
  std::string worker_id_;
};

// What a chunk says, seen from the bytes behind its head (HeadSwap::Swapped::rest).
struct ChunkFacts {
  std::optional<std::uint32_t> choice;  // none: the usage
  bool is_role = false;                 // begins a choice of a chat
  bool finishes = false;
};
ChunkFacts chunk_facts(std::string_view rest);

}  // namespace llorch::orchestrator
