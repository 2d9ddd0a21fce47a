#include "fetch/part.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/terminal.h"
#include "fetch/transfer.h"

namespace llorch::fetch {
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
constexpr std::int64_t kReadBytes = std::int64_t{256} << 10;
constexpr int kDiskMendsMax = 2;
constexpr milliseconds kLookUp{100};

Error system_error(std::string_view what, const fs::path& path) {
  const int number = errno;
  ErrorCode code = ErrorCode::Unavailable;
  if (number == EACCES || number == EPERM || number == EROFS) code = ErrorCode::Forbidden;
  if (number == ENOSPC || number == EDQUOT || number == EFBIG) code = ErrorCode::OutOfMemory;
  return {code, fmt::format("cannot {} {}: {}", what, path.string(), std::strerror(number))};
}

// Nothing where they cannot be read.
std::optional<std::vector<std::byte>> read_bytes(const base::PositionedFile& file,
                                                 std::int64_t begin, std::int64_t bytes) {
  std::vector<std::byte> buffer(static_cast<std::size_t>(bytes));
  const Result<std::size_t> got = file.read_at(begin, buffer);
  if (!got.ok() || *got != buffer.size()) return std::nullopt;
  return buffer;
}

}  // namespace

fs::path with_suffix(const fs::path& path, std::string_view suffix) {
  return fs::path(path.native() + std::string(suffix));
}

Status check_room(const fs::path& folder, std::int64_t bytes) {
  struct statvfs info {};
  if (::statvfs(folder.c_str(), &info) != 0) return system_error("look at", folder);
  const auto free = static_cast<std::int64_t>(info.f_bavail * info.f_frsize);
  const std::int64_t needed = bytes + kSpareRoomBytes;
  if (free >= needed) return ok_status();
  return Error{ErrorCode::OutOfMemory,
               fmt::format("{} has {} free and {} are needed: make room, or move the models "
                           "(LLORCH_HOME)",
                           folder.string(), base::human_bytes(free), base::human_bytes(needed))};
}

Part::Part(const RemoteFile& file, const fs::path& target, std::int64_t range_bytes)
    : file_(file),
      target_(target),
      path_(with_suffix(target, ".part")),
      state_file_(with_suffix(target, ".part.json")),
      identity_(identity_of(file)),
      chunks_(file.chunk_sha256.empty() ? range_bytes : file.chunk_bytes) {}

Status Part::open() {
  Result<std::unique_ptr<base::FileLock>> lock =
      base::FileLock::acquire(with_suffix(target_, ".lock"), milliseconds(0));
  if (!lock.ok())
    return lock.error().in(fmt::format("{} is being fetched by somebody else", target_.string()));
  lock_ = lock.take();
  if (file_.size && *file_.size > kFileBytesMax) {
    return Error{ErrorCode::TooLarge, fmt::format("{} is said to have {} bytes, more than {}",
                                                  file_.path, *file_.size, kFileBytesMax)};
  }
  if (file_.size) {
    struct stat info {};
    const std::int64_t here =
        ::stat(path_.c_str(), &info) == 0 ? std::int64_t{info.st_blocks} * 512 : 0;
    const std::int64_t missing = std::max<std::int64_t>(0, *file_.size - here);
    if (Status room = check_room(path_.parent_path(), missing); !room.ok()) return room;
  }
  chunks_.begin(file_.size);
  const Result<PartState> state = load_part_state(state_file_);
  std::error_code ignored;
  const bool fits = state.ok() && !identity_.empty() && state->identity == identity_ &&
                    state->chunk_bytes == chunks_.chunk_bytes() &&
                    (!file_.size || *file_.size == state->size) && fs::exists(path_, ignored);
  if (!fits) remove();
  const int fd = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return system_error("make", path_);
  ::close(fd);
  Result<std::shared_ptr<base::PositionedFile>> opened =
      base::PositionedFile::open(path_, base::PositionedFile::Mode::ReadWrite);
  if (!opened.ok()) return opened.error();
  disk_ = opened.take();
  if (fits) load(*state);
  advance_hasher();
  return ok_status();
}

