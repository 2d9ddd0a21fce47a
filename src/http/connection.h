// One accepted connection: reads requests one after the other, finds their handler, sends the
// answers in order. Private to http/. Everything runs on the connection's strand.
#pragma once

#include <atomic>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <memory>
#include <optional>

#include "base/mutex.h"
#include "base/result.h"
#include "http/exchange.h"
#include "http/guard.h"
#include "http/message.h"
#include "http/router.h"
#include "http/server.h"
#include "http/task.h"
#include "http/transport.h"
#include "http/web_guard.h"

namespace llorch::http {

// What all connections of a server share, and outlives them.
struct ConnectionShared {
  Router router;
  ServerOptions options;
  WebRules web;
  WebRules web_with_token;  // for a request that has a good one of many
  base::Mutex tls_mutex;
  TlsContext tls LLORCH_GUARDED_BY(tls_mutex);  // null: plain
  std::atomic<bool> draining = false;
  std::atomic<std::size_t> body_bytes = 0;  // of bodies that are being read
  LineLimit refusal_lines{20};              // of the log
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Transport::Socket socket, bool is_unix, ConnectionShared& shared);

  Task<void> run();     // until the connection ends
  Task<void> refuse();  // says that the server is full, and ends

  // From the strand. Both may come at any time and more than once.
  void begin_drain();  // closes now if no request is under way
  void make_room();    // the same, or after the request that is
  void abort();        // closes now; a running handler sees its client gone

  // From any thread: whether the whole head of a request has yet to come.
  bool is_waiting() const { return waiting_; }

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  // The route of a request, or why it gets none.
  struct Admission {
    const Router::Route* route = nullptr;
    std::optional<Refusal> refusal;
    bool is_preflight = false;              // of a page that may: answered here
    Headers headers;                        // of every answer
    const RouteOptions* options = nullptr;  // how to say an error; null: as the server does
    std::size_t max_body_bytes = 0;
  };

  Task<bool> begin();  // false: no secure connection came about
  Task<void> answer_plain_http();
  Task<bool> serve_one();  // false: the connection is over
  Task<bool> read_head(Parser& parser, Exchange& exchange);
  Task<bool> read_body(Parser& parser, Exchange& exchange, const Admission& admission);
  Task<Result<bool>> take_body(Parser& parser, std::size_t limit);
  Task<bool> refill(Transport::TimePoint deadline, std::size_t max_bytes);
  Task<void> dispatch(const Router::Route& route, const Request& request, Exchange& exchange);
  Task<void> answer_error(Exchange& exchange, const Error& error,
                          const RouteOptions* route = nullptr);
  Task<void> answer_refusal(Exchange& exchange, const Refusal& refusal, const RouteOptions* route);
  Task<void> linger();

  Admission admit(const Parser& parser, Request& request) const;
  std::optional<Refusal> find_refusal(const Request& request, const Router::Match& match,
                                      bool has_good_token) const;
  bool has_good_token(const Request& request) const;  // one of many
  void drop_claims(Request& request, bool has_good_token) const;
  bool is_open_path(std::string_view path) const;
  Refusal refuse_stranger(const Request& request) const;
  void log_request(const Request& request, const Exchange& exchange,
                   std::chrono::steady_clock::time_point since) const;

  void start_watching();
  void stop_watching();
  std::string release_input();  // what was read ahead, for a handler that takes the connection over
  void watch();
  void take_readable_bytes();

  ConnectionShared& shared_;
  Transport transport_;
  const bool is_unix_;  // whoever can open that socket needs no token
  bool from_loopback_ = false;
  boost::beast::flat_buffer buffer_;  // read, not yet parsed; bounded
  std::atomic<bool> waiting_ = true;
  bool must_leave_ = false;   // others want the place
  bool idle_ = true;          // no byte of a next request has come
  bool must_linger_ = false;  // closing now could destroy an answer the client has not read yet
  bool aborted_ = false;
  bool is_whole_ = false;          // the last answer
  Exchange* current_ = nullptr;    // while a handler runs
  unsigned watch_generation_ = 0;  // a wait of an older generation is stale
};

}  // namespace llorch::http
