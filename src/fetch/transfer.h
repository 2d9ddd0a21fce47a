// Fetching one file: ranges side by side, resumed after anything, right or not there at all.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>

#include "base/result.h"
#include "fetch/chunks.h"
#include "fetch/source.h"

namespace llorch::fetch {

inline constexpr int kConnectionsMax = 16;  // of one transfer

struct TransferOptions {
  int max_connections = 8;                 // 1..kConnectionsMax
  std::int64_t range_bytes = kChunkBytes;  // of one request, and of the chunks that are hashed
  std::chrono::milliseconds connect_timeout{10'000};
  // A connection that brings nothing for so long, or less than its share of the minimum over it, is
  // cut and tried again.
  std::chrono::milliseconds stall_timeout = kStallTimeout;
  std::int64_t min_bytes_per_second = kMinBytesPerSecond;
  std::chrono::milliseconds wait_shown = kWaitShown;  // silence before progress says so
  RetryPolicy retry{};                                // of one range
  std::string ca_file{};
};

struct TransferProgress {
  std::int64_t bytes_done = 0;   // in place, earlier attempts' included
  std::int64_t bytes_total = 0;  // 0: not known
  int connections = 0;
  int retries = 0;
  // How long nothing has come, and from whom; 0: it comes.
  std::chrono::milliseconds waiting{0};
  std::string waiting_for{};
  std::string note{};  // "waiting 2 s after 503 from host", or empty
};
using OnTransferProgress = std::function<void(const TransferProgress& progress)>;

// Fetches into `target` (its folder exists). Meanwhile the bytes are in "<target>.part" and what of
// it is right in "<target>.part.json"; both survive a kill and are taken up by the next call. The
// file gets its name only when every published hash agrees. One process at a time per target:
// Conflict names the one that is at it. Checks the disk's room first (OutOfMemory with the
// numbers). Blocks; Cancelled within a second of `stop`, keeping the part.
Result<FileChunks> transfer_file(const RemoteFile& file, const std::filesystem::path& target,
                                 const TransferOptions& options, const OnTransferProgress& progress,
                                 std::stop_token stop);

// One range into memory, with the same retries: how a rotted chunk is mended.
Result<std::string> fetch_range(const RemoteFile& file, std::int64_t offset, std::int64_t bytes,
                                const TransferOptions& options, std::stop_token stop);

// Whether there is room for `bytes` more in that folder; OutOfMemory with the numbers.
Status check_room(const std::filesystem::path& folder, std::int64_t bytes);

std::filesystem::path with_suffix(const std::filesystem::path& path, std::string_view suffix);

}  // namespace llorch::fetch
