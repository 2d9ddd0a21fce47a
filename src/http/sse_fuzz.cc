// Differential: an event stream cut into any pieces gives the same events, or the same error, as in
// one piece.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "http/sse.h"

namespace {

using llorch::http::SseEvent;
using llorch::http::SseReader;

// Small, so that the fuzzer reaches them.
constexpr llorch::http::SseLimits kLimits{.max_line_bytes = 64, .max_event_bytes = 96};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::size_t seed = data[0];
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  SseReader whole(kLimits);
  std::vector<SseEvent> whole_events;
  const bool whole_ok = whole.feed(text, whole_events).ok();

  SseReader pieces(kLimits);
  std::vector<SseEvent> piece_events;
  bool pieces_ok = true;
  std::size_t step = seed % 7 + 1;
  for (std::size_t at = 0; at < text.size(); at += step, step = (step * 5 + seed) % 7 + 1) {
    pieces_ok = pieces.feed(text.substr(at, step), piece_events).ok() && pieces_ok;
  }
  CHECK(whole_ok == pieces_ok);
  CHECK(whole_events == piece_events);
  CHECK(whole.retry() == pieces.retry());

  // What the writer writes, the reader reads.
  if (text.size() < 16 &&
      text.find_first_of(std::string_view("\r\0", 2)) == std::string_view::npos) {
    SseReader round_trip;
    std::vector<SseEvent> events;
    CHECK(round_trip.feed(llorch::http::format_event("e", text), events).ok());
    CHECK(events.size() == 1 && events[0].data == text);
  }
  return 0;
}
