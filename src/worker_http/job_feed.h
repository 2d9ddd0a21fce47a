// JobFeed: what the generations of one HTTP request produce, on its way from the engine's thread to
// the request's coroutine. Bounded: a reader that falls too far behind loses its generation, never
// the engine's time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>

#include "http/feed.h"
#include "worker_http/backend.h"
#include "worker_http/metrics.h"

namespace llorch::worker_http {

using JobEvent = openai::GenerationEvent;

// Created by the handler; listeners keep it alive until their generations have ended.
class JobFeed : public std::enable_shared_from_this<JobFeed> {
 public:
  using Next = http::EventFeed<JobEvent>::Next;

  // `max_pieces` bounds the text pieces of all choices that wait for the reader.
  JobFeed(std::size_t num_choices, std::size_t max_pieces, std::shared_ptr<Metrics> metrics);

  // For the generation of one choice; each once.
  std::shared_ptr<TextListener> make_listener(std::size_t choice);

  // The handler's side. Started, told and end events are never lost while the feed is open.
  http::Task<Next> next(std::chrono::milliseconds timeout);
  // Nobody reads any more.
  void close() { events_.close(); }

 private:
  class Listener;

  const std::size_t max_pieces_;
  const std::shared_ptr<Metrics> metrics_;
  http::EventFeed<JobEvent> events_;
  std::atomic<std::size_t> waiting_pieces_ = 0;
};

}  // namespace llorch::worker_http
