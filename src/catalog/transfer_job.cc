#include "catalog/transfer_job.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/file_lock.h"
#include "base/utf8.h"
#include "catalog/part_state.h"

namespace llorch::catalog {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A connection that brought this much before it broke was of use: its failure does not count.
constexpr std::int64_t kUsefulBytes = std::int64_t{64} << 10;
constexpr milliseconds kLookUp{100};
constexpr milliseconds kProgressEvery{100};

}  // namespace

void Transfer::report(bool at_once) {
  const Clock::time_point now = Clock::now();
  if (!on_progress_ || (!at_once && now < next_report_)) return;
  next_report_ = now + kProgressEvery;
  TransferProgress progress;
  progress.bytes_done = bytes_done_;
  progress.bytes_total = size_.value_or(0);
  progress.connections = fetcher_.num_active();
  progress.retries = retries_;
  const auto silence = std::chrono::duration_cast<milliseconds>(now - last_gain_);
  if (silence >= options_.wait_shown && !is_whole()) {
    progress.waiting = silence;
    const std::string url = fetcher_.silent_url();
    progress.waiting_for = host_of(url.empty() ? file_.url : url);
  }
  progress.note = std::exchange(note_, {});
  on_progress_(progress);
}

void Transfer::drop_slots() {
  for (Slot& slot : slots_) {
    if (slot.id != 0) fetcher_.drop(std::exchange(slot.id, 0));
  }
  for (Chunk& chunk : chunks_) {
    if (chunk.state == Chunk::State::Active) chunk.state = Chunk::State::Missing;
  }
}

void Transfer::start_chunk(Slot& slot, std::size_t index) {
  Chunk& chunk = chunks_[index];
  chunk.state = Chunk::State::Active;
  if (!chunk.digest) {
    chunk.digest.emplace();
    chunk.received = 0;
  }
  slot.chunk = index;
  slot.offset = static_cast<std::int64_t>(index) * chunk_bytes_ + chunk.received;
  slot.gained = 0;
  slot.fatal.reset();
  slot.misbehaviour.clear();
  slot.url = location_.empty() ? file_.url : location_;
  FetchRequest request;
  request.url = slot.url;
  request.headers = file_.headers;
  request.headers_for_url = file_.url;
  request.range = ByteRange{slot.offset, chunk_size(index) - chunk.received};
  request.if_range = etag_;
  slot.id = fetcher_.start(std::move(request), slot);
}

void Transfer::start_stream(Slot& slot) {
  clear_chunks();
  slot.gained = 0;
  slot.offset = 0;
  slot.fatal.reset();
  slot.misbehaviour.clear();
  slot.url = file_.url;
  FetchRequest request;
  request.url = slot.url;
  request.headers = file_.headers;
  request.headers_for_url = file_.url;
  slot.id = fetcher_.start(std::move(request), slot);
}

void Transfer::fill_slots() {
  const Clock::time_point now = Clock::now();
  if (now < pause_until_) return;
  if (mode_ == Mode::Stream) {
    if (fetcher_.num_active() == 0 && now >= stream_attempts_.not_before)
      start_stream(slots_.front());
    return;
  }
  if (!size_ && chunks_.empty()) chunks_.resize(1);
  std::size_t next = prefix_;
  const int limit =
      mode_ == Mode::Unknown ? 1 : std::clamp(options_.max_connections, 1, kConnectionsMax);
  for (Slot& slot : slots_) {
    if (fetcher_.num_active() >= limit) return;
    if (slot.id != 0) continue;
    while (next < chunks_.size() && (chunks_[next].state != Chunk::State::Missing ||
                                     now < chunks_[next].attempts.not_before)) {
      ++next;
    }
    if (next == chunks_.size()) return;
    start_chunk(slot, next);
  }
}

milliseconds Transfer::time_to_wait() const {
  // Short enough for every pause: they are long against this.
  return fetcher_.num_active() > 0 ? kLookUp : kLookUp / 5;
}

bool Transfer::adopt_size(Slot& slot, std::int64_t size) {
  if (size_ && *size_ == size) return true;
  if (file_.size) {
    slot.fatal = Error{ErrorCode::Corrupt,
                       fmt::format("{} has {} bytes on the server where {} were promised",
                                   file_.path, size, *file_.size)};
    return false;
  }
  if (size_ && !chunks_.empty() && bytes_done_ > 0) {
    has_changed_ = true;
    return false;
  }
  if (size > kFileBytesMax) {
    slot.fatal = Error{ErrorCode::TooLarge, fmt::format("{} has {} bytes, more than {}", file_.path,
                                                        size, kFileBytesMax)};
    return false;
  }
  slot.fatal = check_room(part_.parent_path(), size);
  if (slot.fatal) return false;
  size_ = size;
  chunks_.resize(static_cast<std::size_t>(count_chunks(size, chunk_bytes_)));
  return true;
}

