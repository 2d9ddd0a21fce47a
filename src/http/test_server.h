// For tests only: a server with a plain renderer, and a raw socket that can misbehave in every way.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/mutex.h"
#include "http/server.h"
#include "http/sse.h"

namespace llorch::http::test {

// "CODE-NUMBER: message" with a status of its own for each code that the server itself can cause.
ErrorBody render_plainly(const Error& error, std::string_view correlation_id);

// Answers to the hosts "test" and "t", which the requests below name.
ServerOptions plain_options();

// Starts, or ends the test program: nothing can be tested without.
std::unique_ptr<Server> start(Router router, ServerOptions options = plain_options());

// A blocking client socket on 127.0.0.1. Reads give up after ten seconds, which fails the test that
// waits.
class RawSocket {
 public:
  explicit RawSocket(std::uint16_t port, int receive_buffer_bytes = 0);
  ~RawSocket();
  RawSocket(const RawSocket&) = delete;
  RawSocket& operator=(const RawSocket&) = delete;

  bool send(std::string_view bytes);  // false when the peer no longer takes them
  std::string read_until(
      std::string_view mark);   // up to and including the mark; less if the stream ends
  std::string read_once();      // what one call to the kernel brings
  std::string read_response();  // head and Content-Length body
  std::string read_all();       // until the peer closes
  bool is_closed_by_peer();     // waits for it; false when bytes come instead
  void shutdown_send();
  void close();
  void reset();  // closes with RST

 private:
  bool fill();

  int fd_;
  std::string buffer_;
};

std::string get(std::string_view path, std::string_view headers = {});  // a GET request as text
// As JSON, unless the headers say otherwise.
std::string post(std::string_view path, std::string_view body, std::string_view headers = {},
                 std::string_view host = "test");
std::string body_of(std::string_view response);
int status_of(std::string_view response);  // 0 when there is none
std::string header_of(std::string_view response, std::string_view name);

json::Value parse(std::string_view text);        // fails the test when it is no JSON
json::Value json_of(std::string_view response);  // its body
std::string dechunk(std::string_view response);  // the body of a chunked one
// Of a stream: its events, and the data of each.
std::vector<SseEvent> events_of(std::string_view response);
std::vector<std::string> data_of(std::string_view response);

// GET /health says "fine", POST /echo what it was sent.
Router echo_router();

std::size_t resident_bytes();  // of this process

// A gate that one thread opens and others pass.
class Gate {
 public:
  void open();
  bool wait();  // false after ten seconds

 private:
  base::Mutex mutex_;
  base::CondVar changed_;
  bool open_ LLORCH_GUARDED_BY(mutex_) = false;
};

}  // namespace llorch::http::test

namespace llorch::http {

using test::body_of;
using test::Gate;
using test::get;
using test::header_of;
using test::plain_options;
using test::post;
using test::RawSocket;
using test::start;
using test::status_of;

}  // namespace llorch::http