// Whole chunks by their word. Of those that were cut in the middle what is on the disk is hashed,
// which is little; a stream that was cut begins from its front and needs none of it.
void Part::load(const PartState& state) {
  chunks_.begin(state.size);
  for (std::size_t i = 0; i < chunks_.count(); ++i) {
    const std::string& hash = state.chunks[i];
    const bool known_bad = !file_.chunk_sha256.empty() &&
                           (i >= file_.chunk_sha256.size() || hash != file_.chunk_sha256[i]);
    if (!hash.empty() && !known_bad) chunks_.accept(i, hash);
  }
  for (const auto& [index, bytes] : state.partial) {
    if (chunks_[index].is_done() || bytes >= chunks_.size_of(index)) continue;
    for (std::int64_t at = 0; at < bytes;) {
      const auto piece =
          read_bytes(*disk_, chunks_.begin_of(index) + at, std::min(kReadBytes, bytes - at));
      if (!piece) {
        chunks_.drop(index);
        break;
      }
      chunks_.add(index, *piece);
      at += static_cast<std::int64_t>(piece->size());
    }
  }
}

Status Part::set_size(std::int64_t size) {
  if (size > kFileBytesMax) {
    return Error{ErrorCode::TooLarge,
                 fmt::format("{} has {} bytes, more than {}", file_.path, size, kFileBytesMax)};
  }
  if (Status room = check_room(path_.parent_path(), size); !room.ok()) return room;
  hasher_.reset();
  chunks_.set_size(size);
  return ok_status();
}

void Part::begin(std::optional<std::int64_t> size) {
  hasher_.reset();
  chunks_.begin(size);
}

Status Part::grow() {
  if (Status room = check_room(path_.parent_path(), chunks_.chunk_bytes()); !room.ok()) return room;
  chunks_.grow();
  return ok_status();
}

Status Part::write(std::size_t index, std::span<const std::byte> bytes) {
  const Status written = disk_->write_at(chunks_.begin_of(index) + chunks_[index].received, bytes);
  if (!written.ok())
    return Error{written.error().code, fmt::format("{}; {}", written.error().message, kPartIsKept)};
  chunks_.add(index, bytes);
  is_dirty_ = true;
  return ok_status();
}

std::optional<Error> Part::finish_chunk(std::size_t index) {
  std::string sha256 = chunks_.take_hash(index);
  const bool is_known = index < file_.chunk_sha256.size();
  if (!is_known || file_.chunk_sha256[index] == sha256) {
    chunks_.accept(index, std::move(sha256));
    is_dirty_ = true;
    ++num_unsaved_;
    advance_hasher();
    return std::nullopt;
  }
  chunks_.drop(index);
  return Error{ErrorCode::Corrupt,
               fmt::format("chunk {} of {} came with the sha256 {} where {} was promised", index,
                           file_.path, sha256, file_.chunk_sha256[index])};
}

void Part::advance_hasher() {
  if (!chunks_.size()) return;
  if (hasher_ == nullptr)
    hasher_ = std::make_unique<PrefixHasher>(disk_, *chunks_.size(), wanted_hashes(file_));
  hasher_->advance(chunks_.prefix_bytes());
}

Status Part::save_state() {
  if (!is_dirty_ || identity_.empty() || !chunks_.size()) return ok_status();
  // The data first: what the state claims must be on the disk.
  if (const Status synced = disk_->sync(); !synced.ok()) return synced;
  PartState state{identity_, *chunks_.size(), chunks_.chunk_bytes(), {}, {}};
  state.chunks.reserve(chunks_.count());
  for (std::size_t i = 0; i < chunks_.count(); ++i) {
    const Chunk& chunk = chunks_[i];
    if (!chunk.is_done() && chunk.received > 0) state.partial[i] = chunk.received;
    state.chunks.push_back(chunk.sha256);
  }
  if (const Status saved = save_part_state(state_file_, state); !saved.ok()) return saved;
  is_dirty_ = false;
  return ok_status();
}

// A state that cannot be saved costs only a resume; a full disk shows itself in the data.
void Part::save_if_due() {
  const Clock::time_point begin = Clock::now();
  if (!is_dirty_ || (begin < next_save_ && num_unsaved_ < kUnsavedChunksMax)) return;
  num_unsaved_ = 0;
  (void)save_state();
  const Clock::time_point end = Clock::now();
  next_save_ = end + std::max<Clock::duration>(kSaveEvery, kSaveShare * (end - begin));
}