bool Transfer::on_head(Slot& slot, const FetchHead& head) {
  if (head.url != file_.url) location_ = head.url;
  if (mode_ == Mode::Stream) return on_stream_head(slot, head);
  const std::string etag = strong_etag(head.find("etag"));
  if (!etag_.empty() && !etag.empty() && etag != etag_) {
    has_changed_ = true;
    return false;
  }
  if (head.status == 200) {
    // To the first request: it knows no ranges. Later: it is another file now.
    has_changed_ = mode_ == Mode::Ranges;
    if (has_changed_) return false;
    mode_ = Mode::Stream;
    clear_chunks();
    return on_stream_head(slot, head);
  }
  const std::optional<ContentRange> range = parse_content_range(head.find("content-range"));
  if (head.status != 206 || !range || range->first != slot.offset) {
    slot.misbehaviour = fmt::format(
        "{} answered {} with the range {} to a request for the bytes from {}", shown_url(head.url),
        head.status, base::quoted(head.find("content-range")), slot.offset);
    return false;
  }
  if (!range->total) {
    mode_ = Mode::Stream;  // without a size there is nothing to divide
    return false;
  }
  if (!adopt_size(slot, *range->total)) return false;
  mode_ = Mode::Ranges;
  etag_ = etag;
  start_hasher();
  return true;
}

bool Transfer::on_stream_head(Slot& slot, const FetchHead& head) {
  if (head.status != 200) {
    slot.misbehaviour = fmt::format("{} answered {} to a request for the whole file",
                                    shown_url(head.url), head.status);
    return false;
  }
  const std::optional<std::int64_t> length = head.content_length();
  if (length && !adopt_size(slot, *length)) return false;
  start_hasher();
  return true;
}

bool Transfer::write(Slot& slot, std::int64_t offset, std::span<const std::byte> bytes) {
  const Status written = part_file_->write_at(offset, bytes);
  if (written.ok()) return true;
  slot.fatal =
      Error{written.error().code, fmt::format("{}; {}", written.error().message, kPartIsKept)};
  return false;
}

void Transfer::count_gain(Slot& slot, std::int64_t bytes) {
  slot.gained += bytes;
  bytes_done_ += bytes;
  last_gain_ = Clock::now();
  address_refusals_ = 0;
}

bool Transfer::on_range_body(Slot& slot, std::span<const std::byte> bytes) {
  Chunk& chunk = chunks_[slot.chunk];
  const auto count = static_cast<std::int64_t>(bytes.size());
  if (chunk.received + count > chunk_size(slot.chunk)) {
    slot.misbehaviour = fmt::format("{} sent more than was asked for", shown_url(slot.url));
    return false;
  }
  const std::int64_t offset = static_cast<std::int64_t>(slot.chunk) * chunk_bytes_ + chunk.received;
  if (!write(slot, offset, bytes)) return false;
  chunk.digest->add(bytes);
  chunk.received += count;
  count_gain(slot, count);
  is_dirty_ = true;
  return true;
}

bool Transfer::on_stream_body(Slot& slot, std::span<const std::byte> bytes) {
  if (stream_at_ + static_cast<std::int64_t>(bytes.size()) > size_.value_or(kFileBytesMax)) {
    slot.misbehaviour = fmt::format("{} sent more than {} bytes", shown_url(slot.url),
                                    size_.value_or(kFileBytesMax));
    return false;
  }
  while (!bytes.empty()) {
    const auto index = static_cast<std::size_t>(stream_at_ / chunk_bytes_);
    if (index >= chunks_.size()) {
      slot.fatal = check_room(part_.parent_path(), chunk_bytes_);
      if (slot.fatal) return false;
      chunks_.emplace_back();
    }
    Chunk& chunk = chunks_[index];
    if (!chunk.digest) chunk.digest.emplace();
    const auto count = std::min<std::int64_t>(static_cast<std::int64_t>(bytes.size()),
                                              chunk_size(index) - chunk.received);
    const auto piece = bytes.first(static_cast<std::size_t>(count));
    if (!write(slot, stream_at_, piece)) return false;
    chunk.digest->add(piece);
    chunk.received += count;
    stream_at_ += count;
    count_gain(slot, count);
    bytes = bytes.subspan(piece.size());
    if (chunk.received < chunk_size(index)) continue;
    const Status finished = finish_chunk(index);
    if (finished.ok()) continue;
    slot.fatal = finished.error();
    return false;
  }
  return true;
}

