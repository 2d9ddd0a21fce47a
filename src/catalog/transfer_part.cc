#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/terminal.h"
#include "catalog/part_state.h"
#include "catalog/transfer_job.h"

namespace llorch::catalog {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::int64_t kSpareRoomBytes = std::int64_t{64} << 20;
// What a kill costs: saving takes one part in so many of the time, and comes no more often than
// this, unless so many whole chunks would be lost.
constexpr int kSaveShare = 10;
constexpr milliseconds kSaveEvery{500};
constexpr int kUnsavedChunksMax = 8;
constexpr std::size_t kReadBytes = std::size_t{256} << 10;
constexpr int kDiskMendsMax = 2;
constexpr milliseconds kLookUp{100};

Error system_error(std::string_view what, const fs::path& path) {
  const int number = errno;
  ErrorCode code = ErrorCode::Unavailable;
  if (number == EACCES || number == EPERM || number == EROFS) code = ErrorCode::Forbidden;
  if (number == ENOSPC || number == EDQUOT || number == EFBIG) code = ErrorCode::OutOfMemory;
  return {code, fmt::format("cannot {} {}: {}", what, path.string(), std::strerror(number))};
}

}  // namespace

fs::path with_suffix(const fs::path& path, std::string_view suffix) {
  return fs::path(path.native() + std::string(suffix));
}

std::string identity_of(const RemoteFile& file) {
  if (!file.sha256.empty()) return "sha256:" + file.sha256;
  if (!file.integrity.empty()) return file.integrity;
  if (!file.git_sha1.empty()) return "git-sha1:" + file.git_sha1;
  if (!file.chunk_sha256.empty()) {
    base::Digest digest;
    for (const std::string& chunk : file.chunk_sha256) digest.add(chunk);
    return "chunks:" + digest.finish_hex();
  }
  return file.etag.empty() ? std::string() : "etag:" + file.etag;
}

std::string strong_etag(std::string_view etag) {
  return etag.starts_with('"') ? std::string(etag) : std::string();
}

std::optional<Error> check_room(const fs::path& folder, std::int64_t bytes) {
  struct statvfs info {};
  if (::statvfs(folder.c_str(), &info) != 0) return system_error("look at", folder);
  const auto free = static_cast<std::int64_t>(info.f_bavail * info.f_frsize);
  const std::int64_t needed = bytes + kSpareRoomBytes;
  if (free >= needed) return std::nullopt;
  return Error{ErrorCode::OutOfMemory,
               fmt::format("{} has {} free and {} are needed: make room, or move the models "
                           "(LLORCH_HOME)",
                           folder.string(), base::human_bytes(free), base::human_bytes(needed))};
}
std::int64_t Transfer::chunk_size(std::size_t index) const {
  const std::int64_t begin = static_cast<std::int64_t>(index) * chunk_bytes_;
  return size_ ? std::min(chunk_bytes_, *size_ - begin) : chunk_bytes_;
}

bool Transfer::is_whole() const {
  return size_ && prefix_ == chunks_.size() &&
         static_cast<std::int64_t>(chunks_.size()) == count_chunks(*size_, chunk_bytes_);
}

void Transfer::clear_chunks() {
  hasher_.reset();
  chunks_.clear();
  if (size_) chunks_.resize(static_cast<std::size_t>(count_chunks(*size_, chunk_bytes_)));
  prefix_ = 0;
  bytes_done_ = 0;
  stream_at_ = 0;
}

void Transfer::start_hasher() {
  if (hasher_ != nullptr || !size_) return;
  hasher_ = std::make_unique<PrefixHasher>(
      part_file_, *size_, PrefixHasher::Wanted{!file_.integrity.empty(), !file_.git_sha1.empty()});
}

void Transfer::advance_prefix() {
  while (prefix_ < chunks_.size() && chunks_[prefix_].state == Chunk::State::Done) ++prefix_;
  start_hasher();
  if (hasher_ != nullptr)
    hasher_->advance(std::min(*size_, static_cast<std::int64_t>(prefix_) * chunk_bytes_));
}

