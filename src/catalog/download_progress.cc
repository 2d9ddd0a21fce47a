#include "catalog/download_progress.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

namespace llorch::catalog {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kUnderWayEvery{1'000};

}  // namespace

void DownloadProgress::note_in(std::filesystem::path folder, std::string ref) {
  folder_ = std::move(folder);
  ref_ = std::move(ref);
}

void DownloadProgress::begin(std::int64_t files_total, std::int64_t bytes_total) {
  files_done_ = bytes_before_ = bytes_done_ = 0;
  files_total_ = files_total;
  bytes_total_ = bytes_total;
  rate_ = {};
}

void DownloadProgress::show(const UnderWay& other) {
  files_done_ = other.files_done;
  files_total_ = other.files_total;
  bytes_done_ = other.bytes_done;
  bytes_total_ = other.bytes_total;
  rate_.add(Clock::now(), bytes_done_);
}

void DownloadProgress::set_waiting(const std::string& host, std::chrono::milliseconds waited) {
  waiting_seconds_ = std::chrono::duration_cast<std::chrono::seconds>(waited).count();
  waiting_for_ = host;
}

void DownloadProgress::wait(const std::string& host, std::chrono::milliseconds waited) {
  set_waiting(host, waited);
  tell(Kind::Progress);
}

void DownloadProgress::transferred(std::string_view file, const fetch::TransferProgress& now) {
  bytes_done_ = bytes_before_ + now.bytes_done;
  bytes_total_ = std::max(bytes_total_, bytes_before_ + now.bytes_total);
  if (now.waiting.count() > 0) set_waiting(now.waiting_for, now.waiting);
  rate_.add(Clock::now(), bytes_done_);
  tell(Kind::Progress, file);
  if (!now.note.empty()) note(now.note, file);
}

void DownloadProgress::hashed(std::string_view file, std::int64_t bytes) {
  bytes_done_ = bytes_before_ + bytes;
  tell(Kind::Verifying, file);
}

void DownloadProgress::file_done(std::string_view file, std::int64_t bytes) {
  bytes_before_ += bytes;
  bytes_done_ = bytes_before_;
  ++files_done_;
  tell(Kind::FileDone, file);
}

void DownloadProgress::end_files() {
  files_done_ = files_total_;
  bytes_done_ = bytes_total_;
}

void DownloadProgress::tell(Kind kind, std::string_view file, std::string text) {
  save_if_due();
  if (!on_event_) return;
  contract::DownloadEvent event;
  event.kind = kind;
  event.model = model_;
  event.file = file;
  event.files_done = files_done_;
  event.files_total = files_total_;
  event.bytes_done = bytes_done_;
  event.bytes_total = std::max(bytes_total_, bytes_done_);
  event.bytes_per_second = rate_.per_second();
  if (event.bytes_per_second > 0 && bytes_total_ > 0)
    event.seconds_left =
        static_cast<double>(event.bytes_total - event.bytes_done) / event.bytes_per_second;
  event.waiting_seconds = std::exchange(waiting_seconds_, std::nullopt);
  event.waiting_for = std::exchange(waiting_for_, {});
  event.text = std::move(text);
  on_event_(event);
}

void DownloadProgress::save_if_due() {
  const Clock::time_point now = Clock::now();
  if (folder_.empty() || now < next_save_) return;
  next_save_ = now + kUnderWayEvery;
  (void)save_under_way(folder_, {ref_, ::getpid(), files_done_, files_total_, bytes_done_,
                                 std::max(bytes_total_, bytes_done_)});
}

}  // namespace llorch::catalog
