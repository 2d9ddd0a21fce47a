// Client: requests to other processes, each with a deadline; whole answers or streams. Over TCP
// (http://), TLS (https://) or a unix socket (http+unix://, see url.h).
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "http/message.h"
#include "http/sse.h"
#include "http/task.h"

namespace llorch::http {

// Has constructors so that it may be built inside a co_await expression: see task.h.
struct ClientRequest {
  ClientRequest() = default;
  ClientRequest(Method verb, std::string target_url) : method(verb), url(std::move(target_url)) {}

  Method method = Method::Get;
  std::string url;
  Headers headers;  // a POST without a Content-Type goes as application/json
  std::string body;
  std::chrono::milliseconds connect_timeout{3'000};
  std::chrono::milliseconds total_timeout{30'000};  // 0: no limit, for streams that last
  std::chrono::milliseconds idle_timeout{
      60'000};  // the longest silence of the peer once the request is sent
  std::size_t max_response_bytes = std::size_t{16}
                                   << 20;  // of a whole body; streams are not bounded
  // Ends the call, and the stream that it opened, with Cancelled; from any thread.
  std::stop_token stop;
};

// A response whose body is read as it comes. Used on one strand; destroying it closes the
// connection.
class ResponseStream {
 public:
  class Impl;
  explicit ResponseStream(std::unique_ptr<Impl> impl);
  ~ResponseStream();
  ResponseStream(ResponseStream&&) noexcept;
  ResponseStream& operator=(ResponseStream&&) noexcept;

  int status() const;
  const Headers& headers() const;

  // What has come, as soon as something has; empty at the end of the body.
  Task<Result<std::string>> read_some();

  // Ends the connection; a read that waits fails with Unavailable.
  void close();

 private:
  std::unique_ptr<Impl> impl_;
};

struct ClientOptions {
  // Finished connections kept open for later requests. Only requests that are safe to repeat use
  // one: a server may close it at the very moment we write.
  std::size_t max_idle_connections = 0;
  // For https: a PEM file of the authorities that are believed, and no others. Empty: those of the
  // system, and those of `more_ca_file` where there is such a file.
  std::string ca_file{};
  std::string more_ca_file{};
};

// Errors name the peer and what happened: Unavailable (refused, closed early, unknown
// host), DeadlineExceeded, TooLarge, Corrupt (not HTTP), InvalidArgument and Unsupported (the URL),
// Unauthorized (TLS: the peer's certificate is not accepted; the message says why and what to do),
// OutOfMemory (this process has no descriptors, ports or memory left: says nothing about the peer).
// A status like 500 is an answer, not an error. Any thread may use one client at the same time.
// Looking up a name may outlast the deadline: that part is the system's.
class Client {
 public:
  explicit Client(const ClientOptions& options = {});
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // From plain threads: these block. Never on an io thread.
  Result<Response> send(const ClientRequest& request);
  // Gives each piece of a 2xx body to `on_bytes` until it returns false (Cancelled then). The body
  // of any other status is returned whole.
  Result<Response> stream(const ClientRequest& request,
                          const std::function<bool(std::string_view bytes)>& on_bytes);
  // The same for a body of server-sent events, one by one; one that cannot be read is the error.
  Result<Response> stream_events(const ClientRequest& request,
                                 const std::function<bool(const SseEvent& event)>& on_event);

  // From coroutines. The client must outlive the call and the stream.
  Task<Result<Response>> async_send(ClientRequest request);
  Task<Result<ResponseStream>> async_open(ClientRequest request);

 private:
  friend class ResponseStream::Impl;
  class IdlePool;
  class TlsTrust;
  std::unique_ptr<IdlePool> idle_;
  std::unique_ptr<TlsTrust> trust_;
};

}  // namespace llorch::http
