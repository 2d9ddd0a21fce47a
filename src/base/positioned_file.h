// A file read and written at given places: no position to share, so any thread may use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>

#include "base/result.h"

namespace llorch::base {

// What tells that a file may have changed: cheap to ask for, and no proof. Whoever sets the time of
// the last change back cannot set that of its inode.
struct FileStamp {
  std::int64_t size = 0;
  std::int64_t modified_ns = 0;  // since 1970
  std::int64_t changed_ns = 0;   // the same of its inode
  std::int64_t inode = 0;        // its bits; only ever compared

  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};

// Of what lies at the path, links followed; nothing when that is no regular file. Opens nothing.
std::optional<FileStamp> stamp_of(const std::filesystem::path& path);

// Open for the life of the object; a file that is removed meanwhile stays readable. Regular files
// only.
class PositionedFile {
 public:
  enum class Mode : std::uint8_t { Read, ReadWrite };

  // NotFound, Forbidden, or InvalidArgument for something that is not a file. Never makes a file.
  static Result<std::shared_ptr<PositionedFile>> open(const std::filesystem::path& path,
                                                      Mode mode = Mode::Read);
  ~PositionedFile();
  PositionedFile(const PositionedFile&) = delete;
  PositionedFile& operator=(const PositionedFile&) = delete;

  const std::filesystem::path& path() const { return path_; }

  Result<FileStamp> stamp() const;  // as it is now
  // Tells the kernel that everything will be read from front to back.
  void expect_sequential_reading() const;

  // Fills `into`; the count is smaller only where the file ends.
  Result<std::size_t> read_at(std::int64_t offset, std::span<std::byte> into) const;
  // OutOfMemory when the disk, the quota or the allowed size of a file is full.
  Status write_at(std::int64_t offset, std::span<const std::byte> bytes);
  Status sync();  // what was written is on the disk

 private:
  PositionedFile(std::filesystem::path path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::filesystem::path path_;
  int fd_;
};

}  // namespace llorch::base
