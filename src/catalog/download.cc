#include "catalog/download.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "base/digest.h"
#include "base/utf8.h"
#include "catalog/describe.h"
#include "catalog/download_job.h"
#include "catalog/known_models.h"
#include "catalog/model_names.h"
#include "catalog/registry.h"
#include "fetch/transfer.h"

namespace llorch::catalog {
namespace {

namespace fs = std::filesystem;
using contract::ModelEntry;
using contract::ModelFile;

constexpr std::size_t kFolderNameMax = 64;
constexpr std::size_t kHashedNameDigits = 16;
constexpr std::chrono::milliseconds kJoinedLook{200};

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

// A commit or a version as it is; what could not be a folder's name (an ETag) by its hash.
std::string folder_name(std::string_view revision) {
  if (revision.empty()) return "unversioned";
  const bool is_name = revision.size() <= kFolderNameMax && revision.front() != '.' &&
                       revision.front() != '-' &&
                       std::all_of(revision.begin(), revision.end(), is_plain) &&
                       revision != kDownloadLockName && revision != kUnderWayName;
  return is_name ? std::string(revision) : base::sha256_hex(revision).substr(0, kHashedNameDigits);
}

bool ends_with_any(std::string_view path, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [&](std::string_view ending) { return path.ends_with(ending); });
}

// What a worker's --model gets: the GGUF (the first of several parts), a lone file, else the
// folder.
fs::path model_path(const fs::path& folder, const std::vector<fetch::FileChunks>& files) {
  std::string first;
  for (const fetch::FileChunks& file : files) {
    if (file.path.ends_with(".gguf") && (first.empty() || file.path < first)) first = file.path;
  }
  if (!first.empty()) return folder / first;
  const bool is_lone =
      files.size() == 1 && ends_with_any(files[0].path, {".safetensors", ".bin", ".pt", ".pth"});
  return is_lone ? folder / files[0].path : folder;
}

}  // namespace

Error system_error(const fs::path& path, const std::error_code& error) {
  return {error == std::errc::no_space_on_device  ? ErrorCode::OutOfMemory
          : error == std::errc::permission_denied ? ErrorCode::Forbidden
                                                  : ErrorCode::Unavailable,
          fmt::format("{}: {}", path.string(), error.message())};
}

Download::Download(const Downloader& downloader, const DownloadRequest& request,
                   const OnDownloadEvent& on_event, std::stop_token stop)
    : downloader_(downloader),
      request_(request),
      stop_(std::move(stop)),
      catalog_(downloader.home.catalog_file()),
      source_options_(downloader.source),
      progress_(on_event) {
  if (!request.hf_token.empty()) source_options_.hf_token = request.hf_token;
  source_options_.on_wait = [this](const std::string& host, std::chrono::milliseconds waited) {
    progress_.wait(host, waited);
  };
}

Status Download::find_model() {
  Result<DownloadTarget> target = find_target(downloader_.home, request_, {});
  if (!target.ok()) return target.error();
  id_ = std::move(target->id);
  ref_ = std::move(target->ref);
  entry_ = std::move(target->entry);
  model_folder_ = downloader_.home.models() / id_;
  progress_.set_model(id_);
  return ok_status();
}

// What is to be fetched, and its folder for us alone. Where another process is at the same model,
// its end is waited for, if that is wanted.
Status Download::claim() {
  for (;;) {
    if (const Status found = find_model(); !found.ok()) return found;
    if (ref_.provider == fetch::Provider::File && request_.neighbours.empty()) return ok_status();
    std::error_code error;
    fs::create_directories(model_folder_, error);
    if (error) return system_error(model_folder_, error);
    Result<std::unique_ptr<base::FileLock>> lock =
        base::FileLock::acquire(model_folder_ / kDownloadLockName, std::chrono::milliseconds(0));
    if (lock.ok()) {
      // Between the look and the lock somebody may have ended, or begun another model here.
      const std::string id = id_;
      if (const Status found = find_model(); !found.ok()) return found;
      if (id_ != id) continue;
      lock_ = lock.take();
      progress_.note_in(model_folder_, ref_ != fetch::ModelRef{} ? ref_.text() : "");
      return ok_status();
    }
    if (!request_.join || lock.error().code != ErrorCode::Conflict)
      return lock.error().in(fmt::format("{} is being downloaded already", id_));
    if (const Status waited = wait_for_other(); !waited.ok()) return waited;
  }
}

