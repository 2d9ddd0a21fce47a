#include "worker_http/job_feed.h"

#include <fmt/format.h>

#include <utility>

namespace llorch::worker_http {

using Clock = std::chrono::steady_clock;

class JobFeed::Listener final : public TextListener {
 public:
  Listener(std::shared_ptr<JobFeed> feed, std::size_t choice)
      : feed_(std::move(feed)), choice_(choice) {}

  void on_started(const contract::StartedEvent& started) override {
    queue_ms_ = started.queue_ms;
    [[maybe_unused]] const bool heard = feed_->events_.try_push({choice_, started});
  }

  void on_told(openai::ToldText told) override {
    for (const TextPiece& piece : told.pieces) told_ += std::ssize(piece.ids);
    [[maybe_unused]] const bool heard = feed_->events_.try_push({choice_, std::move(told)});
  }

  bool on_text(TextPiece piece) override {
    if (feed_->waiting_pieces_.load() >= feed_->max_pieces_) {
      overflowed_ = true;
      return false;
    }
    ++feed_->waiting_pieces_;
    return feed_->events_.try_push({choice_, std::move(piece)});
  }

  void on_end(GenerationResult result) override {
    if (overflowed_) {
      result = Error{ErrorCode::Cancelled,
                     fmt::format("the reader was too slow: {} pieces of text were waiting for it",
                                 feed_->max_pieces_)};
    }
    const std::chrono::duration<double, std::milli> total = Clock::now() - since_;
    feed_->metrics_->record(result, told_, queue_ms_, total.count());
    [[maybe_unused]] const bool heard = feed_->events_.try_push({choice_, std::move(result)});
    feed_.reset();
  }

 private:
  // Owned by the engine's thread once submitted.
  std::shared_ptr<JobFeed> feed_;
  const std::size_t choice_;
  const Clock::time_point since_ = Clock::now();
  double queue_ms_ = 0;
  std::int64_t told_ = 0;  // tokens
  bool overflowed_ = false;
};

JobFeed::JobFeed(std::size_t num_choices, std::size_t max_pieces, std::shared_ptr<Metrics> metrics)
    : max_pieces_(max_pieces),
      metrics_(std::move(metrics)),
      events_(max_pieces + 3 * num_choices) {}

std::shared_ptr<TextListener> JobFeed::make_listener(std::size_t choice) {
  return std::make_shared<Listener>(shared_from_this(), choice);
}

http::Task<JobFeed::Next> JobFeed::next(std::chrono::milliseconds timeout) {
  Next next = co_await events_.next(timeout);
  if (next.item && std::holds_alternative<TextPiece>(next.item->what)) --waiting_pieces_;
  co_return next;
}

}  // namespace llorch::worker_http
