#include "fetch/transfer.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "base/utf8.h"
#include "fetch/http_fetch.h"
#include "fetch/part.h"
#include "fetch/reporter.h"
#include "fetch/retry.h"
#include "fetch/transfer_requests.h"

namespace llorch::fetch {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A connection that brought this much before it broke was of use: its failure does not count.
constexpr std::int64_t kUsefulBytes = std::int64_t{64} << 10;
constexpr milliseconds kLookUp{100};

// Ranges may be put together under a strong ETag only (RFC 9110); empty for others.
std::string strong_etag(std::string_view etag) {
  return etag.starts_with('"') ? std::string(etag) : std::string();
}

// One file on its way: what is asked of the server, and what its answers mean. Everything runs on
// the thread that calls run().
class Transfer {
 public:
  Transfer(const RemoteFile& file, const std::filesystem::path& target,
           const TransferOptions& options, const OnTransferProgress& progress, std::stop_token stop)
      : file_(file),
        stop_(std::move(stop)),
        max_connections_(std::clamp(options.max_connections, 1, kConnectionsMax)),
        etag_(strong_etag(file.etag)),
        part_(file, target, options.range_bytes),
        retries_(options.retry),
        reporter_(progress, options.wait_shown),
        fetcher_(fetch_options(options)) {}

  Result<FileChunks> run();

 private:
  enum class Mode : std::uint8_t {
    Unknown,  // one request finds out
    Ranges,
    Stream,  // the server sends the whole file only
  };

  // One request under way.
  struct Slot : FetchSink {
    explicit Slot(Transfer& owner) : transfer(owner) {}
    bool on_head(const FetchHead& head) override { return transfer.on_head(*this, head); }
    bool on_body(std::span<const std::byte> bytes) override {
      return transfer.mode_ == Mode::Stream ? transfer.on_stream_body(*this, bytes)
                                            : transfer.on_range_body(*this, bytes);
    }
    bool fail(Error error) {
      fatal = std::move(error);
      return false;
    }
    bool take(const Status& status) { return status.ok() || fail(status.error()); }

    Transfer& transfer;
    int id = 0;  // 0: idle
    std::size_t chunk = 0;
    std::string url;          // that was asked
    std::int64_t offset = 0;  // where its range begins
    std::int64_t gained = 0;
    std::optional<Error> fatal{};  // trying again would not help
    std::string misbehaviour{};    // trying again may help
  };

  Result<FileChunks> loop();
  void fill_slots();
  std::optional<std::size_t> next_chunk(std::size_t from, Clock::time_point now) const;
  void start(Slot& slot, std::int64_t offset, FetchRequest request);
  void start_chunk(Slot& slot, std::size_t index);
  void report(bool at_once);
  void drop_slots();

  bool on_head(Slot& slot, const FetchHead& head);
  bool on_stream_head(Slot& slot, const FetchHead& head);
  bool on_range_body(Slot& slot, std::span<const std::byte> bytes);
  bool on_stream_body(Slot& slot, std::span<const std::byte> bytes);
  bool adopt_size(Slot& slot, std::int64_t size);
  bool write(Slot& slot, std::size_t index, std::span<const std::byte> bytes);

  Status on_outcome(const FetchOutcome& outcome);
  Status on_range_outcome(Slot& slot, const FetchOutcome& outcome);
  Status on_stream_outcome(Slot& slot, const FetchOutcome& outcome);
  Status finish_chunk(std::size_t index);
  Status on_failure(const Slot& slot, const FetchOutcome& outcome, Attempts& attempts);
  Status on_refusal(const Slot& slot, const FetchOutcome& outcome, Attempts& attempts);
  Status again_later(Attempts& attempts, const std::string& what,
                     std::chrono::seconds retry_after = {}, bool whole_server = false);
  Status begin_again();

  const RemoteFile& file_;
  const std::stop_token stop_;
  const int max_connections_;

  Mode mode_ = Mode::Unknown;
  std::string etag_;
  std::string location_;      // where the file really is, behind redirects; empty: ask its own URL
  int address_refusals_ = 0;  // of fresh addresses behind a redirect, since a byte came
  bool has_changed_ = false;  // the file, on the server
  bool has_begun_again_ = false;
  std::map<std::size_t, Attempts> attempts_;  // of chunks that failed
  Attempts stream_attempts_;
  Clock::time_point pause_until_{};  // the server wants peace

