#include "fetch/tarball.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <set>

#include "base/positioned_file.h"
#include "base/utf8.h"
#include "contract/model_entry.h"

namespace llorch::fetch {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kEntriesMax = 100'000;
constexpr std::int64_t kUnpackedBytesMax = std::int64_t{1} << 40;
constexpr std::size_t kReadBytes = std::size_t{256} << 10;

struct CloseArchive {
  void operator()(archive* handle) const { archive_read_free(handle); }
};
using ArchivePtr = std::unique_ptr<archive, CloseArchive>;

Error corrupt(const fs::path& path, std::string_view what) {
  return {ErrorCode::Corrupt, fmt::format("{}: {}", path.string(), what)};
}

Error archive_problem(const fs::path& path, archive* handle) {
  const char* text = archive_error_string(handle);
  return corrupt(path, text != nullptr ? base::quoted(text) : "not a tar archive");
}

Result<ArchivePtr> open_archive(const fs::path& path) {
  ArchivePtr handle(archive_read_new());
  if (handle == nullptr) return Error{ErrorCode::Internal, "libarchive gives no reader"};
  archive_read_support_format_tar(handle.get());
  archive_read_support_filter_gzip(handle.get());
  if (archive_read_open_filename(handle.get(), path.c_str(), kReadBytes) != ARCHIVE_OK)
    return archive_problem(path, handle.get());
  return handle;
}

// A regular file by the path it gets here; nothing for everything else.
std::optional<ListedFile> as_file(archive_entry* entry) {
  if (archive_entry_filetype(entry) != AE_IFREG || archive_entry_hardlink(entry) != nullptr)
    return std::nullopt;
  const char* name = archive_entry_pathname_utf8(entry);
  if (name == nullptr || !archive_entry_size_is_set(entry)) return std::nullopt;
  const std::string_view path = name;
  const std::size_t slash = path.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  ListedFile file{std::string(path.substr(slash + 1)), archive_entry_size(entry)};
  if (file.size < 0 || !contract::is_relative_file_path(file.path)) return std::nullopt;
  return file;
}

// Calls `take` for each regular file while its content can be read.
template <class Take>
Status for_each_file(const fs::path& path, const std::stop_token& stop, const Take& take) {
  Result<ArchivePtr> handle = open_archive(path);
  if (!handle.ok()) return handle.error();
  std::int64_t total = 0;
  for (std::size_t count = 0;; ++count) {
    archive_entry* entry = nullptr;
    const int status = archive_read_next_header(handle->get(), &entry);
    if (status == ARCHIVE_EOF) return ok_status();
    if (status != ARCHIVE_OK && status != ARCHIVE_WARN) return archive_problem(path, handle->get());
    if (stop.stop_requested())
      return Error{ErrorCode::Cancelled, fmt::format("unpacking {} was cancelled", path.string())};
    const std::optional<ListedFile> file = as_file(entry);
    total += file ? file->size : 0;
    if (count > kEntriesMax || total > kUnpackedBytesMax)
      return corrupt(path, "it holds more than anybody would pack");
    if (!file) continue;
    if (const Status taken = take(*file, handle->get()); !taken.ok()) return taken;
  }
}

Status write_file(const fs::path& archive_path, archive* handle, const fs::path& target,
                  const ListedFile& file, const std::stop_token& stop) {
  std::error_code error;
  fs::create_directories(target.parent_path(), error);
  // O_EXCL: a path that comes twice is an error, and nothing that is there is written through.
  const int fd = ::open(target.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0)
    return corrupt(archive_path, fmt::format("{}: {}", target.string(), std::strerror(errno)));
  ::close(fd);
  Result<std::shared_ptr<base::PositionedFile>> out =
      base::PositionedFile::open(target, base::PositionedFile::Mode::ReadWrite);
  if (!out.ok()) return out.error();
  std::vector<std::byte> buffer(kReadBytes);
  std::int64_t at = 0;
  for (;;) {
    const la_ssize_t got = archive_read_data(handle, buffer.data(), buffer.size());
    if (got < 0) return archive_problem(archive_path, handle);
    if (got == 0) break;
    if (at + got > file.size) return corrupt(archive_path, "a file is longer than its head says");
    if (stop.stop_requested())
      return Error{ErrorCode::Cancelled,
                   fmt::format("unpacking {} was cancelled", archive_path.string())};
    const Status written =
        (*out)->write_at(at, std::span(buffer).first(static_cast<std::size_t>(got)));
    if (!written.ok()) return written;
    at += got;
  }
  if (at != file.size) return corrupt(archive_path, "a file is shorter than its head says");
  return (*out)->sync();
}

}  // namespace

Result<std::vector<ListedFile>> list_tarball(const fs::path& archive, const std::stop_token& stop) {
  std::vector<ListedFile> files;
  const Status listed = for_each_file(archive, stop, [&](const ListedFile& file, ::archive*) {
    files.push_back(file);
    return ok_status();
  });
  if (!listed.ok()) return listed.error();
  return files;
}

Status unpack_tarball(const fs::path& archive, const ChosenFiles& chosen, const fs::path& folder,
                      const std::stop_token& stop) {
  std::size_t found = 0;
  const Status unpacked =
      for_each_file(archive, stop, [&](const ListedFile& file, ::archive* handle) {
        if (std::find(chosen.files.begin(), chosen.files.end(), file) == chosen.files.end())
          return ok_status();
        ++found;
        return write_file(archive, handle, folder / file.path.substr(chosen.folder.size()), file,
                          stop);
      });
  if (!unpacked.ok()) return unpacked;
  if (found != chosen.files.size()) return corrupt(archive, "it changed while it was unpacked");
  return ok_status();
}

}  // namespace llorch::fetch
