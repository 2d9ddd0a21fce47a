#include "http/stream.h"

#include "http/exchange.h"

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

}  // namespace llorch::http