  Part part_;
  Retries retries_;
  Reporter reporter_;
  HttpFetcher fetcher_;
  std::deque<Slot> slots_;  // never moved: libcurl holds their addresses
};

void Transfer::report(bool at_once) {
  TransferProgress progress;
  progress.bytes_done = part_.chunks().bytes_done();
  progress.bytes_total = part_.chunks().size().value_or(0);
  progress.connections = fetcher_.num_active();
  progress.retries = retries_.count();
  std::string silent_url = fetcher_.silent_url();
  if (silent_url.empty()) silent_url = file_.url;
  if (part_.chunks().is_whole()) silent_url.clear();
  reporter_.tell(std::move(progress), silent_url, at_once);
}

void Transfer::drop_slots() {
  for (Slot& slot : slots_) {
    if (slot.id != 0) fetcher_.drop(std::exchange(slot.id, 0));
  }
}

void Transfer::start(Slot& slot, std::int64_t offset, FetchRequest request) {
  slot.offset = offset;
  slot.gained = 0;
  slot.fatal.reset();
  slot.misbehaviour.clear();
  slot.url = request.url;
  slot.id = fetcher_.start(std::move(request), slot);
}

void Transfer::start_chunk(Slot& slot, std::size_t index) {
  const ChunkTable& chunks = part_.chunks();
  const std::int64_t received = chunks[index].received;
  const std::int64_t offset = chunks.begin_of(index) + received;
  FetchRequest request = request_for(file_, location_.empty() ? file_.url : location_,
                                     ByteRange{offset, chunks.size_of(index) - received});
  request.if_range = etag_;
  slot.chunk = index;
  start(slot, offset, std::move(request));
}

// The first from there that is not here, not on its way and not to be left alone.
std::optional<std::size_t> Transfer::next_chunk(std::size_t from, Clock::time_point now) const {
  for (std::size_t index = from; index < part_.chunks().count(); ++index) {
    if (part_.chunks()[index].is_done()) continue;
    const bool is_active = std::any_of(slots_.begin(), slots_.end(), [index](const Slot& slot) {
      return slot.id != 0 && slot.chunk == index;
    });
    const auto failed = attempts_.find(index);
    if (!is_active && (failed == attempts_.end() || now >= failed->second.not_before)) return index;
  }
  return std::nullopt;
}

void Transfer::fill_slots() {
  const Clock::time_point now = Clock::now();
  if (now < pause_until_) return;
  if (mode_ == Mode::Stream) {
    if (fetcher_.num_active() > 0 || now < stream_attempts_.not_before) return;
    part_.begin(part_.chunks().size());
    start(slots_.front(), 0, request_for(file_, file_.url));
    return;
  }
  if (!part_.chunks().size() && part_.chunks().count() == 0) part_.begin_unknown();
  std::size_t from = part_.chunks().prefix();
  const int limit = mode_ == Mode::Unknown ? 1 : max_connections_;
  for (Slot& slot : slots_) {
    if (fetcher_.num_active() >= limit) return;
    if (slot.id != 0) continue;
    const std::optional<std::size_t> next = next_chunk(from, now);
    if (!next) return;
    start_chunk(slot, *next);
    from = *next + 1;
  }
}

bool Transfer::adopt_size(Slot& slot, std::int64_t size) {
  const ChunkTable& chunks = part_.chunks();
  if (chunks.size() == size) return true;
  if (file_.size) {
    return slot.fail(
        {ErrorCode::Corrupt, fmt::format("{} has {} bytes on the server where {} were promised",
                                         file_.path, size, *file_.size)});
  }
  if (chunks.size() && chunks.bytes_done() > 0) {
    has_changed_ = true;
    return false;
  }
  return slot.take(part_.set_size(size));
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
    part_.begin(part_.chunks().size());
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
  return true;
}

bool Transfer::on_stream_head(Slot& slot, const FetchHead& head) {
  if (head.status != 200) {
    slot.misbehaviour = fmt::format("{} answered {} to a request for the whole file",
                                    shown_url(head.url), head.status);
    return false;
  }
  const std::optional<std::int64_t> length = head.content_length();
  return !length || adopt_size(slot, *length);
}

bool Transfer::write(Slot& slot, std::size_t index, std::span<const std::byte> bytes) {
  if (!slot.take(part_.write(index, bytes))) return false;
  slot.gained += static_cast<std::int64_t>(bytes.size());
  reporter_.gained();
  address_refusals_ = 0;
  return true;
}

bool Transfer::on_range_body(Slot& slot, std::span<const std::byte> bytes) {
  const std::int64_t room =
      part_.chunks().size_of(slot.chunk) - part_.chunks()[slot.chunk].received;
  if (static_cast<std::int64_t>(bytes.size()) > room) {
    slot.misbehaviour = fmt::format("{} sent more than was asked for", shown_url(slot.url));
    return false;
  }
  return write(slot, slot.chunk, bytes);
}

bool Transfer::on_stream_body(Slot& slot, std::span<const std::byte> bytes) {
  const ChunkTable& chunks = part_.chunks();
  const std::int64_t most = chunks.size().value_or(kFileBytesMax);
  if (chunks.bytes_done() + static_cast<std::int64_t>(bytes.size()) > most) {
    slot.misbehaviour = fmt::format("{} sent more than {} bytes", shown_url(slot.url), most);
    return false;
  }
  while (!bytes.empty()) {
    const auto index = static_cast<std::size_t>(chunks.bytes_done() / chunks.chunk_bytes());
    if (index >= chunks.count() && !slot.take(part_.grow())) return false;
    const auto count = std::min<std::int64_t>(static_cast<std::int64_t>(bytes.size()),
                                              chunks.size_of(index) - chunks[index].received);
    const auto piece = bytes.first(static_cast<std::size_t>(count));
    if (!write(slot, index, piece)) return false;
    bytes = bytes.subspan(piece.size());
    if (chunks.is_full(index) && !slot.take(finish_chunk(index))) return false;
  }
  return true;
}

// Whole: right, or fetched again.
Status Transfer::finish_chunk(std::size_t index) {
  const std::optional<Error> wrong = part_.finish_chunk(index);
  if (!wrong) {
    attempts_.erase(index);
    return ok_status();
  }
  if (mode_ == Mode::Stream || !retries_.fail_at_once(attempts_[index])) return *wrong;
  reporter_.note(wrong->message + ": fetching it again");
  return ok_status();
}

Status Transfer::again_later(Attempts& attempts, const std::string& what,
                             std::chrono::seconds retry_after, bool whole_server) {
  const Result<milliseconds> pause =
      retries_.fail(attempts, what, retry_after, fmt::format("; {}", kPartIsKept));
  if (!pause.ok()) return pause.error();
  if (whole_server) pause_until_ = std::max(pause_until_, attempts.not_before);
  reporter_.note(
      fmt::format("waiting {:.1f} s: {}", static_cast<double>(pause->count()) / 1000, what));
  return ok_status();
}

// The server answered, and not with the file.
Status Transfer::on_refusal(const Slot& slot, const FetchOutcome& outcome, Attempts& attempts) {
  const int status = outcome.head.status;
  const Error error = status_error(outcome.head, outcome.error_text);
  if (may_pass(status))
    return again_later(attempts, error.message, outcome.retry_after,
                       status == 429 || status == 503);
  // An address behind a redirect lives for a while only: ask for a new one, once.
  const bool is_redirected = outcome.head.url != file_.url;
  const bool was_fresh = slot.url == file_.url;
  if (is_redirected && status / 100 == 4 && (!was_fresh || address_refusals_++ == 0)) {
    if (location_ == slot.url) location_.clear();
    return again_later(attempts, error.message + ": asking for its address again");
  }
  if (origin_of(outcome.head.url) != origin_of(file_.url)) {
    const Error elsewhere = refused_elsewhere(file_.url, outcome.head, outcome.error_text);
    return Error{elsewhere.code, fmt::format("{}; {}", elsewhere.message, kPartIsKept)};
  }
  const bool is_refusal = error.code != ErrorCode::Unavailable;
  if (!is_refusal || file_.refusal_hint.empty()) return error;
  return Error{error.code, fmt::format("{}; {}", error.message, file_.refusal_hint)};
}

Status Transfer::on_failure(const Slot& slot, const FetchOutcome& outcome, Attempts& attempts) {
  if (slot.gained >= kUsefulBytes) attempts.failures = 0;
  if (!slot.misbehaviour.empty()) return again_later(attempts, slot.misbehaviour);
  const int status = outcome.head.status;
  if (outcome.complete && status != 0 && status / 100 != 2)
    return on_refusal(slot, outcome, attempts);
  if (!outcome.problem.empty() && !outcome.may_pass)
    return Error{ErrorCode::Unavailable, outcome.problem};
  return again_later(attempts, outcome.problem.empty()
                                   ? fmt::format("{} sent less than it should", shown_url(slot.url))
                                   : outcome.problem);
}

Status Transfer::on_range_outcome(Slot& slot, const FetchOutcome& outcome) {
  if (part_.chunks().is_full(slot.chunk) && slot.misbehaviour.empty())
    return finish_chunk(slot.chunk);
  if (mode_ == Mode::Unknown && !part_.chunks().size() && outcome.head.status == 416 &&
      outcome.head.find("content-range") == "bytes */0") {
    part_.begin(0);
    return ok_status();
  }
  // Shorter than asked is allowed; the rest is asked for at once.
  if (outcome.complete && outcome.head.status == 206 && slot.gained > 0) return ok_status();
  return on_failure(slot, outcome, attempts_[slot.chunk]);
}

Status Transfer::on_stream_outcome(Slot& slot, const FetchOutcome& outcome) {
  const ChunkTable& chunks = part_.chunks();
  const bool is_end = outcome.complete && outcome.head.status == 200 && slot.misbehaviour.empty();
  if (is_end && !chunks.size()) {
    const std::size_t last = chunks.count();
    part_.end_at(chunks.bytes_done());
    if (last > 0 && !chunks[last - 1].is_done()) {
      if (const Status finished = finish_chunk(last - 1); !finished.ok()) return finished;
    }
  }
  if (is_end && chunks.bytes_done() == *chunks.size()) return ok_status();
  if (!file_.size) part_.forget_size();  // it came with the answer that is dropped
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
  reporter_.note(fmt::format("{} changed on the server: beginning again", file_.path));
  mode_ = Mode::Unknown;
  etag_.clear();
  location_.clear();
  attempts_.clear();
  part_.begin(file_.size);
  part_.forget_state();
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
    if (part_.chunks().is_whole()) {
      std::string note;
      Result<std::optional<FileChunks>> finished = part_.try_to_finish(stop_, note);
      if (!finished.ok()) return finished.error();
      if (!note.empty()) stream_attempts_ = {};
      if (!note.empty()) reporter_.note(std::move(note));
      report(finished->has_value());
      if (*finished) return std::move(**finished);
      continue;
    }
    fill_slots();
    // Short enough for every pause: they are long against this.
    const milliseconds patience = fetcher_.num_active() > 0 ? kLookUp : kLookUp / 5;
    for (const FetchOutcome& outcome : fetcher_.run(patience)) {
      if (const Status handled = on_outcome(outcome); !handled.ok()) return handled.error();
    }
    part_.save_if_due();
    report(false);
  }
}

Result<FileChunks> Transfer::run() {
  if (const Status opened = part_.open(); !opened.ok()) return opened.error();
  const std::stop_callback wake(stop_, [this] { fetcher_.wake(); });
  for (int i = 0; i < max_connections_; ++i) slots_.emplace_back(*this);
  Result<FileChunks> result = loop();
  drop_slots();
  if (!result.ok()) part_.leave(result.error());
  return result;
}

}  // namespace

Result<FileChunks> transfer_file(const RemoteFile& file, const std::filesystem::path& target,
                                 const TransferOptions& options, const OnTransferProgress& progress,
                                 std::stop_token stop) {
  return Transfer(file, target, options, progress, std::move(stop)).run();
}

}  // namespace llorch::fetch
