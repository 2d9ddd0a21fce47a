// For tests only: a handler that tells events.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "http/feed.h"
#include "http/sse.h"
#include "http/stream.h"

namespace llorch::http::test {

// Writes every item of the feed as it comes, and a keep-alive comment after each `keep_alive` of
// silence, until the feed is closed and empty. When the client goes, the feed is closed, so that
// its producer sees it, and the result is Cancelled.
inline Task<Status> pump_events(Stream& stream, std::shared_ptr<EventFeed<std::string>> feed,
                                std::chrono::milliseconds keep_alive) {
  stream.on_disconnect([feed] { feed->close(); });
  while (!stream.is_closed()) {
    const EventFeed<std::string>::Next next = co_await feed->next(keep_alive);
    if (next.ended) break;
    const std::string_view bytes = next.item ? std::string_view(*next.item) : kKeepAliveComment;
    Status written = co_await stream.write(bytes);
    if (!written.ok()) co_return written;  // the client is gone, so the feed is closed
  }
  if (stream.is_closed()) co_return Error{ErrorCode::Cancelled, "the client is gone"};
  co_return ok_status();
}

}  // namespace llorch::http::test
