// Files: read-only memory mappings and crash-safe writes. Nothing here knows what is inside a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/result.h"

namespace llorch::base {

// A whole file mapped read-only for the life of the object. Opening costs no reading: pages arrive
// when touched. Immutable and safe to share between threads. The file must not be truncated while
// mapped.
class MappedFile {
 public:
  static Result<std::shared_ptr<const MappedFile>> open(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  bool holds(std::span<const std::byte> part) const {
    return !part.empty() && part.data() >= data_ && part.data() + part.size() <= data_ + size_;
  }

  // Copies a part (that the file holds) by reading it: cheaper than touching its pages where each
  // is looked at once, and a file that was cut or cannot be read is an error, not the end of the
  // process. `into` is at least as large.
  Status read(std::span<const std::byte> part, std::span<std::byte> into) const;

  // Gives the pages that lie wholly inside `part` back to the system, for content that was copied
  // elsewhere: they are read again when somebody looks. Nothing happens to parts of other memory.
  void forget(std::span<const std::byte> part) const;
  const std::filesystem::path& path() const { return path_; }

 private:
  MappedFile(std::filesystem::path path, int fd, const std::byte* data, std::size_t size)
      : path_(std::move(path)), fd_(fd), data_(data), size_(size) {}

  std::filesystem::path path_;
  Fd fd_;
  const std::byte* data_;  // null when the file is empty
  std::size_t size_;
};

// What st_mode says, for people: "a pipe", "a folder".
std::string_view describe_file_kind(unsigned mode);

// Gives the pages that lie wholly inside `part` back to the system. Only for memory that is a
// file's and was never written to: it is read again when somebody looks; any other would be zero.
void forget_pages(std::span<const std::byte> part);

// Reads every page of the memory once, so that what is mapped is there before it is needed and
// counts from now on.
void touch_pages(std::span<const std::byte> memory);

// The whole file as text; refuses a file larger than max_bytes before reading it.
Result<std::string> read_text_file(const std::filesystem::path& path, std::size_t max_bytes);

// Who may read what we write. State, logs and keys are their owner's (0600).
enum class FileAccess : std::uint8_t { Owner, Everybody };

// Makes the folder, and those above it that are missing, for their owner alone (0700). One that is
// there stays as it is.
Status make_private_folder(const std::filesystem::path& folder);
// Takes from others what they may do with a file or folder of ours; links are left alone. What
// cannot be changed stays.
void make_private(const std::filesystem::path& path);

// A file written piece by piece under a temporary name beside `path` and moved into place by
// commit(): a crash at any moment leaves the old file or the new one. Destroyed without commit(),
// it leaves nothing.
class AtomicFile {
 public:
  static Result<std::unique_ptr<AtomicFile>> create(const std::filesystem::path& path,
                                                    FileAccess access = FileAccess::Owner);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  Status write(std::span<const std::byte> content);
  // Syncs and renames; the object is spent.
  Status commit();

 private:
  AtomicFile(std::filesystem::path path, std::string temporary, int fd, FileAccess access)
      : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd), access_(access) {}

  std::filesystem::path path_;
  std::string temporary_;  // empty once renamed
  int fd_;                 // -1 once closed
  FileAccess access_;
};

// The same for content that is in memory, for its owner alone.
Status write_file_atomically(const std::filesystem::path& path, std::span<const std::byte> content);
Status write_file_atomically(const std::filesystem::path& path, std::string_view content);

// Deletes the temporary files that killed writers of `path` left beside it. Only for whoever knows
// that nobody is writing it now: the holder of its lock.
void remove_abandoned_writes(const std::filesystem::path& path);

}  // namespace llorch::base
