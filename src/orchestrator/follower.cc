#include "orchestrator/follower.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "fleet/events.h"
#include "fleet/ids.h"

namespace llorch::orchestrator {
namespace {

std::uint64_t next_number() {
  static std::atomic<std::uint64_t> newest{0};
  return ++newest;
}

std::uint32_t told_of(const fleet::Position& position, std::size_t choice) {
  return choice < position.told.size() ? position.told[choice] : 0;
}

// Whether one of its choices went on from `before` to `after`, beyond what was seen.
bool is_news(const fleet::Position& before, const fleet::Position& after,
             const fleet::Position& seen) {
  for (std::size_t choice = 0; choice < after.told.size(); ++choice) {
    const std::uint32_t told = after.told[choice];
    if (told > told_of(before, choice) && told > told_of(seen, choice)) return true;
  }
  return false;
}

// As far as either in every choice.
fleet::Position farthest(fleet::Position a, const fleet::Position& b) {
  a.told.resize(std::max(a.told.size(), b.told.size()));
  for (std::size_t choice = 0; choice < b.told.size(); ++choice)
    a.told[choice] = std::max(a.told[choice], b.told[choice]);
  return a;
}

}  // namespace

EventFilter::EventFilter(fleet::Position seen, fleet::Position at)
    : seen_(std::move(seen)), at_(std::move(at)) {
  // `started` is at 0, as is everything before the first id.
  is_open_ = seen_.total() > 0 && at_.covers(seen_);
}

void EventFilter::take_event(std::string_view event, std::string& out) {
  constexpr std::string_view kId = "id: ";
  std::optional<fleet::Position> position;
  // The position stands in the first line of an event, see AnswerLog.
  if (event.starts_with(kId))
    position = fleet::position_from_text(event.substr(kId.size(), event.find('\n') - kId.size()));
  if (is_open_) {
    out += event;
    return;
  }
  if (!position) {
    held_ += event;
    return;
  }
  if (is_news(at_, *position, seen_)) {
    // An answer that is made again may come with its choices in another order. Whoever gets this
    // one has still seen what it had seen before, and says so when it comes back.
    out += held_;
    out += kId;
    out += fleet::text(farthest(*position, seen_));
    out += event.substr(event.find('\n'));
  }
  held_.clear();
  at_ = *position;
  is_open_ = at_.covers(seen_);
}

std::string EventFilter::take(std::string events) {
  if (is_open_) return events;
  std::string out;
  std::string_view rest = events;
  while (!rest.empty()) {
    const std::size_t end = rest.find("\n\n");
    const std::size_t size = end == std::string_view::npos ? rest.size() : end + 2;
    take_event(rest.substr(0, size), out);
    rest.remove_prefix(size);
  }
  return out;
}

Follower::Follower(std::shared_ptr<AnswerLog> log, FollowerParts parts,
                   const std::optional<fleet::Position>& last)
    : log_(std::move(log)), parts_(std::move(parts)), number_(next_number()) {
  const AnswerLog::Start start = log_->start_behind(last);
  cursor_ = start.cursor;
  if (last) filter_.emplace(*last, start.position);
  const AnswerLog::Followers now = log_->add_follower(waker_, number_);
  // A job that lives with its connection is known to have that one.
  if (log_->is_stored() && !log_->ended())
    parts_.post(fleet::FollowersChanged{log_->job(), now.count, now.change});
}

Follower::~Follower() {
  const AnswerLog::Followers now = log_->remove_follower(number_);
  if (!log_->ended()) parts_.post(fleet::FollowersChanged{log_->job(), now.count, now.change});
}

http::Task<Result<std::string>> Follower::read_back(AnswerNews news) {
  const fleet::Position from = *news.read_before;
  for (int reads = 0; reads < 2; ++reads) {
    for (; backlog_next_ < backlog_.size(); ++backlog_next_) {
      fleet::AnswerGroup& group = backlog_[backlog_next_];
      if (group.ids.empty() || group.from != from) continue;
      if (group.events.size() < news.read_bytes) break;
      const std::size_t skipped = static_cast<std::size_t>(cursor_.at - news.read_at);
      cursor_.at = news.read_at + news.read_bytes;
      std::string bytes = group.events.substr(skipped, news.read_bytes - skipped);
      std::string().swap(group.events);
      ++backlog_next_;
      co_return bytes;
    }
    std::function<Result<std::vector<fleet::AnswerGroup>>()> read =
        [store = parts_.store, job = log_->job(), from] { return store->read_answer(job, from); };
    Result<std::vector<fleet::AnswerGroup>> groups =
        co_await parts_.threads->run<std::vector<fleet::AnswerGroup>>(std::move(read));
    if (!groups.ok()) co_return groups.error();
    backlog_ = groups.take();
    backlog_next_ = 0;
  }
  co_return Error{ErrorCode::NotFound,
                  "this part of the answer is no longer kept: answers are for an hour after their "
                  "job's end"};
}

http::Task<Result<Follower::Next>> Follower::next(std::chrono::steady_clock::time_point deadline) {
  bool may_wait = true;
  while (true) {
    AnswerNews news = log_->news(cursor_);
    Next next{std::move(news.notice), news.has_ended};
    std::string bytes = std::move(news.bytes);
    const std::string end = std::move(news.end);
    if (news.read_before) {
      Result<std::string> read = co_await read_back(std::move(news));
      if (!read.ok()) co_return read.error();
      bytes = read.take();
    }
    const bool has_more = !bytes.empty() && !next.has_ended;  // behind what the filter drops
    if (filter_) bytes = filter_->take(std::move(bytes));
    next.has_answer = !bytes.empty();
    next.bytes += bytes;
    if (next.has_ended) next.bytes += (filter_ ? filter_->finish() : std::string()) + end;
    if (!next.bytes.empty() || next.has_ended) co_return next;
    if (has_more) continue;
    if (!std::exchange(may_wait, false)) co_return Next();
    co_await waker_.wait_until(deadline);
  }
}

}  // namespace llorch::orchestrator
