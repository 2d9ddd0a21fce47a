#include "pool/model_files.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/mutex.h"
#include "base/positioned_file.h"
#include "base/utf8.h"
#include "catalog/describe.h"
#include "catalog/verify.h"
#include "contract/error_table.h"
#include "fetch/chunks.h"
#include "http/file_body.h"
#include "http/work_threads.h"
#include "pool/bodies.h"

namespace llorch::pool {
namespace {

constexpr std::size_t kModelsMax = 64;  // whose manifests are kept in memory

// Which file lies at a path: one that replaces it differs in one of these.
struct FileIdentity {
  std::uint64_t inode = 0;
  std::int64_t size = -1;
  std::int64_t modified_ns = 0;
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};
FileIdentity identity_of(const std::filesystem::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return {};
  return {.inode = info.st_ino,
          .size = info.st_size,
          .modified_ns = std::int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec};
}

struct ServedModel {
  FileIdentity catalog;  // of the two files that this was read from
  FileIdentity chunks;
  std::filesystem::path folder;
  std::vector<fetch::FileChunks> files;
  std::vector<contract::ModelFile> noted;  // the same files as the catalog knows them
  std::string manifest;                    // JSON
};
using ServedModelPtr = std::shared_ptr<const ServedModel>;

Error changed_since_verified(std::string_view id, const std::string& path) {
  return {ErrorCode::Conflict,
          fmt::format("{} of {} is not as it was when it was verified: run `llorch-pool models "
                      "verify {}` on this host",
                      base::quoted(path), id, id)};
}

bool is_as_verified(const ServedModel& model, std::size_t index,
                    const std::optional<base::FileStamp>& now) {
  const contract::ModelFile& noted = model.noted[index];
  return now && !noted.damaged && model.files[index].modified_ns == now->modified_ns &&
         catalog::is_as_noted(noted, *now);
}

// Owns the threads that read. Functions without `http` in their types block, and run there.
class ModelFiles {
 public:
  ModelFiles(catalog::ModelCatalog catalog, std::filesystem::path chunks_folder)
      : catalog_(std::move(catalog)), chunks_folder_(std::move(chunks_folder)) {}

  Result<std::string> manifest(const std::string& id) {
    const Result<ServedModelPtr> model = find(id);
    if (!model.ok()) return model.error();
    for (std::size_t i = 0; i < (*model)->files.size(); ++i) {
      const std::string& path = (*model)->files[i].path;
      if (!is_as_verified(**model, i, base::stamp_of((*model)->folder / path)))
        return changed_since_verified(id, path);
    }
    return (*model)->manifest;
  }

  Result<http::FileBody> open(const std::string& id, const std::string& number) {
    const Result<ServedModelPtr> model = find(id);
    if (!model.ok()) return model.error();
    const std::vector<fetch::FileChunks>& files = (*model)->files;
    std::size_t index = 0;
    const char* end = number.data() + number.size();
    const auto parsed = std::from_chars(number.data(), end, index);
    if (parsed.ec != std::errc() || parsed.ptr != end || index >= files.size())
      return Error{ErrorCode::NotFound,
                   fmt::format("{} has {} files, numbered from 0: there is none with the number {}",
                               id, files.size(), base::quoted(number))};
    const fetch::FileChunks& file = files[index];
    Result<std::shared_ptr<base::PositionedFile>> opened =
        base::PositionedFile::open((*model)->folder / file.path);
    if (!opened.ok()) return changed_since_verified(id, file.path);
    const Result<base::FileStamp> stamp = (*opened)->stamp();
    if (!stamp.ok()) return stamp.error();
    if (!is_as_verified(**model, index, *stamp)) return changed_since_verified(id, file.path);
    http::FileBody body;
    body.file = opened.take();
    body.size = file.size;
    body.etag = file.sha256;
    return body;
  }

  http::WorkThreads& threads() { return threads_; }

 private:
  // A download asks for every range by itself: the catalog is parsed again only when it changed.
  Result<ServedModelPtr> find(const std::string& id) {
    if (!contract::is_model_id(id))
      return Error{ErrorCode::NotFound, fmt::format("{} is not a model id", base::quoted(id))};
    const FileIdentity catalog = identity_of(catalog_.file());
    const FileIdentity chunks = identity_of(chunks_folder_ / (id + ".json"));
    {
      const base::MutexLock lock(mutex_);
      const auto known = models_.find(id);
      if (known != models_.end() && known->second->catalog == catalog &&
          known->second->chunks == chunks)
        return known->second;
    }
    Result<ServedModel> read = read_model(id);
    if (!read.ok()) return read.error();
    read->catalog = catalog;
    read->chunks = chunks;
    const auto model = std::make_shared<const ServedModel>(read.take());
    const base::MutexLock lock(mutex_);
    if (models_.size() >= kModelsMax) models_.clear();
    models_[id] = model;
    return model;
  }

