#include "pool/downloads.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <random>
#include <utility>

#include "base/job_border.h"
#include "base/thread.h"
#include "base/timestamp.h"
#include "base/utf8.h"

namespace llorch::pool {
namespace {

constexpr std::size_t kNotesMax = 32;

// Ids of an earlier life of the daemon must not come back: a client that reconnects would take
// another's download for its own.
std::string make_id_prefix() {
  std::random_device random;
  return fmt::format("dl-{:08x}", random());
}

std::string now_text() {
  return base::to_rfc3339(std::chrono::system_clock::now());
}

}  // namespace

DownloadView view_of(const DownloadStatus& status) {
  DownloadView view{status.id,         status.kind,     status.model,    status.ref, status.state,
                    status.started_at, status.ended_at, status.progress, {},         {}};
  for (const auto& [number, text] : status.notes) view.notes.push_back(text);
  if (status.error) view.error = contract::error_event(*status.error);
  return view;
}

// Guarded by the owner's mutex, apart from what is constant and the stop source.
struct Downloads::Entry {
  Job job;
  DownloadStatus status;
  std::stop_source stop;
  std::vector<std::weak_ptr<DownloadWatch>> watchers;
  std::int64_t next_note = 1;
  std::optional<std::int64_t> first_bytes;  // in place when it began
};

Downloads::Downloads(const DownloadsOptions& options)
    : options_(options), id_prefix_(make_id_prefix()) {
  for (int i = 0; i < options_.max_running; ++i)
    threads_.push_back(base::start_thread("download", [this] { run_jobs(); }));
}

Downloads::~Downloads() {
  stop();
  threads_.clear();  // joins
}

void Downloads::stop() {
  {
    const base::MutexLock lock(mutex_);
    stopping_ = true;
    for (const EntryPtr& entry : entries_) entry->stop.request_stop();
    for (const EntryPtr& entry : std::exchange(waiting_, {}))
      finish(*entry, Error{ErrorCode::Cancelled, "the pool manager is stopping"});
  }
  changed_.notify_all();
}

Result<Downloads::Started> Downloads::start(Job job) {
  const base::MutexLock lock(mutex_);
  for (const EntryPtr& entry : entries_) {
    if (entry->status.has_ended() || entry->job.model != job.model) continue;
    if (entry->job.kind == job.kind && entry->job.what == job.what)
      return Started{entry->status, true};
    return Error{ErrorCode::Conflict,
                 fmt::format("{} has a {} under way ({}); wait for it, or cancel it with DELETE "
                             "/v2/downloads/{}",
                             job.model, entry->job.kind, entry->status.id, entry->status.id)};
  }
  if (stopping_) return Error{ErrorCode::Unavailable, "the pool manager ends"};
  if (waiting_.size() >= options_.max_waiting) {
    return Error{ErrorCode::QueueFull,
                 fmt::format("{} downloads wait already; try again later", waiting_.size())};
  }
  auto entry = std::make_shared<Entry>();
  entry->status.id = fmt::format("{}-{}", id_prefix_, next_number_++);
  entry->status.kind = job.kind;
  entry->status.model = job.model;
  if (job.kind == "download") entry->status.ref = job.what;
  entry->status.started_at = now_text();
  entry->job = std::move(job);
  entries_.push_back(entry);
  waiting_.push_back(entry);
  forget_old_ones();
  changed_.notify_one();
  return Started{entry->status, false};
}

Result<DownloadStatus> Downloads::cancel(std::string_view id) {
  const base::MutexLock lock(mutex_);
  const EntryPtr entry = find_entry(id);
  if (entry == nullptr) return unknown(id);
  entry->stop.request_stop();
  if (const auto at = std::find(waiting_.begin(), waiting_.end(), entry); at != waiting_.end()) {
    waiting_.erase(at);
    finish(*entry, Error{ErrorCode::Cancelled, "cancelled before it began"});
  }
  return entry->status;
}

Downloads::EntryPtr Downloads::find_entry(std::string_view id) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [id](const EntryPtr& entry) { return entry->status.id == id; });
  return found == entries_.end() ? nullptr : *found;
}

Result<DownloadStatus> Downloads::find(std::string_view id) const {
  const base::MutexLock lock(mutex_);
  if (const EntryPtr entry = find_entry(id)) return entry->status;
  return unknown(id);
}

Error Downloads::unknown(std::string_view id) const {
  return {ErrorCode::NotFound,
          fmt::format("there is no download {}; GET /v2/downloads lists them, of those that have "
                      "ended the last {}",
                      base::quoted(id), options_.max_ended)};
}

std::vector<DownloadStatus> Downloads::list() const {
  const base::MutexLock lock(mutex_);
  std::vector<DownloadStatus> all;
  all.reserve(entries_.size());
  for (const EntryPtr& entry : entries_) all.push_back(entry->status);
  return all;
}

