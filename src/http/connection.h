// One accepted connection: reads requests one after the other, finds their handler, sends the
// answers in order. Private to http/. Everything runs on the connection's strand.
#pragma once

#include <atomic>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <memory>
#include <optional>

#include "base/result.h"
#include "http/exchange.h"
#include "http/message.h"
#include "http/router.h"
#include "http/server.h"
#include "http/task.h"
#include "http/transport.h"

namespace llorch::http {

// What all connections of a server share, and outlives them.
struct ConnectionShared {
  Router router;
  ServerOptions options;
  bool open_to_all = true;  // no token asked for
  std::atomic<bool> draining = false;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(boost::asio::ip::tcp::socket socket, const ConnectionShared& shared);

  Task<void> run();     // until the connection ends
  Task<void> refuse();  // says that the server is full, and ends

  // From the strand. Both may come at any time and more than once.
  void begin_drain();  // closes now if no request is under way
  void abort();        // closes now; a running handler sees its client gone

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  // The route of a request, or why it gets none; `headers` go with the error.
  struct Admission {
    const Router::Route* route = nullptr;
    std::optional<Error> error;
    const RouteOptions* options = nullptr;  // how to say the error; null: as the server does
    Headers headers;
  };

  Task<bool> serve_one();  // false: the connection is over
  Task<bool> read_head(Parser& parser, Exchange& exchange);
  Task<bool> read_body(Parser& parser, Exchange& exchange, const RouteOptions& route);
  Task<bool> refill(Transport::TimePoint deadline);
  Task<void> dispatch(const Router::Route& route, const Request& request, Exchange& exchange);
  Task<void> answer_error(Exchange& exchange, const Error& error,
                          const RouteOptions* route = nullptr, const Headers& headers = {});
  Task<void> linger();

  Admission admit(const Parser& parser, Request& request) const;
  Status check_head(const Parser& parser) const;
  void log_request(const Request& request, const Exchange& exchange,
                   std::chrono::steady_clock::time_point since) const;

  void start_watching();
  void stop_watching();
  void watch();
  void take_readable_bytes();

  const ConnectionShared& shared_;
  Transport transport_;
  bool from_loopback_ = false;
  boost::beast::flat_buffer buffer_;  // read, not yet parsed
  bool idle_ = true;                  // no byte of a next request has come
  bool must_linger_ = false;  // closing now could destroy an answer the client has not read yet
  bool aborted_ = false;
  Exchange* current_ = nullptr;    // while a handler runs
  unsigned watch_generation_ = 0;  // a wait of an older generation is stale
};

}  // namespace llorch::http
