// Downloads: what is being fetched or verified for clients of the API, a few at a time, and what
// became of it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "base/enum_names.h"
#include "base/json.h"
#include "base/mutex.h"
#include "base/result.h"
#include "catalog/download.h"
#include "contract/download_event.h"
#include "contract/error_table.h"
#include "contract/fields.h"
#include "http/feed.h"

namespace llorch::pool {

enum class DownloadState : std::uint8_t { Queued, Running, Done, Failed, Cancelled };
inline constexpr base::EnumNames<DownloadState::Cancelled> kDownloadStates("queued", "running",
                                                                           "done", "failed",
                                                                           "cancelled");

// One download or verification at a moment.
struct DownloadStatus {
  std::string id;
  std::string kind;   // "download", "verify"
  std::string model;  // catalog id
  std::string ref;    // where a download comes from, as far as it is known; else empty
  DownloadState state = DownloadState::Queued;
  std::string started_at;                                   // RFC 3339, UTC: when it was asked for
  std::string ended_at;                                     // empty: not yet
  std::optional<contract::DownloadEvent> progress;          // the newest
  std::vector<std::pair<std::int64_t, std::string>> notes;  // the last few, each with its number
  json::Object result;                                      // once it is done
  std::optional<Error> error;                               // Failed, Cancelled

  bool has_ended() const { return state >= DownloadState::Done; }
};

// The same as the API tells it.
struct DownloadView {
  std::string id;
  std::string kind;
  std::string model;
  std::string ref;
  DownloadState state = DownloadState::Queued;
  std::string started_at;
  std::string ended_at;
  std::optional<contract::DownloadEvent> progress;
  std::vector<std::string> notes;
  std::optional<contract::ErrorEvent> error;
};
inline constexpr std::array<std::string_view, 2> kDownloadKinds = {"download", "verify"};
template <class V, contract::Described<DownloadView> T>
void describe(V& v, T& view) {
  v("id", view.id);
  v("kind", view.kind, {.names = kDownloadKinds});
  v("model", view.model);
  v("ref", view.ref);
  v("state", view.state, {.names = kDownloadStates.words()});
  v("started_at", view.started_at);
  v("ended_at", view.ended_at);
  v("progress", view.progress, {.null_when_absent = true});
  v("notes", view.notes);
  v("error", view.error, {.null_when_absent = true});
}
DownloadView view_of(const DownloadStatus& status);

// Wakes whoever watches: look at the status again. Holds one wake-up at most.
using DownloadWatch = http::EventFeed<std::monostate>;

struct DownloadsOptions {
  int max_running = 2;
  std::size_t max_waiting = 32;
  std::size_t max_ended = 64;  // kept, so that a client that comes late learns the end
};

// Any thread may call everything; nothing blocks for long.
class Downloads {
 public:
  // Does the whole job on a thread of this object. The result is what `done` says.
  using Work = std::function<Result<json::Object>(const contract::OnDownloadEvent& on_event,
                                                  std::stop_token stop)>;
  struct Job {
    std::string kind;
    std::string model;
    std::string what;  // equal for equal requests: "hf:org/repo"
    Work work;
  };
  struct Started {
    DownloadStatus status;
    bool joined = false;  // it was under way already
  };

  explicit Downloads(const DownloadsOptions& options = {});
  ~Downloads();  // stops and waits
  Downloads(const Downloads&) = delete;
  Downloads& operator=(const Downloads&) = delete;

  // The same request for the same model joins the one under way; another for that model is a
  // Conflict that names it. QueueFull when too many wait.
  Result<Started> start(Job job);
  // Cancels everything and takes nothing more, so that whoever watches hears the end while the
  // server still serves. Does not wait. Idempotent.
  void stop();
  // Idempotent; NotFound.
  Result<DownloadStatus> cancel(std::string_view id);

  Result<DownloadStatus> find(std::string_view id) const;
  std::vector<DownloadStatus> list() const;  // oldest first
  // Where a download of this model that runs or waits comes from; nothing: there is none.
  std::optional<std::string> ref_under_way(std::string_view model) const;
  // Whether anything about this model runs or waits.
  bool is_busy_with(std::string_view model) const;
  bool is_busy() const;  // with anything
  // The status now; changes after it wake `watch`, for as long as that lives.
  Result<DownloadStatus> watch(std::string_view id, const std::shared_ptr<DownloadWatch>& watch);

  struct Totals {
    std::int64_t done = 0;
    std::int64_t failed = 0;
    std::int64_t cancelled = 0;
    std::int64_t bytes = 0;  // that downloads brought
  };
  Totals totals() const;

 private:
  struct Entry;
  using EntryPtr = std::shared_ptr<Entry>;

  void run_jobs();
  void run(const EntryPtr& entry);
  void take_event(Entry& entry, const contract::DownloadEvent& event) LLORCH_REQUIRES(mutex_);
  void finish(Entry& entry, Result<json::Object> outcome) LLORCH_REQUIRES(mutex_);
  void wake_watchers(Entry& entry) LLORCH_REQUIRES(mutex_);
  void forget_old_ones() LLORCH_REQUIRES(mutex_);
  EntryPtr find_entry(std::string_view id) const LLORCH_REQUIRES(mutex_);
  Error unknown(std::string_view id) const;

  const DownloadsOptions options_;
  const std::string id_prefix_;
  mutable base::Mutex mutex_;  // also guards what the entries hold
  std::deque<EntryPtr> entries_ LLORCH_GUARDED_BY(mutex_);
  std::deque<EntryPtr> waiting_ LLORCH_GUARDED_BY(mutex_);
  std::int64_t next_number_ LLORCH_GUARDED_BY(mutex_) = 1;
  Totals totals_ LLORCH_GUARDED_BY(mutex_);
  bool stopping_ LLORCH_GUARDED_BY(mutex_) = false;
  base::CondVar changed_;
  std::vector<std::jthread> threads_;  // last: they use the others
};

}  // namespace llorch::pool