void Part::remove() {
  std::error_code ignored;
  remove_part_state(state_file_);
  fs::remove(path_, ignored);
}

void Part::leave(const Error& why) {
  if (identity_.empty()) {
    std::error_code ignored;  // nobody could go on with it
    fs::remove(path_, ignored);
  } else if (why.code != ErrorCode::Corrupt) {
    (void)save_state();
  }
}

// Every chunk is here and the whole is wrong: first the disk is suspected, then the network.
Status Part::mend(const Mismatch& wrong, const std::stop_token& stop, std::string& note) {
  const Result<FileChunks> on_disk = hash_file(
      path_, file_.path, [&stop](std::int64_t) { return !stop.stop_requested(); },
      chunks_.chunk_bytes());
  if (!on_disk.ok()) return on_disk.error();
  int damaged = 0;
  for (std::size_t i = 0; i < chunks_.count(); ++i) {
    if (i < on_disk->chunks.size() && on_disk->chunks[i] == chunks_[i].sha256) continue;
    ++damaged;
    chunks_.drop(i);
  }
  if (damaged > 0 && num_disk_mends_ < kDiskMendsMax) {
    ++num_disk_mends_;
    note = fmt::format("{} of {} chunks were damaged on the disk: fetching them again", damaged,
                       chunks_.count());
  } else if (!has_begun_twice_ && file_.chunk_sha256.empty()) {
    has_begun_twice_ = true;
    chunks_.begin_twice();
    note = fmt::format("{} arrived wrong ({} where {} was promised): fetching it once more",
                       file_.path, wrong.found, wrong.expected);
  } else {
    return give_up(wrong);
  }
  hasher_.reset();
  is_dirty_ = true;
  if (const Status saved = save_state(); !saved.ok()) return saved;
  advance_hasher();
  return ok_status();
}

Error Part::give_up(const Mismatch& wrong) {
  remove();
  const std::string twice =
      has_begun_twice_ ? fmt::format(", and {} of its {} chunks came differently the second time",
                                     chunks_.count_differing(), chunks_.count())
                       : "";
  return {ErrorCode::Corrupt,
          fmt::format("{} is not what was promised: expected {}, found {}{}; it was removed",
                      file_.path, wrong.expected, wrong.found, twice)};
}

Result<FileChunks> Part::commit(const WholeHashes& hashes) {
  FileChunks result;
  result.path = file_.path;
  result.size = *chunks_.size();
  result.sha256 = hashes.sha256;
  result.chunk_bytes = chunks_.chunk_bytes();
  for (std::size_t i = 0; i < chunks_.count(); ++i) result.chunks.push_back(chunks_[i].sha256);
  // A stream that was begun again may have left a longer end.
  std::error_code error;
  fs::resize_file(path_, static_cast<std::uintmax_t>(result.size), error);
  if (error)
    return Error{ErrorCode::Unavailable, fmt::format("{}: {}", path_.string(), error.message())};
  if (const Status synced = disk_->sync(); !synced.ok()) return synced.error();
  const Result<base::FileStamp> stamp = disk_->stamp();
  if (!stamp.ok()) return stamp.error();
  result.modified_ns = stamp->modified_ns;
  if (::rename(path_.c_str(), target_.c_str()) != 0) return system_error("rename", path_);
  const int folder = ::open(target_.parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    ::fsync(folder);
    ::close(folder);
  }
  remove_part_state(state_file_);
  lock_->remove_file();
  return result;
}

Result<std::optional<FileChunks>> Part::try_to_finish(const std::stop_token& stop,
                                                      std::string& note) {
  advance_hasher();
  const std::optional<Result<WholeHashes>> hashes = hasher_->wait(kLookUp);
  if (!hashes) return std::optional<FileChunks>();
  if (!hashes->ok()) return hashes->error();
  if (const std::optional<Mismatch> wrong = find_mismatch(file_, **hashes)) {
    if (const Status mended = mend(*wrong, stop, note); !mended.ok()) return mended.error();
    return std::optional<FileChunks>();
  }
  Result<FileChunks> done = commit(**hashes);
  if (!done.ok()) return done.error();
  return std::optional<FileChunks>(done.take());
}

}  // namespace llorch::fetch