// Shows how far the other one is until it ends, however it ends.
Status Download::wait_for_other() {
  const fs::path lock = model_folder_ / kDownloadLockName;
  for (bool has_told = false; base::FileLock::is_held(lock);) {
    if (stop_.stop_requested())
      return Error{ErrorCode::Cancelled,
                   fmt::format("{} is still being downloaded by the other process", id_)};
    if (const std::optional<UnderWay> other = load_under_way(model_folder_)) {
      if (!other->ref.empty() && ref_ != fetch::ModelRef{} && !is_same_source(other->ref, ref_)) {
        return Error{ErrorCode::Conflict,
                     fmt::format("process {} downloads another model as {}, from {}: name this one "
                                 "differently (--id NAME)",
                                 other->pid, id_, other->ref)};
      }
      progress_.show(*other);
      if (!std::exchange(has_told, true))
        progress_.note(
            fmt::format("process {} downloads {} already: this shows how far it is, and "
                        "goes on where that one ends",
                        other->pid, id_));
      progress_.tell(Kind::Progress);
    }
    std::this_thread::sleep_for(kJoinedLook);
  }
  progress_.begin(0, 0);
  return ok_status();
}

// A download that brought nothing leaves nothing.
void Download::leave_nothing_empty() {
  std::error_code error;
  for (fs::recursive_directory_iterator at(model_folder_, error), end; !error && at != end;
       at.increment(error)) {
    const fs::path& path = at->path();
    std::error_code ignored;
    const bool is_ours = path.extension() == ".lock" || path.filename() == kUnderWayName ||
                         (path.extension() == ".part" && fs::file_size(path, ignored) == 0);
    if (!fs::is_directory(path, ignored) && !is_ours) return;
  }
  if (error) return;
  for (const fs::path& child : children_of(model_folder_)) {
    if (child.filename() != kDownloadLockName) fs::remove_all(child, error);
  }
  lock_->remove_file();
  fs::remove(model_folder_, error);
}

Result<ModelEntry> Download::run() {
  if (const Status claimed = claim(); !claimed.ok()) return claimed.error();
  if (lock_ == nullptr) return register_in_place();
  Result<ModelEntry> result = take_from_all();
  if (!result.ok()) {
    leave_nothing_empty();
    return result;
  }
  remove_under_way(model_folder_);
  lock_->remove_file();
  return result;
}

Result<ModelEntry> Download::register_in_place() {
  ModelEntry entry = entry_;
  entry.files.clear();
  entry.repo = ref_.text();
  if (!request_.sha256.empty()) {
    const Result<fetch::FileChunks> found = hash(ref_.location, fs::path(ref_.location).filename());
    if (!found.ok()) return found.error();
    if (found->sha256 != request_.sha256)
      return Error{ErrorCode::Corrupt,
                   fmt::format("{} is not what was promised: expected sha256 {}, found {}",
                               ref_.location, request_.sha256, found->sha256)};
  }
  if (const Status described = describe_files(ref_.location, entry); !described.ok())
    return described.error();
  const Status updated = catalog_.update([&](CatalogContent& content) {
    content.put(entry);
    return ok_status();
  });
  if (!updated.ok()) return updated.error();
  progress_.note(fmt::format("{} is used where it lies", ref_.location));
  progress_.tell(Kind::Done);
  return catalog_.find(id_);
}

Result<ModelEntry> Download::take_from_all() {
  fetch::OfferQuestion question{.id = id_, .neighbours = request_.neighbours};
  if (ref_ != fetch::ModelRef{}) question.ref = ref_;
  question.only_neighbours = request_.only_neighbours || !question.ref;
  Result<fetch::OfferedModel> model = fetch::find_offers(
      question, source_options_, [&](const std::string& text) { progress_.note(text); }, stop_);
  if (!model.ok()) return model.error();
  if (const Status pinned = pin_hash(*model); !pinned.ok()) return pinned.error();
  for (std::size_t i = 0; i < model->source.files.size(); ++i)
    offers_[model->source.files[i].path] = std::move(model->offers[i]);
  return take(model->source);
}

// What the user says the file is: as if the source had published it.
Status Download::pin_hash(fetch::OfferedModel& model) const {
  if (request_.sha256.empty()) return ok_status();
  std::vector<fetch::RemoteFile>& files = model.source.files;
  if (files.size() != 1 || model.source.is_tarball) {
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format(
            "--sha256 is for a model of one file; {} is {}", model.source.ref.text(),
            model.source.is_tarball ? "an archive" : fmt::format("{} files", files.size()))};
  }
  std::string& published = files.front().sha256;
  if (!published.empty() && published != request_.sha256) {
    return Error{ErrorCode::Corrupt,
                 fmt::format("{} is published with the sha256 {}, expected was {}",
                             files.front().path, published, request_.sha256)};
  }
  published = request_.sha256;
  for (fetch::Offer& offer : model.offers.front()) offer.file.sha256 = request_.sha256;
  return ok_status();
}

