// Server-sent events: the text of one event, and a parser that may be fed the stream in any pieces.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace llorch::http {

// The content type of an event stream.
inline constexpr std::string_view kEventStreamType = "text/event-stream";

// A comment line: proves to both ends that a silent stream lives.
inline constexpr std::string_view kKeepAliveComment = ": keep-alive\n\n";

// One event as text, ready to send. Every line of `data` becomes a line of its own, whatever its
// line end. Line ends inside `event` and `id` are dropped; an empty `event` or `id` makes no line.
std::string format_event(std::string_view event, std::string_view data, std::string_view id = {});

struct SseEvent {
  std::string event;  // "message" when the stream does not say
  std::string data;   // its lines joined by '\n'
  std::string id;     // the last id the stream gave, in this event or before

  bool operator==(const SseEvent&) const = default;
};

struct SseLimits {
  std::size_t max_line_bytes = std::size_t{1} << 20;
  std::size_t max_event_bytes = std::size_t{4} << 20;
};

// Parses an event stream piece by piece, as the HTML standard says: CR, LF or CRLF end a line, a
// byte order mark at the start is skipped, an event the stream breaks off is dropped. One thread.
class SseReader {
 public:
  explicit SseReader(const SseLimits& limits = {}) : limits_(limits) {}

  // Appends the events that `bytes` completes. A line or event past its limit is an error, and the
  // reader then refuses everything: the stream cannot be trusted any more.
  Status feed(std::string_view bytes, std::vector<SseEvent>& events);

  // The reconnection time the stream asked for last.
  std::optional<std::chrono::milliseconds> retry() const { return retry_; }

 private:
  Status append_to_line(std::string_view text);
  Status end_line(std::vector<SseEvent>& events);
  Status take_field(std::string_view name, std::string_view value);
  void dispatch(std::vector<SseEvent>& events);
  Error fail(std::string message);

  SseLimits limits_;
  std::string line_;  // of the line not yet ended
  bool first_line_ = true;
  bool after_cr_ = false;  // an LF now belongs to the CR before it
  bool has_data_ = false;
  std::string data_;
  std::string event_;
  std::string id_;
  std::optional<std::chrono::milliseconds> retry_;
  std::optional<Error> failed_;
};

}  // namespace llorch::http