std::optional<std::string> Downloads::ref_under_way(std::string_view model) const {
  const base::MutexLock lock(mutex_);
  for (const EntryPtr& entry : entries_) {
    const DownloadStatus& status = entry->status;
    if (!status.has_ended() && status.kind == "download" && status.model == model)
      return status.ref;
  }
  return std::nullopt;
}

bool Downloads::is_busy_with(std::string_view model) const {
  const base::MutexLock lock(mutex_);
  return std::any_of(entries_.begin(), entries_.end(), [model](const EntryPtr& entry) {
    return !entry->status.has_ended() && entry->job.model == model;
  });
}

bool Downloads::is_busy() const {
  const base::MutexLock lock(mutex_);
  return std::any_of(entries_.begin(), entries_.end(),
                     [](const EntryPtr& entry) { return !entry->status.has_ended(); });
}

Result<DownloadStatus> Downloads::watch(std::string_view id,
                                        const std::shared_ptr<DownloadWatch>& watch) {
  const base::MutexLock lock(mutex_);
  const EntryPtr entry = find_entry(id);
  if (entry == nullptr) return unknown(id);
  std::erase_if(entry->watchers, [](const auto& watcher) { return watcher.expired(); });
  entry->watchers.push_back(watch);
  return entry->status;
}

Downloads::Totals Downloads::totals() const {
  const base::MutexLock lock(mutex_);
  return totals_;
}

void Downloads::run_jobs() {
  for (;;) {
    EntryPtr entry;
    {
      const base::MutexLock lock(mutex_);
      while (!stopping_ && waiting_.empty()) changed_.wait(mutex_);
      if (stopping_) return;
      entry = waiting_.front();
      waiting_.pop_front();
      entry->status.state = DownloadState::Running;
      wake_watchers(*entry);
    }
    run(entry);
  }
}

void Downloads::run(const EntryPtr& entry) {
  const auto on_event = [this, &entry](const contract::DownloadEvent& event) {
    const base::MutexLock lock(mutex_);
    take_event(*entry, event);
  };
  Result<json::Object> outcome = base::run_job<json::Object>(
      "while fetching", [&] { return entry->job.work(on_event, entry->stop.get_token()); });
  const base::MutexLock lock(mutex_);
  if (stopping_ && !outcome.ok() && outcome.error().code == ErrorCode::Cancelled) {
    outcome = Error{ErrorCode::Cancelled,
                    "the pool manager is stopping; asked for again it goes on where it was"};
  }
  finish(*entry, std::move(outcome));
}

void Downloads::take_event(Entry& entry, const contract::DownloadEvent& event) {
  if (event.kind == contract::DownloadEvent::Kind::Note) {
    auto& notes = entry.status.notes;
    if (notes.size() >= kNotesMax) notes.erase(notes.begin());
    notes.emplace_back(entry.next_note++, event.text);
    wake_watchers(entry);
    return;
  }
  if (!entry.first_bytes) entry.first_bytes = event.bytes_done;
  entry.status.progress = event;
  wake_watchers(entry);
}

void Downloads::finish(Entry& entry, Result<json::Object> outcome) {
  DownloadStatus& status = entry.status;
  if (status.progress && entry.first_bytes && entry.job.kind == "download")
    totals_.bytes += std::max<std::int64_t>(0, status.progress->bytes_done - *entry.first_bytes);
  if (outcome.ok()) {
    status.state = DownloadState::Done;
    status.result = outcome.take();
    ++totals_.done;
  } else {
    const bool is_cancelled = outcome.error().code == ErrorCode::Cancelled;
    status.state = is_cancelled ? DownloadState::Cancelled : DownloadState::Failed;
    status.error = outcome.error();
    ++(is_cancelled ? totals_.cancelled : totals_.failed);
  }
  status.ended_at = now_text();
  entry.job.work = nullptr;  // and what it holds
  wake_watchers(entry);
}

void Downloads::wake_watchers(Entry& entry) {
  std::erase_if(entry.watchers, [](const std::weak_ptr<DownloadWatch>& watcher) {
    const std::shared_ptr<DownloadWatch> watch = watcher.lock();
    // A full feed has a wake-up waiting already; a closed one has no reader any more.
    return watch == nullptr || (!watch->try_push({}) && watch->is_closed());
  });
}

void Downloads::forget_old_ones() {
  const auto has_ended = [](const EntryPtr& entry) { return entry->status.has_ended(); };
  auto ended = static_cast<std::size_t>(std::count_if(entries_.begin(), entries_.end(), has_ended));
  for (; ended > options_.max_ended; --ended)
    entries_.erase(std::find_if(entries_.begin(), entries_.end(), has_ended));
}

}  // namespace llorch::pool