bool Download::is_here(const fetch::ModelSource& source, const fs::path& folder) const {
  if (!entry_.downloaded || source.revision.empty() || entry_.revision != source.revision ||
      model_folder(entry_) != folder || check_files(entry_) != FilesState::Ready)
    return false;
  if (source.is_tarball) return entry_.repo == ref_.text();
  if (!request_.sha256.empty() &&
      (entry_.files.empty() || entry_.files.front().sha256 != request_.sha256))
    return false;
  return std::all_of(source.files.begin(), source.files.end(), [&](const fetch::RemoteFile& file) {
    std::error_code error;
    const auto size = fs::file_size(folder / file.path, error);
    return !error && (!file.size || static_cast<std::int64_t>(size) == *file.size);
  });
}

Status Download::check_whole_room(const fetch::ModelSource& source, const fs::path& folder) const {
  std::int64_t missing = 0;
  for (const fetch::RemoteFile& file : source.files) {
    std::error_code error;
    if (!file.size || fs::exists(folder / file.path, error)) continue;
    const auto part = fs::file_size(fetch::with_suffix(folder / file.path, ".part"), error);
    // A part is as long as its last byte, not as full: each file is looked at again by itself.
    missing += error ? *file.size
                     : std::max<std::int64_t>(0, *file.size - static_cast<std::int64_t>(part));
  }
  return fetch::check_room(model_folder_, missing);
}

Result<ModelEntry> Download::take(const fetch::ModelSource& source) {
  const fs::path folder = model_folder_ / folder_name(source.revision);
  std::int64_t bytes = 0;
  for (const fetch::RemoteFile& file : source.files) bytes += file.size.value_or(0);
  progress_.begin(static_cast<std::int64_t>(source.files.size()), bytes);
  progress_.tell(Kind::Resolved, {}, source.ref.text());
  if (is_here(source, folder)) {
    progress_.end_files();
    progress_.note(fmt::format("{} is here already, at {}", id_, source.revision));
    progress_.tell(Kind::Done);
    return entry_;
  }
  if (const Status room = check_whole_room(source, folder); !room.ok()) return room.error();
  Result<std::vector<fetch::FileChunks>> files =
      source.is_tarball ? fetch_tarball(source, folder) : fetch_files(source, folder);
  if (!files.ok()) return files.error();
  return finish(source, folder, *files);
}

Result<ModelEntry> Download::finish(const fetch::ModelSource& source, const fs::path& folder,
                                    const std::vector<fetch::FileChunks>& files) {
  ModelEntry entry = entry_;
  entry.files.clear();
  entry.revision = source.revision;
  if (ref_ != fetch::ModelRef{}) entry.repo = ref_.text();
  if (entry.repo.empty() && source.ref != fetch::ModelRef{}) entry.repo = source.ref.text();
  if (!source.license.empty()) entry.license = source.license;
  if (const Status described = describe_files(model_path(folder, files), entry); !described.ok())
    return described.error();
  // Without a name of its own it would be called like its folder, which is a commit or a version.
  const bool is_nameless = entry.name == folder.filename() || entry.name == telling_part(folder);
  if (entry_.name.empty() && is_nameless)
    entry.name = ref_ != fetch::ModelRef{} ? derive_model_name(ref_) : id_;
  for (ModelFile& file : entry.files) {
    for (const fetch::FileChunks& hashed : files) {
      if (hashed.path == file.path) file.sha256 = hashed.sha256;
    }
  }
  if (const Status saved = fetch::save_chunks(downloader_.home.chunks(), id_, files); !saved.ok())
    return saved.error();
  const Status updated = catalog_.update([&](CatalogContent& content) -> Status {
    if (const Status ours = check_source(content, id_, ref_); !ours.ok()) return ours;
    // What somebody wrote meanwhile about the same model, and a download does not know.
    if (const ModelEntry* now = content.find(id_)) {
      if (!now->name.empty()) entry.name = now->name;
      entry.unknown = now->unknown;
      entry.unknown_metadata = now->unknown_metadata;
    }
    content.put(entry);
    return ok_status();
  });
  if (!updated.ok()) return updated.error();
  remove_old(folder);
  progress_.tell(Kind::Done);
  return catalog_.find(id_);
}

// Everything of this model but the folder that the catalog names now. Workers keep what they have
// mapped. Files that another entry names stay.
void Download::remove_old(const fs::path& folder) const {
  const Result<CatalogContent> content = catalog_.read();
  if (!content.ok()) return;
  for (const fs::path& child : children_of(model_folder_)) {
    if (child == folder || child.filename() == kDownloadLockName) continue;
    const bool is_used =
        std::any_of(content->models.begin(), content->models.end(), [&](const ModelEntry& other) {
          return !other.path.empty() && (other.path == child || is_inside(other.path, child));
        });
    std::error_code ignored;
    if (!is_used) fs::remove_all(child, ignored);
  }
}

Result<ModelEntry> Downloader::download(const DownloadRequest& request,
                                        const OnDownloadEvent& on_event,
                                        std::stop_token stop) const {
  Download download(*this, request, on_event, std::move(stop));
  return download.run();
}

}  // namespace llorch::catalog