// The part and what the last call left in it; from nothing where they do not belong to this file.
Status Transfer::open_part() {
  if (file_.size) {
    if (*file_.size > kFileBytesMax) {
      return Error{ErrorCode::TooLarge, fmt::format("{} is said to have {} bytes, more than {}",
                                                    file_.path, *file_.size, kFileBytesMax)};
    }
    size_ = file_.size;
  }
  if (size_) {
    struct stat info {};
    const std::int64_t here =
        ::stat(part_.c_str(), &info) == 0 ? std::int64_t{info.st_blocks} * 512 : 0;
    const std::int64_t missing = std::max<std::int64_t>(0, *size_ - here);
    if (const auto problem = check_room(part_.parent_path(), missing)) return *problem;
  }
  clear_chunks();
  load_state();
  const int fd = ::open(part_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return system_error("make", part_);
  ::close(fd);
  Result<std::shared_ptr<base::PositionedFile>> opened =
      base::PositionedFile::open(part_, base::PositionedFile::Mode::ReadWrite);
  if (!opened.ok()) return opened.error();
  part_file_ = opened.take();
  load_partial();
  advance_prefix();
  return ok_status();
}

void Transfer::load_state() {
  const Result<PartState> state = load_part_state(state_file_);
  std::error_code ignored;
  const bool fits = state.ok() && !identity_.empty() && state->identity == identity_ &&
                    state->chunk_bytes == chunk_bytes_ && (!size_ || *size_ == state->size) &&
                    fs::exists(part_, ignored);
  if (!fits) {
    remove_part_state(state_file_);
    fs::remove(part_, ignored);
    return;
  }
  size_ = state->size;
  clear_chunks();
  for (std::size_t i = 0; i < chunks_.size(); ++i) {
    const std::string& hash = state->chunks[i];
    const bool known_bad = !file_.chunk_sha256.empty() &&
                           (i >= file_.chunk_sha256.size() || hash != file_.chunk_sha256[i]);
    if (hash.empty() || known_bad) continue;
    chunks_[i].state = Chunk::State::Done;
    chunks_[i].sha256 = hash;
    bytes_done_ += chunk_size(i);
  }
  partial_ = state->partial;
}

// Chunks that were cut in the middle: hashed so far from what is on the disk, which is little. A
// stream that was cut begins from its front and needs none of it.
void Transfer::load_partial() {
  std::vector<std::byte> buffer(partial_.empty() ? 0 : kReadBytes);
  for (const auto& [index, bytes] : partial_) {
    Chunk& chunk = chunks_[index];
    if (chunk.state == Chunk::State::Done || bytes >= chunk_size(index)) continue;
    base::Digest digest;
    std::int64_t at = 0;
    while (at < bytes) {
      const auto count = std::min(buffer.size(), static_cast<std::size_t>(bytes - at));
      const Result<std::size_t> got = part_file_->read_at(
          static_cast<std::int64_t>(index) * chunk_bytes_ + at, std::span(buffer).first(count));
      if (!got.ok() || *got != count) break;
      digest.add(std::span<const std::byte>(buffer).first(count));
      at += static_cast<std::int64_t>(count);
    }
    if (at != bytes) continue;
    chunk.digest = std::move(digest);
    chunk.received = bytes;
    bytes_done_ += bytes;
  }
  partial_.clear();
}

Status Transfer::save_state() {
  if (!is_dirty_ || identity_.empty() || !size_) return ok_status();
  // The data first: what the state claims must be on the disk.
  if (const Status synced = part_file_->sync(); !synced.ok()) return synced;
  PartState state{identity_, *size_, chunk_bytes_, {}, {}};
  state.chunks.reserve(chunks_.size());
  for (const Chunk& chunk : chunks_) {
    const bool is_done = chunk.state == Chunk::State::Done;
    if (!is_done && chunk.received > 0) state.partial[state.chunks.size()] = chunk.received;
    state.chunks.push_back(is_done ? chunk.sha256 : std::string());
  }
  if (const Status saved = save_part_state(state_file_, state); !saved.ok()) return saved;
  is_dirty_ = false;
  return ok_status();
}

// A state that cannot be saved costs only a resume; a full disk shows itself in the data.
void Transfer::save_if_due() {
  const Clock::time_point begin = Clock::now();
  if (!is_dirty_ || (begin < next_save_ && unsaved_chunks_ < kUnsavedChunksMax)) return;
  unsaved_chunks_ = 0;
  (void)save_state();
  const Clock::time_point end = Clock::now();
  next_save_ = end + std::max<Clock::duration>(kSaveEvery, kSaveShare * (end - begin));
}

// What was promised and what came, where they differ.
std::optional<std::pair<std::string, std::string>> Transfer::mismatch(
    const WholeHashes& hashes) const {
  if (!file_.sha256.empty() && file_.sha256 != hashes.sha256)
    return std::pair("sha256 " + file_.sha256, hashes.sha256);
  if (!file_.git_sha1.empty() && file_.git_sha1 != hashes.git_sha1)
    return std::pair("git sha1 " + file_.git_sha1, hashes.git_sha1);
  if (!file_.integrity.empty() && file_.integrity != "sha512-" + hashes.sha512_base64)
    return std::pair(file_.integrity, "sha512-" + hashes.sha512_base64);
  return std::nullopt;
}

// Every chunk is here and the whole is wrong: first the disk is suspected, then the network.
Status Transfer::mend(const std::pair<std::string, std::string>& expected_found) {
  Result<FileChunks> on_disk = hash_file(
      part_, file_.path, [this](std::int64_t) { return !stop_.stop_requested(); }, chunk_bytes_);
  if (!on_disk.ok()) return on_disk.error();
  int damaged = 0;
  for (std::size_t i = 0; i < chunks_.size(); ++i) {
    if (i < on_disk->chunks.size() && on_disk->chunks[i] == chunks_[i].sha256) continue;
    ++damaged;
    bytes_done_ -= chunk_size(i);
    chunks_[i] = {};
  }
  if (damaged > 0 && disk_mends_ < kDiskMendsMax) {
    ++disk_mends_;
    note_ = fmt::format("{} of {} chunks were damaged on the disk: fetching them again", damaged,
                        chunks_.size());
  } else if (!has_fetched_twice_ && file_.chunk_sha256.empty()) {
    has_fetched_twice_ = true;
    for (Chunk& chunk : chunks_) {
      std::string earlier = std::move(chunk.sha256);
      chunk = {};
      chunk.earlier_sha256 = std::move(earlier);
    }
    bytes_done_ = 0;
    note_ = fmt::format("{} arrived wrong ({} where {} was promised): fetching it once more",
                        file_.path, expected_found.second, expected_found.first);
  } else {
    std::error_code ignored;
    remove_part_state(state_file_);
    fs::remove(part_, ignored);
    const auto differing = std::count_if(chunks_.begin(), chunks_.end(), [](const Chunk& chunk) {
      return !chunk.earlier_sha256.empty() && chunk.earlier_sha256 != chunk.sha256;
    });
    return Error{
        ErrorCode::Corrupt,
        fmt::format("{} is not what was promised: expected {}, found {}{}; it was removed",
                    file_.path, expected_found.first, expected_found.second,
                    has_fetched_twice_ ? fmt::format(", and {} of its {} chunks came differently "
                                                     "the second time",
                                                     differing, chunks_.size())
                                       : "")};
  }
  prefix_ = 0;
  hasher_.reset();
  stream_attempts_ = {};
  is_dirty_ = true;
  if (const Status saved = save_state(); !saved.ok()) return saved;
  advance_prefix();
  return ok_status();
}

Result<FileChunks> Transfer::commit(const WholeHashes& hashes) {
  FileChunks result;
  result.path = file_.path;
  result.size = *size_;
  result.sha256 = hashes.sha256;
  result.chunk_bytes = chunk_bytes_;
  for (const Chunk& chunk : chunks_) result.chunks.push_back(chunk.sha256);
  // A stream that was begun again may have left a longer end.
  std::error_code error;
  fs::resize_file(part_, static_cast<std::uintmax_t>(*size_), error);
  if (error)
    return Error{ErrorCode::Unavailable, fmt::format("{}: {}", part_.string(), error.message())};
  if (const Status synced = part_file_->sync(); !synced.ok()) return synced.error();
  const Result<base::FileStamp> stamp = part_file_->stamp();
  if (!stamp.ok()) return stamp.error();
  result.modified_ns = stamp->modified_ns;
  if (::rename(part_.c_str(), target_.c_str()) != 0) return system_error("rename", part_);
  const int folder = ::open(target_.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    ::fsync(folder);
    ::close(folder);
  }
  remove_part_state(state_file_);
  return result;
}

Result<std::optional<FileChunks>> Transfer::try_to_finish() {
  advance_prefix();
  const std::optional<Result<WholeHashes>> hashes = hasher_->wait(kLookUp);
  if (!hashes) return std::optional<FileChunks>();
  if (!hashes->ok()) return hashes->error();
  if (const auto wrong = mismatch(**hashes)) {
    if (const Status mended = mend(*wrong); !mended.ok()) return mended.error();
    return std::optional<FileChunks>();
  }
  Result<FileChunks> done = commit(**hashes);
  if (!done.ok()) return done.error();
  return std::optional<FileChunks>(done.take());
}

}  // namespace llorch::catalog
