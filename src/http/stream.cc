#include "http/stream.h"

#include "http/exchange.h"
#include "http/sse.h"

namespace llorch::http {

Task<Status> Stream::write(std::string_view bytes) {
  return exchange_->write(bytes);
}

bool Stream::is_closed() const {
  return exchange_->is_gone();
}

void Stream::on_disconnect(std::function<void()> callback) {
  exchange_->on_gone(std::move(callback));
}

Task<Status> Responder::send(Response response) {
  return exchange_->send(std::move(response));
}

Task<Result<Stream>> Responder::open_stream(int status, std::string content_type, Headers headers,
                                            std::optional<std::int64_t> length) {
  Response head;
  head.status = status;
  head.headers = std::move(headers);
  head.headers.set("Content-Type", std::move(content_type));
  const Status opened = co_await exchange_->open_stream(std::move(head), length);
  if (!opened.ok()) co_return opened.error();
  co_return Stream(*exchange_);
}

void Responder::on_disconnect(std::function<void()> callback) {
  exchange_->on_gone(std::move(callback));
}

bool Responder::is_closed() const {
  return exchange_->is_gone();
}

Task<Status> pump_events(Stream& stream, std::shared_ptr<EventFeed<std::string>> feed,
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

}  // namespace llorch::http
