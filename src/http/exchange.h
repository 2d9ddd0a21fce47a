// The answering side of one request: writes the response's head, body or chunks, and knows whether
// the client is still there. Private to http/; handlers see it as Responder and Stream. Lives on
// the connection's strand.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "http/message.h"
#include "http/task.h"
#include "http/transport.h"

namespace llorch::http {

class Exchange {
 public:
  enum class State { Unanswered, Streaming, Answered, Broken };

  Exchange(Transport& transport, std::chrono::milliseconds write_timeout)
      : transport_(transport), write_timeout_(write_timeout) {}

  // What the request's head decides about the form of the answer.
  void set_form(bool is_head_request, bool is_http11, bool keep_alive);
  void set_correlation_id(std::string id) { correlation_id_ = std::move(id); }
  const std::string& correlation_id() const { return correlation_id_; }
  void set_common_headers(Headers headers) { common_headers_ = std::move(headers); }

  Task<Status> send(Response response);
  Task<Status> send_error(const ErrorBody& body);
  Task<Status> send_continue();
  // `length`: how many bytes will be written, where that is known. The head leaves with what is
  // written before the handler waits for something, else as soon as it does.
  Task<Status> open_stream(Response head, std::optional<std::int64_t> length);
  Task<Status> write(std::string_view bytes);
  Task<Status> end_stream();  // the last chunk; an error when bytes of a known length are missing

  State state() const { return state_; }
  int status() const { return status_; }  // of the answer; 0 before it
  // Whether the next request may follow on this connection.
  bool keeps_alive() const { return keep_alive_ && state_ == State::Answered; }
  void forbid_keep_alive() { keep_alive_ = false; }
  // Sends a head that is still held, as far as the kernel takes it at once.
  void flush_head();

  // After an answer of 101: the bare connection, and what of it was read ahead. The client's
  // leaving is no longer watched for.
  Transport& transport() { return transport_; }
  std::string release_input() { return release_input_ ? release_input_() : std::string(); }
  void on_release(std::function<std::string()> release) { release_input_ = std::move(release); }

  bool is_gone() const { return gone_; }
  void mark_gone();  // runs the callbacks, once
  void on_gone(std::function<void()> callback);
  void forget_callbacks() { on_gone_.clear(); }  // the handler has returned

 private:
  enum class Framing { Length, Chunked, UntilClose };

  std::string format_head(const Response& response, Framing framing, std::int64_t length);
  Task<Status> write_parts(std::string_view head, std::string_view body);
  void hold_head(std::string head);
  std::string take_head();

  Transport& transport_;
  const std::chrono::milliseconds write_timeout_;
  std::string correlation_id_;
  Headers common_headers_;  // of every answer to this request, whoever makes it
  bool is_head_request_ = false;
  bool is_http11_ = true;
  bool keep_alive_ = false;
  bool is_chunked_ = false;
  std::optional<std::int64_t> bytes_left_;  // of a stream with a known length
  State state_ = State::Unanswered;
  int status_ = 0;
  bool gone_ = false;
  std::shared_ptr<std::string> held_head_;  // null: none
  std::vector<std::function<void()>> on_gone_;
  std::function<std::string()> release_input_;  // the connection's
};

}  // namespace llorch::http
