// What a handler answers through: one whole response, or a stream of bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "http/message.h"
#include "http/task.h"

namespace llorch::http {

class Exchange;  // one request and its answer, inside the server

// A response whose end is not known yet. Lives as long as the handler; the server ends it properly
// when the handler returns ok. Used only on the handler's own coroutine.
class Stream {
 public:
  explicit Stream(Exchange& exchange) : exchange_(&exchange) {}

  // Returns when the bytes are handed to the kernel, so a slow reader slows the writer; they leave
  // at once, never gathered. Cancelled when the client is gone or did not read for the write
  // timeout.
  Task<Status> write(std::string_view bytes);

  bool is_closed() const;  // the client is gone, or the server stops now
  void on_disconnect(std::function<void()> callback);  // see Responder

 private:
  Exchange* exchange_;
};

// Lives as long as the handler; used only on the handler's own coroutine.
class Responder {
 public:
  explicit Responder(Exchange& exchange) : exchange_(&exchange) {}

  // Exactly one of these, once.
  Task<Status> send(Response response);
  // Cancelled when nobody will read the stream: the client is gone, or asked for the head only.
  // With a `length` exactly so many bytes are written; fewer break the stream visibly.
  Task<Result<Stream>> open_stream(int status, std::string content_type, Headers headers = {},
                                   std::optional<std::int64_t> length = std::nullopt);

  // Calls `callback` once, on the handler's executor, when the client disconnects or the server
  // stops now: at once if that has happened already. The place to cancel work and close the feed
  // the handler waits on. A client that shuts down its sending side counts as gone. Not called
  // after the handler returned.
  void on_disconnect(std::function<void()> callback);

  bool is_closed() const;

 private:
  friend class Pipe;
  Exchange* exchange_;
};

}  // namespace llorch::http
