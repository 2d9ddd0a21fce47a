// Which model a request means: decided from the catalog, the known models and what is under way.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "catalog/download_job.h"
#include "catalog/known_models.h"
#include "catalog/model_names.h"

namespace llorch::catalog {
namespace {

using contract::ModelEntry;

// The entries that an id can mean.
struct Names {
  const CatalogContent& content;
  std::vector<ModelEntry> known = known_models();

  const ModelEntry* find(std::string_view id) const {
    if (const ModelEntry* entry = content.find(id)) return entry;
    const auto found = std::find_if(known.begin(), known.end(),
                                    [&](const ModelEntry& entry) { return entry.id == id; });
    return found != known.end() ? &*found : nullptr;
  }
};

// From the request, else from the entry of that id; an id in its place means that entry's source.
Status find_source(const Names& names, const DownloadRequest& request, DownloadTarget& target) {
  std::string text = request.ref;
  if (const ModelEntry* entry = names.find(request.id); entry != nullptr && text.empty())
    text = entry->repo;
  if (text.empty()) return ok_status();
  Result<fetch::ModelRef> ref = fetch::parse_model_ref(text);
  if (!ref.ok()) return ref.error();
  if (ref->provider == fetch::Provider::CatalogId) {
    const ModelEntry* other = names.find(ref->location);
    if (other == nullptr || other->repo.empty())
      return Error{ErrorCode::NotFound,
                   fmt::format("{} is no model with a source", base::quoted(text))};
    if (target.id.empty()) target.id = other->id;
    ref = fetch::parse_model_ref(other->repo);
    if (!ref.ok()) return ref.error();
  }
  target.ref = ref.take();
  return ok_status();
}

Status check_target(const CatalogContent& content, const DownloadRequest& request,
                    const DownloadTarget& target) {
  if (!contract::is_model_id(target.id))
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} is not a model id", base::quoted(target.id))};
  if (target.entry.path == builtin_entry().path)
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} is part of the program: nothing to download", target.id)};
  // A neighbour may have what no source is known for.
  if (target.ref != fetch::ModelRef{} || !request.neighbours.empty()) return ok_status();
  if (content.find(target.id) == nullptr) return no_such_model(content, target.id);
  return Error{
      ErrorCode::InvalidArgument,
      fmt::format("the catalog does not say where {} comes from: name it with --ref", target.id)};
}

}  // namespace

Status check_source(const CatalogContent& content, const std::string& id,
                    const fetch::ModelRef& ref) {
  const ModelEntry* entry = content.find(id);
  if (entry == nullptr || !entry->downloaded || ref == fetch::ModelRef{} ||
      is_same_place(entry->repo, ref))
    return ok_status();
  return Error{ErrorCode::Conflict,
               fmt::format("{} is another model here, from {}: name the new one differently (--id "
                           "NAME), or remove that one first (`llorch-pool models rm {}`)",
                           id, entry->repo.empty() ? entry->path : entry->repo, id)};
}

Result<DownloadTarget> find_target(const base::Home& home, const DownloadRequest& request,
                                   const FindOccupant& also) {
  const Result<CatalogContent> content = ModelCatalog(home.catalog_file()).read();
  if (!content.ok()) return content.error();
  const Names names{*content};
  DownloadTarget target;
  target.id = request.id;
  if (const Status found = find_source(names, request, target); !found.ok()) return found.error();
  if (target.id.empty()) {
    const FindOccupant here = find_occupants(*content, home);
    target.id = choose_model_id(target.ref, [&](const std::string& id) {
      std::optional<std::string> other = also ? also(id) : std::nullopt;
      return other ? other : here(id);
    });
  }
  if (const ModelEntry* entry = names.find(target.id)) target.entry = *entry;
  target.entry.id = target.id;
  if (const Status good = check_target(*content, request, target); !good.ok()) return good.error();
  if (const Status ours = check_source(*content, target.id, target.ref); !ours.ok())
    return ours.error();
  return target;
}

Result<DownloadRequest> settle_download(const base::Home& home, DownloadRequest request,
                                        const FindOccupant& also) {
  const Result<DownloadTarget> target = find_target(home, request, also);
  if (!target.ok()) return target.error();
  request.id = target->id;
  if (target->ref != fetch::ModelRef{}) request.ref = target->ref.text();
  return request;
}

}  // namespace llorch::catalog