// Whole: right, or fetched again.
Status Transfer::finish_chunk(std::size_t index) {
  Chunk& chunk = chunks_[index];
  std::string sha256 = chunk.digest->finish_hex();
  chunk.digest.reset();
  const bool is_known = index < file_.chunk_sha256.size();
  if (!is_known || file_.chunk_sha256[index] == sha256) {
    chunk.state = Chunk::State::Done;
    chunk.sha256 = std::move(sha256);
    chunk.attempts = {};
    is_dirty_ = true;
    ++unsaved_chunks_;
    advance_prefix();
    return ok_status();
  }
  bytes_done_ -= chunk.received;
  chunk.received = 0;
  chunk.state = Chunk::State::Missing;
  const Error wrong{ErrorCode::Corrupt,
                    fmt::format("chunk {} of {} came with the sha256 {} where {} was promised",
                                index, file_.path, sha256, file_.chunk_sha256[index])};
  if (mode_ == Mode::Stream || ++chunk.attempts.failures >= options_.retry.max_attempts)
    return wrong;
  ++retries_;
  note_ = wrong.message + ": fetching it again";
  return ok_status();
}

Status Transfer::again_later(Attempts& attempts, const std::string& what,
                             std::chrono::seconds retry_after, bool whole_server) {
  ++attempts.failures;
  ++retries_;
  const auto pause = pause_after(options_.retry, attempts.failures, retry_after, jitter_);
  if (!pause) {
    return Error{ErrorCode::Unavailable, fmt::format("{} and asks to wait {} s: try again then; {}",
                                                     what, retry_after.count(), kPartIsKept)};
  }
  if (attempts.failures >= options_.retry.max_attempts) {
    return Error{ErrorCode::Unavailable, fmt::format("{}, {} times in a row: try again later; {}",
                                                     what, attempts.failures, kPartIsKept)};
  }
  attempts.not_before = Clock::now() + *pause;
  if (whole_server) pause_until_ = std::max(pause_until_, attempts.not_before);
  note_ = fmt::format("waiting {:.1f} s: {}", static_cast<double>(pause->count()) / 1000, what);
  return ok_status();
}

Status Transfer::on_failure(const Slot& slot, const FetchOutcome& outcome, Attempts& attempts) {
  if (slot.gained >= kUsefulBytes) attempts.failures = 0;
  if (!slot.misbehaviour.empty()) return again_later(attempts, slot.misbehaviour, {}, false);
  const int status = outcome.head.status;
  const bool is_answer = outcome.complete && status != 0 && status / 100 != 2;
  if (is_answer) {
    const Error error = status_error(outcome.head, outcome.error_text);
    if (may_pass(status))
      return again_later(attempts, error.message, outcome.retry_after,
                         status == 429 || status == 503);
    // An address behind a redirect lives for a while only: ask for a new one, once.
    const bool is_redirected = outcome.head.url != file_.url;
    const bool was_fresh = slot.url == file_.url;
    if (is_redirected && status / 100 == 4 && (!was_fresh || address_refusals_++ == 0)) {
      if (location_ == slot.url) location_.clear();
      return again_later(attempts, error.message + ": asking for its address again", {}, false);
    }
    if (origin_of(outcome.head.url) != origin_of(file_.url)) {
      const Error elsewhere = refused_elsewhere(file_.url, outcome.head, outcome.error_text);
      return Error{elsewhere.code, fmt::format("{}; {}", elsewhere.message, kPartIsKept)};
    }
    const bool is_refusal = error.code != ErrorCode::Unavailable;
    if (!is_refusal || file_.refusal_hint.empty()) return error;
    return Error{error.code, fmt::format("{}; {}", error.message, file_.refusal_hint)};
  }
  if (!outcome.problem.empty() && !outcome.may_pass)
    return Error{ErrorCode::Unavailable, outcome.problem};
  const std::string what = outcome.problem.empty()
                               ? fmt::format("{} sent less than it should", shown_url(slot.url))
                               : outcome.problem;
  return again_later(attempts, what, {}, false);
}

