// A file that is being put together on the disk: "<target>.part", and what of it is right in
// "<target>.part.json". Private to fetch/.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>

#include "base/file_lock.h"
#include "base/positioned_file.h"
#include "base/result.h"
#include "fetch/chunk_table.h"
#include "fetch/chunks.h"
#include "fetch/part_state.h"
#include "fetch/prefix_hasher.h"
#include "fetch/published.h"
#include "fetch/source.h"

namespace llorch::fetch {

inline constexpr std::string_view kPartIsKept =
    "what is here is kept, and the same call goes on from there";
inline constexpr std::int64_t kFileBytesMax = std::int64_t{1} << 42;

// Belongs to one thread; the hash of the whole file follows on a thread of its own.
class Part {
 public:
  // `file` must live as long.
  Part(const RemoteFile& file, const std::filesystem::path& target, std::int64_t range_bytes);

  // For this process alone, with what the last call left; from nothing where that is of another
  // file. Conflict names who is at it; OutOfMemory when there is no room for the rest.
  Status open();

  const ChunkTable& chunks() const { return chunks_; }

  // The size has become known: TooLarge, or OutOfMemory where there is no room.
  Status set_size(std::int64_t size);
  void forget_size() { chunks_.set_size(std::nullopt); }
  void end_at(std::int64_t size) { chunks_.set_size(size); }  // the stream ended there
  // From nothing, of the size that is known.
  void begin(std::optional<std::int64_t> size);
  // One chunk to ask for, while nothing is known of the size.
  void begin_unknown() { chunks_.grow(); }
  // One more chunk of a file whose size is not known. OutOfMemory where there is no room.
  Status grow();

  // Behind what is here of the chunk.
  Status write(std::size_t index, std::span<const std::byte> bytes);
  // All of the chunk is here. Nothing: it is right. An error: it is not what was promised, and
  // missing again.
  std::optional<Error> finish_chunk(std::size_t index);

  // Once every chunk is here: the file under its name, when it is what was published. Nothing: the
  // hash is not ready, or chunks are missing again, which the note tells. Corrupt: it is not what
  // was published, and removed.
  Result<std::optional<FileChunks>> try_to_finish(const std::stop_token& stop, std::string& note);

  void save_if_due();
  // Nothing of what is here can be used by the next call: the file is another one now.
  void forget_state() { remove_part_state(state_file_); }
  // The end of a call that did not finish: what the next one can use stays.
  void leave(const Error& why);

 private:
  void load(const PartState& state);
  void advance_hasher();
  Status mend(const Mismatch& wrong, const std::stop_token& stop, std::string& note);
  Result<FileChunks> commit(const WholeHashes& hashes);
  Error give_up(const Mismatch& wrong);
  void remove();
  Status save_state();

  const RemoteFile& file_;
  const std::filesystem::path target_;
  const std::filesystem::path path_;
  const std::filesystem::path state_file_;
  const std::string identity_;
  ChunkTable chunks_;
  bool has_begun_twice_ = false;
  int num_disk_mends_ = 0;
  bool is_dirty_ = false;  // the state on the disk is not the newest
  int num_unsaved_ = 0;    // chunks
  std::chrono::steady_clock::time_point next_save_{};
  std::unique_ptr<base::FileLock> lock_;
  std::shared_ptr<base::PositionedFile> disk_;
  std::unique_ptr<PrefixHasher> hasher_;
};

}  // namespace llorch::fetch
