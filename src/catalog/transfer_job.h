// One file being fetched: the network side (transfer_job.cc) and the part on the disk
// (transfer_part.cc). Private to catalog/.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "base/positioned_file.h"
#include "base/result.h"
#include "catalog/http_fetch.h"
#include "catalog/prefix_hasher.h"
#include "catalog/transfer.h"

namespace llorch::catalog {

inline constexpr std::string_view kPartIsKept =
    "what is here is kept, and the same call goes on from there";
inline constexpr std::int64_t kFileBytesMax = std::int64_t{1} << 42;

std::filesystem::path with_suffix(const std::filesystem::path& path, std::string_view suffix);
// What the bytes of two calls must share to be put together. Empty: nothing says so.
std::string identity_of(const RemoteFile& file);
// Ranges may be put together under a strong ETag only (RFC 9110); empty for others.
std::string strong_etag(std::string_view etag);
// Why there is no room for `bytes` more in that folder; nothing: there is.
std::optional<Error> check_room(const std::filesystem::path& folder, std::int64_t bytes);

// Failures in a row, and until when to leave it alone.
struct Attempts {
  int failures = 0;
  std::chrono::steady_clock::time_point not_before{};
};

struct Chunk {
  enum class State : std::uint8_t { Missing, Active, Done };
  State state = State::Missing;
  std::int64_t received = 0;             // of it, in this call: a cut connection's bytes stay
  std::optional<base::Digest> digest{};  // of these
  std::string sha256{};                  // of what came from the network, when Done
  std::string earlier_sha256{};          // of what came the time before
  Attempts attempts{};
};

// One file being fetched. Everything runs on the thread that calls run(), but the hash of the whole
// file, which follows on a thread of its own.
class Transfer {
 public:
  Transfer(const RemoteFile& file, const std::filesystem::path& target,
           const TransferOptions& options, const OnTransferProgress& progress, std::stop_token stop)
      : file_(file),
        target_(target),
        part_(with_suffix(target, ".part")),
        state_file_(with_suffix(target, ".part.json")),
        options_(options),
        on_progress_(progress),
        stop_(std::move(stop)),
        identity_(identity_of(file)),
        chunk_bytes_(file.chunk_sha256.empty() ? options.range_bytes : file.chunk_bytes),
        etag_(strong_etag(file.etag)),
        jitter_(options.retry.jitter_seed),
        fetcher_({options.connect_timeout, options.stall_timeout, options.min_bytes_per_second,
                  options.ca_file}) {}

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

    Transfer& transfer;
    int id = 0;  // 0: idle
    std::size_t chunk = 0;
    std::string url;          // that was asked
    std::int64_t offset = 0;  // where its range begins
    std::int64_t gained = 0;
    std::optional<Error> fatal{};  // trying again would not help
    std::string misbehaviour{};    // trying again may help
  };

  Status open_part();
  void load_state();
  void load_partial();
  Result<FileChunks> loop();
  void fill_slots();
  void start_chunk(Slot& slot, std::size_t index);
  void start_stream(Slot& slot);
  std::chrono::milliseconds time_to_wait() const;

  bool on_head(Slot& slot, const FetchHead& head);
  bool on_stream_head(Slot& slot, const FetchHead& head);
  bool on_range_body(Slot& slot, std::span<const std::byte> bytes);
  bool on_stream_body(Slot& slot, std::span<const std::byte> bytes);
  bool adopt_size(Slot& slot, std::int64_t size);
  bool write(Slot& slot, std::int64_t offset, std::span<const std::byte> bytes);

  Status on_outcome(const FetchOutcome& outcome);
  Status on_range_outcome(Slot& slot, const FetchOutcome& outcome);
  Status on_stream_outcome(Slot& slot, const FetchOutcome& outcome);
  Status finish_chunk(std::size_t index);
  Status on_failure(const Slot& slot, const FetchOutcome& outcome, Attempts& attempts);
  Status again_later(Attempts& attempts, const std::string& what, std::chrono::seconds retry_after,
                     bool whole_server);
  Status begin_again();

  std::int64_t chunk_size(std::size_t index) const;
  bool is_whole() const;
  void clear_chunks();
  void advance_prefix();
  void start_hasher();
  std::optional<std::pair<std::string, std::string>> mismatch(const WholeHashes& hashes) const;
  Result<std::optional<FileChunks>> try_to_finish();
  Status mend(const std::pair<std::string, std::string>& expected_found);
  Result<FileChunks> commit(const WholeHashes& hashes);
  Status save_state();
  void save_if_due();
  void count_gain(Slot& slot, std::int64_t bytes);
  void report(bool at_once);
  void drop_slots();

  const RemoteFile& file_;
  const std::filesystem::path target_;
  const std::filesystem::path part_;
  const std::filesystem::path state_file_;
  const TransferOptions& options_;
  const OnTransferProgress& on_progress_;
  const std::stop_token stop_;
  const std::string identity_;
  const std::int64_t chunk_bytes_;

  Mode mode_ = Mode::Unknown;
  std::optional<std::int64_t> size_;
  std::string etag_;
  std::string location_;      // where the file really is, behind redirects; empty: ask its own URL
  int address_refusals_ = 0;  // of fresh addresses behind a redirect, since a byte came
  bool has_changed_ = false;
  bool has_begun_again_ = false;
  bool has_fetched_twice_ = false;
  int disk_mends_ = 0;

  std::vector<Chunk> chunks_;
  std::map<std::size_t, std::int64_t> partial_;  // of the state, while it is loaded
  std::size_t prefix_ = 0;                       // chunks from the front that are done
  std::int64_t bytes_done_ = 0;
  std::int64_t stream_at_ = 0;
  Attempts stream_attempts_;
  std::chrono::steady_clock::time_point pause_until_{};  // the server wants peace
  std::uint64_t jitter_;
  int retries_ = 0;
  std::chrono::steady_clock::time_point last_gain_ = std::chrono::steady_clock::now();
  std::string note_;

  bool is_dirty_ = false;  // the state on the disk is not the newest
  int unsaved_chunks_ = 0;
  std::chrono::steady_clock::time_point next_save_{};
  std::chrono::steady_clock::time_point next_report_{};

  std::shared_ptr<base::PositionedFile> part_file_;
  std::unique_ptr<PrefixHasher> hasher_;
  HttpFetcher fetcher_;
  std::deque<Slot> slots_;  // never moved: libcurl holds their addresses
};

}  // namespace llorch::catalog