Status Transfer::on_range_outcome(Slot& slot, const FetchOutcome& outcome) {
  Chunk& chunk = chunks_[slot.chunk];
  if (chunk.received == chunk_size(slot.chunk) && slot.misbehaviour.empty())
    return finish_chunk(slot.chunk);
  chunk.state = Chunk::State::Missing;
  if (mode_ == Mode::Unknown && !size_ && outcome.head.status == 416 &&
      outcome.head.find("content-range") == "bytes */0") {
    size_ = 0;
    clear_chunks();
    return ok_status();
  }
  // Shorter than asked is allowed; the rest is asked for at once.
  if (outcome.complete && outcome.head.status == 206 && slot.gained > 0) return ok_status();
  return on_failure(slot, outcome, chunk.attempts);
}

Status Transfer::on_stream_outcome(Slot& slot, const FetchOutcome& outcome) {
  const bool is_end = outcome.complete && outcome.head.status == 200 && slot.misbehaviour.empty();
  if (is_end && !size_) {
    size_ = stream_at_;
    if (!chunks_.empty() && chunks_.back().state != Chunk::State::Done) {
      if (const Status finished = finish_chunk(chunks_.size() - 1); !finished.ok()) return finished;
    }
    advance_prefix();
  }
  if (is_end && stream_at_ == *size_) return ok_status();
  if (!file_.size) size_.reset();  // it came with the answer that is dropped
  return on_failure(slot, outcome, stream_attempts_);
}

// The file became another one while it was fetched.
Status Transfer::begin_again() {
  has_changed_ = false;
  drop_slots();
  if (std::exchange(has_begun_again_, true)) {
    return Error{ErrorCode::Unavailable,
                 fmt::format("{} changed on the server again while it was fetched: try again when "
                             "it stays as it is",
                             shown_url(file_.url))};
  }
  note_ = fmt::format("{} changed on the server: beginning again", file_.path);
  mode_ = Mode::Unknown;
  etag_.clear();
  location_.clear();
  size_ = file_.size;
  clear_chunks();
  remove_part_state(state_file_);
  return ok_status();
}

Status Transfer::on_outcome(const FetchOutcome& outcome) {
  const auto found = std::find_if(slots_.begin(), slots_.end(),
                                  [&](const Slot& slot) { return slot.id == outcome.id; });
  if (found == slots_.end()) return ok_status();  // dropped by the outcome before it
  Slot& slot = *found;
  slot.id = 0;
  if (slot.fatal) return *slot.fatal;
  if (has_changed_) return begin_again();
  if (mode_ == Mode::Stream) {
    if (outcome.unwanted && slot.misbehaviour.empty()) return ok_status();  // now as a stream
    return on_stream_outcome(slot, outcome);
  }
  return on_range_outcome(slot, outcome);
}

Result<FileChunks> Transfer::loop() {
  for (;;) {
    if (stop_.stop_requested()) {
      return Error{ErrorCode::Cancelled,
                   fmt::format("fetching {} was cancelled; {}", file_.path, kPartIsKept)};
    }
    if (is_whole()) {
      Result<std::optional<FileChunks>> finished = try_to_finish();
      if (!finished.ok()) return finished.error();
      report(finished->has_value());
      if (*finished) return std::move(**finished);
      continue;
    }
    fill_slots();
    for (const FetchOutcome& outcome : fetcher_.run(time_to_wait())) {
      if (const Status handled = on_outcome(outcome); !handled.ok()) return handled.error();
    }
    save_if_due();
    report(!note_.empty());
  }
}

Result<FileChunks> Transfer::run() {
  Result<std::unique_ptr<base::FileLock>> lock =
      base::FileLock::acquire(with_suffix(target_, ".lock"), milliseconds(0));
  if (!lock.ok()) {
    return lock.error().in(fmt::format("{} is being fetched by somebody else", target_.string()));
  }
  if (const Status opened = open_part(); !opened.ok()) return opened.error();
  const std::stop_callback wake(stop_, [this] { fetcher_.wake(); });
  const int connections = std::clamp(options_.max_connections, 1, kConnectionsMax);
  for (int i = 0; i < connections; ++i) slots_.emplace_back(*this);
  Result<FileChunks> result = loop();
  drop_slots();
  if (result.ok()) {
    (*lock)->remove_file();
  } else if (identity_.empty()) {
    std::error_code ignored;  // nobody could go on with it
    fs::remove(part_, ignored);
  } else if (result.error().code != ErrorCode::Corrupt) {
    (void)save_state();
  }
  return result;
}

}  // namespace llorch::catalog
