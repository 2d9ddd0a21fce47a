// Server: listens, runs one coroutine per connection, drains and stops.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "http/message.h"
#include "http/router.h"

namespace llorch::http {

struct ServerOptions {
  std::string host = "127.0.0.1";  // an IP address or "localhost"
  std::uint16_t port = 0;          // 0 takes a free one
  int io_threads = 2;

  // PEM files: with both the port speaks TLS 1.3 alone. A unix socket never does.
  std::string tls_certificate_file;
  std::string tls_key_file;

  RenderError render_error;  // required

  // Any address but loopback needs a token of at least 16 characters. With a token, every path
  // needs "Authorization: Bearer <token>" except those named here.
  std::string bearer_token;
  std::vector<std::string> paths_without_auth;
  // For servers with many tokens, instead of bearer_token: whether this one is good. Any thread.
  // Any address may be listened on then. Requests from loopback need no token; one that has a good
  // one is treated as on a server with a token, every other as on one without.
  std::function<bool(std::string_view token)> accepts_token;
  // Header fields that count from known callers alone: through the unix socket, or with a good
  // token. From others they are dropped before a handler sees them.
  std::vector<std::string> fields_of_known;
  // Hears of every request that was refused for its token; `key` as a log may name it, "none"
  // without one. On an io thread: it must not wait.
  std::function<void(const std::string& key, const Request& request)> on_stranger;

  // Web pages that may use this server: "https://app.example"; "*" (any) needs a token. Without a
  // token the server answers only to its loopback names, and to these ("box:8080").
  std::vector<std::string> allowed_origins;
  std::vector<std::string> more_hosts;

  // When all are taken, the oldest one that waits for a request makes room for a new one; where
  // every one has a request, the new one is told to come back later.
  std::size_t max_connections = 4096;
  std::size_t max_header_bytes = 16 * 1024;  // request line included
  std::size_t max_header_fields = 100;
  std::size_t max_target_bytes = 8 * 1024;
  // Of routes that do not say otherwise; paths_without_auth take no body unless their route says.
  std::size_t max_body_bytes = std::size_t{4} << 20;
  // Of all bodies that are being read at the same time; more are told to come back later.
  std::size_t max_body_bytes_total = std::size_t{64} << 20;

  std::chrono::milliseconds idle_timeout{75'000};  // between requests
  std::chrono::milliseconds header_timeout{
      10'000};  // from a request's first byte to the end of its head
  std::chrono::milliseconds body_timeout{60'000};
  std::chrono::milliseconds write_timeout{30'000};  // how long a peer may leave one write unread
};

// Handlers run on the io threads; a connection stays on one strand, so its handler needs no locks
// of its own.
class Server {
 public:
  // Listening when it returns. Fails when the address is taken, not ours, or open to others without
  // a token.
  static Result<std::unique_ptr<Server>> start(Router router, ServerOptions options);
  ~Server();  // stops
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Serves the same on a unix socket too, from now on, without token and Host checks: only this
  // user can open it (0600; its folder is made 0700 where it is not there yet). What a process that
  // is gone left at that path is removed; Conflict when a living one listens there. Once, not from
  // an io thread. The file goes with the server.
  Status listen_unix(const std::string& path);

  // Reads the TLS files again: connections from now on get the new certificate. Any thread; on an
  // error everything stays as it was.
  Status reload_tls();

  std::uint16_t port() const;
  std::size_t num_connections() const;

  // Runs a coroutine on a strand of its own among the connections': what both exchange wakes nobody
  // else. It is destroyed where it waits when the server stops. False: that has begun. Any thread.
  [[nodiscard]] bool spawn(std::function<Task<void>()> body);

  // Stops accepting, closes idle connections, lets running requests finish within `patience`, then
  // stops. A stop() from another thread cuts it short. Not from an io thread, as for stop().
  void drain(std::chrono::milliseconds patience);

  // Closes every connection now: handlers see their client gone. Those that still have not returned
  // after a short grace are destroyed where they wait. Idempotent; any thread but the io threads.
  void stop();

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace llorch::http
