#include "orchestrator/answer_log.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "orchestrator/answer_text.h"

namespace llorch::orchestrator {
namespace {

constexpr std::size_t kNewsBytes = std::size_t{256} << 10;
constexpr int kRefusalsMax = 20;

const base::Logger& logger() {
  static const base::Logger instance("answers");
  return instance;
}

bool is_openai(const AnswerForm& form) {
  return form.kind != fleet::JobKind::Execute;
}

}  // namespace

AnswerLog::AnswerLog(fleet::JobId job, fleet::Holder holder, AnswerForm form, AnswerLimits limits,
                     Give give)
    : job_(job),
      holder_(holder),
      form_(std::move(form)),
      limits_(limits),
      give_(std::move(give)),
      ids_(form_.choices) {
  told_.told.resize(form_.choices);
  progress_.has_begun.resize(form_.choices);
  progress_.is_finished.resize(form_.choices);
}

// --- restoring ---

void AnswerLog::await_restore() {
  const base::MutexLock lock(mutex_);
  needs_restore_ = true;
}

bool AnswerLog::needs_restore() const {
  const base::MutexLock lock(mutex_);
  return needs_restore_;
}

void AnswerLog::restore(const std::vector<fleet::AnswerGroup>& groups) {
  const base::MutexLock lock(mutex_);
  if (!std::exchange(needs_restore_, false)) return;
  for (const fleet::AnswerGroup& group : groups) {
    Segment segment{.attempt = group.attempt,
                    .from = told_,
                    .at = bytes_,
                    .bytes = find_end(group.events),
                    .state = SegmentState::Durable};
    for (const fleet::ChoiceIds& choice : group.ids) {
      if (choice.choice >= form_.choices) continue;
      told_.told[choice.choice] += static_cast<std::uint32_t>(choice.ids.size());
      std::vector<std::int32_t>& ids = ids_[choice.choice];
      ids.insert(ids.end(), choice.ids.begin(), choice.ids.end());
    }
    segment.upto = told_;
    segment.end_text = group.events.substr(segment.bytes);
    if (!segment.end_text.empty()) {
      is_whole_ = true;
      end_text_ = segment.end_text;
      stop_reason_ = stop_reason_of(end_text_);
    }
    note_events(group.events, progress_);
    progress_.has_started = progress_.has_started || segment.bytes > 0;
    // What has no ids of its own cannot be asked for by its place.
    if (group.ids.empty()) {
      segment.text = group.events.substr(0, segment.bytes);
      memory_ += segment.text.size();
    }
    bytes_ += segment.bytes;
    segments_.push_back(std::move(segment));
  }
  wake_all();
}

// --- attempts ---

AnswerLog::Resume AnswerLog::begin_attempt(const fleet::AttemptId& attempt) {
  const base::MutexLock lock(mutex_);
  attempt_ = attempt;
  const bool is_finished =
      is_openai(form_) && std::all_of(progress_.is_finished.begin(), progress_.is_finished.end(),
                                      [](bool is) { return is; });
  return {progress_, ids_, told_.total(), is_whole_ || is_finished, stop_reason_};
}

void AnswerLog::note_worker(std::string served_by) {
  const base::MutexLock lock(mutex_);
  served_by_ = std::move(served_by);
}

AnswerLog::Segment& AnswerLog::open_segment() {
  const bool has_open = !segments_.empty() && segments_.back().state == SegmentState::Open &&
                        segments_.back().attempt == attempt_;
  if (!has_open) {
    close_segment();
    segments_.push_back(
        {.attempt = attempt_, .from = told_, .upto = told_, .at = bytes_, .since = Clock::now()});
  }
  return segments_.back();
}

void AnswerLog::add_text(std::string_view text) {
  Segment& segment = open_segment();
  segment.text += text;
  segment.bytes += text.size();
  bytes_ += text.size();
  memory_ += text.size();
}

void AnswerLog::add_step(AnswerStep step) {
  const bool is_start = !is_openai(form_) && step.ids.empty() && told_.total() == 0;
  open_segment();  // it begins before what this step tells
  told_.told[step.choice] += static_cast<std::uint32_t>(step.ids.size());
  std::vector<std::int32_t>& ids = ids_[step.choice];
  ids.insert(ids.end(), step.ids.begin(), step.ids.end());
  if (is_stored() && !step.text.empty() && (!step.ids.empty() || is_start))
    step.text.insert(step.last_at, id_line(told_));
  add_text(step.text);
  Segment& segment = segments_.back();
  segment.upto = told_;
  if (segment.upto.total() - segment.from.total() >= limits_.group_ids) close_segment();
}

std::uint64_t AnswerLog::append(const fleet::AttemptId& attempt, std::vector<AnswerStep> steps,
                                const AnswerProgress& told) {
  const base::MutexLock lock(mutex_);
  if (attempt != attempt_) return told_.total();
  for (AnswerStep& step : steps) add_step(std::move(step));
  progress_ = told;
  give_groups();
  if (memory_ > limits_.log_bytes) forget(limits_.log_bytes);
  if (!steps.empty()) wake_all();
  return told_.total();
}

void AnswerLog::note_moved(const fleet::AttemptId& attempt, const fleet::JobNotice& notice) {
  const base::MutexLock lock(mutex_);
  if (attempt != attempt_) return;
  fleet::JobNotice moved = notice;
  moved.at_token = told_.total();
  add_text(notice_text(form_, holder_, moved));
}

void AnswerLog::keep_whole(const fleet::AttemptId& attempt, WholeAnswer whole) {
  const base::MutexLock lock(mutex_);
  if (attempt == attempt_) whole_ = std::move(whole);
}

std::uint64_t AnswerLog::end_attempt(const fleet::AttemptId& attempt, std::string end_text) {
  const base::MutexLock lock(mutex_);
  if (attempt != attempt_) return told_.total();
  if (!end_text.empty()) {
    is_whole_ = true;
    stop_reason_ = stop_reason_of(end_text);
    end_text_ = is_stored() && !is_openai(form_) ? id_line(told_) + end_text : std::move(end_text);
    open_segment().end_text = end_text_;
  }
  close_segment();
  give_groups();
  attempt_ = {};
  return told_.total();
}

std::size_t AnswerLog::unsafe_bytes() const {
  if (!is_stored()) return static_cast<std::size_t>(bytes_ - read_upto_);
  std::size_t bytes = 0;
  for (auto segment = segments_.rbegin(); segment != segments_.rend(); ++segment) {
    if (segment->state == SegmentState::Durable) break;
    bytes += segment->bytes;
  }
  return bytes;
}

bool AnswerLog::must_pause(const http::Waker& writer) {
  const base::MutexLock lock(mutex_);
  const bool must = !ended_ && !gives_up_ && unsafe_bytes() > limits_.pause_bytes;
  paused_.reset();
  if (must) paused_ = writer;
  return must;
}

// --- the owner ---

void AnswerLog::tell(const fleet::JobNotice& notice) {
  const base::MutexLock lock(mutex_);
  switch (notice.kind) {
    case fleet::NoticeKind::Queued:
    case fleet::NoticeKind::Loading:
      notice_ = notice_text(form_, holder_, notice);
      ++notice_number_;
      break;
    case fleet::NoticeKind::Migrated:
      return;  // stands where the new attempt begins: note_moved
    case fleet::NoticeKind::Ended:
      ended_ = notice.end;
      if (paused_) paused_->notify();
      break;
  }
  wake_all();
}

// --- the store ---

void AnswerLog::close_segment() {
  if (segments_.empty() || segments_.back().state != SegmentState::Open) return;
  Segment& last = segments_.back();
  const bool is_empty =
      last.bytes == 0 && last.end_text.empty() && last.from.total() == last.upto.total();
  if (is_empty) {
    segments_.pop_back();
  } else {
    last.state = SegmentState::Waiting;
  }
}

fleet::AnswerGroup AnswerLog::group_of(const Segment& segment) const {
  fleet::AnswerGroup group{.attempt = segment.attempt, .from = segment.from};
  for (std::uint32_t choice = 0; choice < form_.choices; ++choice) {
    const std::uint32_t from = segment.from.told[choice];
    const std::uint32_t upto = segment.upto.told[choice];
    if (from == upto) continue;
    const auto begin = ids_[choice].begin();
    group.ids.push_back({choice, {begin + from, begin + upto}});
  }
  group.events = segment.text + segment.end_text;
  return group;
}

void AnswerLog::give_groups() {
  if (!is_stored() || gives_up_) return;
  // What is durable is a beginning of the answer.
  auto first = segments_.end();
  bool has_given = false;
  while (first != segments_.begin() && std::prev(first)->state != SegmentState::Durable) {
    --first;
    has_given |= first->state == SegmentState::Given;
  }
  // A group that was refused takes those behind it along: they go again once all have come back.
  if (was_refused_ && has_given) return;
  was_refused_ = false;
  for (; first != segments_.end(); ++first) {
    if (first->state != SegmentState::Waiting) continue;
    if (!give_(group_of(*first))) return;
    first->state = SegmentState::Given;
  }
}

void AnswerLog::note_written(const job_store::AnswerWritten& written) {
  const base::MutexLock lock(mutex_);
  const auto given = std::find_if(segments_.begin(), segments_.end(), [](const Segment& segment) {
    return segment.state == SegmentState::Given;
  });
  if (given == segments_.end() || given->attempt != written.attempt ||
      given->upto != written.upto) {
    return;
  }
  if (written.outcome == fleet::WriteOutcome::Durable) {
    given->state = SegmentState::Durable;
    refusals_ = 0;
    if (memory_ > limits_.log_bytes) forget(limits_.log_bytes);
  } else {
    given->state = SegmentState::Waiting;
    was_refused_ = true;
    const bool is_hopeless =
        written.outcome == fleet::WriteOutcome::Conflict && ++refusals_ >= kRefusalsMax;
    if (is_hopeless && !gives_up_) {
      gives_up_ = true;
      logger().error("an answer is no longer stored: the store has another one",
                     {{"job_id", fleet::text(job_)}});
    }
  }
  if (paused_) paused_->notify();
}

void AnswerLog::give_due(Clock::time_point now) {
  const base::MutexLock lock(mutex_);
  if (!is_stored() || segments_.empty()) return;
  const Segment& last = segments_.back();
  const bool has_ids = last.upto.total() > last.from.total();
  if (last.state == SegmentState::Open && has_ids && now - last.since >= limits_.group_time)
    close_segment();
  give_groups();
}

void AnswerLog::forget_read(std::uint64_t upto) {
  read_upto_ = std::max(read_upto_, upto);
  while (!segments_.empty() && segments_.front().at + segments_.front().bytes <= read_upto_) {
    memory_ -= segments_.front().text.size();
    segments_.pop_front();
  }
  if (paused_) paused_->notify();
}

void AnswerLog::forget(std::size_t bytes) {
  for (Segment& segment : segments_) {
    if (memory_ <= bytes) return;
    const bool can_be_read_back =
        segment.state == SegmentState::Durable && segment.upto.total() > segment.from.total();
    if (!can_be_read_back) continue;
    memory_ -= segment.text.size();
    std::string().swap(segment.text);
  }
}

void AnswerLog::shrink(std::size_t bytes) {
  const base::MutexLock lock(mutex_);
  forget(bytes);
}

std::size_t AnswerLog::memory_bytes() const {
  const base::MutexLock lock(mutex_);
  return memory_;
}

bool AnswerLog::is_settled() const {
  const base::MutexLock lock(mutex_);
  if (!ended_) return false;
  if (!is_stored() || gives_up_) return true;
  return std::none_of(segments_.begin(), segments_.end(),
                      [](const Segment& segment) { return segment.state == SegmentState::Given; });
}

// --- followers ---

AnswerLog::Start AnswerLog::start_behind(const std::optional<fleet::Position>& last) const {
  const base::MutexLock lock(mutex_);
  Start start;
  if (!segments_.empty()) start = {{.at = segments_.front().at}, segments_.front().from};
  if (!last) return start;
  for (const Segment& segment : segments_) {
    if (!last->covers(segment.from)) break;
    // Of several that begin at one place, the first: some of them have no ids.
    if (segment.from == start.position) continue;
    start = {{.at = segment.at}, segment.from};
  }
  return start;
}

AnswerNews AnswerLog::news(AnswerCursor& cursor) {
  const base::MutexLock lock(mutex_);
  AnswerNews news;
  if (needs_restore_) return news;
  if (cursor.at < bytes_) {
    auto segment =
        std::upper_bound(segments_.begin(), segments_.end(), cursor.at,
                         [](std::uint64_t at, const Segment& each) { return at < each.at; });
    CHECK(segment != segments_.begin(), "what its one follower has not read is there");
    for (--segment; segment != segments_.end() && news.bytes.size() < kNewsBytes; ++segment) {
      if (segment->text.size() < segment->bytes) {
        if (!news.bytes.empty()) break;
        news.read_before = segment->from;
        news.read_at = segment->at;
        news.read_bytes = segment->bytes;
        return news;
      }
      news.bytes += std::string_view(segment->text).substr(cursor.at - segment->at);
      cursor.at = segment->at + segment->bytes;
    }
    if (!is_stored()) forget_read(cursor.at);
  } else if (!ended_ && cursor.notice != notice_number_) {
    cursor.notice = notice_number_;
    news.notice = notice_;
  }
  if (cursor.at == bytes_ && ended_ && !std::exchange(cursor.had_end, true)) {
    news.end = end_text_of(form_, *ended_, end_text_);
    news.has_ended = true;
  }
  return news;
}

void AnswerLog::wake_all() {
  for (auto& [number, waker] : followers_) waker.notify();
}

AnswerLog::Followers AnswerLog::add_follower(const http::Waker& waker, std::uint64_t number) {
  const base::MutexLock lock(mutex_);
  followers_.emplace_back(number, waker);
  return {static_cast<std::uint32_t>(followers_.size()), ++follower_changes_};
}

AnswerLog::Followers AnswerLog::remove_follower(std::uint64_t number) {
  const base::MutexLock lock(mutex_);
  std::erase_if(followers_, [number](const auto& each) { return each.first == number; });
  return {static_cast<std::uint32_t>(followers_.size()), ++follower_changes_};
}

std::string AnswerLog::served_by() const {
  const base::MutexLock lock(mutex_);
  return served_by_;
}

std::optional<WholeAnswer> AnswerLog::whole() const {
  const base::MutexLock lock(mutex_);
  return whole_;
}

std::optional<fleet::EndedRecord> AnswerLog::ended() const {
  const base::MutexLock lock(mutex_);
  return ended_;
}

}  // namespace llorch::orchestrator