  Result<ServedModel> read_model(const std::string& id) const {
    const Result<contract::ModelEntry> entry = catalog_.find(id);
    if (!entry.ok()) return entry.error();
    if (!catalog::has_files(*entry))
      return Error{ErrorCode::NotFound, fmt::format("{} has no files on this host", id)};
    ServedModel model;
    model.folder = catalog::model_folder(*entry);
    Result<std::vector<fetch::FileChunks>> files = fetch::load_chunks(chunks_folder_, id);
    if (!files.ok() && files.error().code != ErrorCode::NotFound) return files.error();
    const std::vector<fetch::FileChunks> kept =
        files.ok() ? files.take() : std::vector<fetch::FileChunks>();
    for (const contract::ModelFile& file : entry->files) {
      const auto found = std::find_if(kept.begin(), kept.end(), [&](const auto& record) {
        return catalog::is_record_of(record, file);
      });
      if (found == kept.end())
        return Error{ErrorCode::NotFound,
                     fmt::format("{} was never verified on this host: run `llorch-pool models "
                                 "verify {}` there",
                                 id, id)};
      model.files.push_back(*found);
      model.noted.push_back(file);
    }
    const Manifest manifest{id, entry->repo, entry->revision, model.files};
    model.manifest = json::serialize(contract::write_fields(manifest));
    return model;
  }

  const catalog::ModelCatalog catalog_;
  const std::filesystem::path chunks_folder_;
  base::Mutex mutex_;
  std::map<std::string, ServedModelPtr> models_ LLORCH_GUARDED_BY(mutex_);
  http::WorkThreads threads_{2};  // last: they use the others
};

std::string param(const http::Request& request, const std::string& name) {
  return request.path_params.at(name);  // the route has it
}

http::Task<Status> answer_manifest(std::shared_ptr<ModelFiles> files, std::string id,
                                   http::Responder& responder) {
  std::function<Result<std::string>()> work = [files = files.get(), id = std::move(id)] {
    return files->manifest(id);
  };
  Result<std::string> text = co_await files->threads().run<std::string>(std::move(work));
  if (!text.ok()) co_return text.error();
  http::Response response(200, "application/json", text.take());
  co_return co_await responder.send(std::move(response));
}

http::Task<Status> answer_file(std::shared_ptr<ModelFiles> files, const http::Request& request,
                               http::Responder& responder) {
  std::function<Result<http::FileBody>()> work = [files = files.get(), id = param(request, "id"),
                                                  number = param(request, "n")] {
    return files->open(id, number);
  };
  Result<http::FileBody> body = co_await files->threads().run<http::FileBody>(std::move(work));
  if (!body.ok()) co_return body.error();
  const http::ByteRange range = http::choose_range(request, body->size, body->etag);
  if (range.kind == http::ByteRange::Kind::Unsatisfiable) {
    const Error error{ErrorCode::InvalidArgument,
                      fmt::format("the range begins behind the file's {} bytes", body->size)};
    // The contract's envelope under HTTP's own status for this.
    http::Response response(416, "application/json",
                            contract::render_error(error, request.correlation_id).body);
    response.headers.add("Content-Range", http::unsatisfied_content_range(body->size));
    co_return co_await responder.send(std::move(response));
  }
  co_return co_await http::send_file(responder, files->threads(), body.take(), range);
}

}  // namespace

void add_model_file_routes(http::Router& router, const catalog::ModelCatalog& catalog,
                           std::filesystem::path chunks_folder) {
  const auto files = std::make_shared<ModelFiles>(catalog, std::move(chunks_folder));
  router.add(http::Method::Get, "/v2/models/{id}/manifest",
             [files](const http::Request& request, http::Responder& responder) {
               return answer_manifest(files, param(request, "id"), responder);
             });
  router.add(http::Method::Get, "/v2/models/{id}/files/{n}",
             [files](const http::Request& request, http::Responder& responder) {
               return answer_file(files, request, responder);
             });
}

}  // namespace llorch::pool
