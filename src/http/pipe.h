// Pipe: a connection that speaks no HTTP (any more): bytes both ways. After an Upgrade, and between
// sockets of this machine.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

#include "base/result.h"
#include "http/client.h"
#include "http/stream.h"
#include "http/task.h"

namespace llorch::http {

// Used on one strand; one read and one write may be under way at the same time. No operation has a
// deadline: the system ends a connection whose peer is silent for half a minute (keep-alive).
class Pipe {
 public:
  class Impl;
  explicit Pipe(std::unique_ptr<Impl> impl);
  ~Pipe();
  Pipe(Pipe&&) noexcept;
  Pipe& operator=(Pipe&&) noexcept;

  // The connection of a handler that has sent its 101 (send_upgrade); used until the handler
  // returns.
  static Pipe take_over(Responder& responder);
  // A connected unix socket, which it owns from now on; and one that is connected here.
  static Task<Result<Pipe>> adopt(int fd);
  static Task<Result<Pipe>> connect_unix(std::string path);

  // What has come, as soon as something has; empty at the end.
  Task<Result<std::string>> read_some();
  Task<Status> write(std::string_view bytes);
  void close();

 private:
  std::unique_ptr<Impl> impl_;
};

// Answers a request with 101: from here on `protocol` is spoken. The client's leaving is still
// heard of (Responder::on_disconnect) until take_over.
Task<Status> send_upgrade(Responder& responder, std::string protocol);

// Carries what each says to the other until one of them ends; then both have.
Task<void> join_pipes(Pipe a, Pipe b);

// Opens connections that are upgraded. Any thread.
class PipeDialer {
 public:
  explicit PipeDialer(const ClientOptions& trust);
  ~PipeDialer();

  // Sends the request with "Upgrade: protocol". Another answer than 101 is the error: Unauthorized
  // for 401 and 403, NotFound for 404, Conflict for 409, else Unavailable, with what it said.
  // Errors of the connection as http::Client has them.
  Task<Result<Pipe>> open(ClientRequest request, std::string protocol);

 private:
  class Trust;
  std::unique_ptr<Trust> trust_;
};

// Listens on a unix socket (0600) and gives each connection to `on_connection`, as a descriptor for
// Pipe::adopt, until `stop` says so; the socket's file goes then.
Task<Status> accept_pipes(std::string path, std::function<void(int fd)> on_connection,
                          std::stop_token stop);

}  // namespace llorch::http
