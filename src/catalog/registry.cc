#include "catalog/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/utf8.h"
#include "catalog/chunks.h"
#include "catalog/describe.h"
#include "catalog/known_models.h"
#include "catalog/model_ref.h"

namespace llorch::catalog {
namespace {

namespace fs = std::filesystem;

Error builtin_error(std::string_view id) {
  return {ErrorCode::Conflict,
          fmt::format("{} is part of the program: it can be run, not changed or removed", id)};
}

bool is_builtin(std::string_view id) {
  return id == builtin_entry().id;
}

Status check_repo(const std::string& repo) {
  if (repo.empty()) return ok_status();
  const Result<ModelRef> ref = parse_model_ref(repo);
  if (!ref.ok()) return ref.error().in("repo");
  if (ref->provider == Provider::CatalogId) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("repo: {} names no place; expected hf:org/repo, npm:package, "
                             "https://… or file:/path",
                             base::quoted(repo))};
  }
  return ok_status();
}

// What is known about a model of that name before its files are here.
contract::ModelEntry entry_of_known(std::string_view id) {
  const std::vector<contract::ModelEntry> known = known_models();
  const auto found =
      std::find_if(known.begin(), known.end(), [id](const auto& entry) { return entry.id == id; });
  contract::ModelEntry entry = found != known.end() ? *found : contract::ModelEntry();
  entry.id = id;
  return entry;
}

bool is_below(const fs::path& path, const fs::path& folder) {
  std::error_code error;
  const fs::path inner = fs::weakly_canonical(path, error);
  if (error) return false;
  const fs::path outer = fs::weakly_canonical(folder, error);
  if (error) return false;
  const auto [end, unused] = std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end());
  return end == outer.end() && inner != outer;
}

}  // namespace

Result<contract::ModelEntry> register_model(const ModelCatalog& catalog,
                                            const RegisterRequest& request) {
  if (!contract::is_model_id(request.id)) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} is no model id: expected 1 to 128 of A-Z a-z 0-9 . _ -, beginning "
                             "with a letter or digit",
                             base::quoted(request.id))};
  }
  if (is_builtin(request.id)) return builtin_error(request.id);
  if (Status good = check_repo(request.repo); !good.ok()) return good.error();
  contract::ModelEntry entry = entry_of_known(request.id);
  if (!request.name.empty()) entry.name = request.name;
  if (!request.repo.empty()) entry.repo = request.repo;
  if (!request.architecture.empty()) entry.architecture = request.architecture;
  if (!request.path.empty()) {
    if (Status described = describe_files(request.path, entry); !described.ok())
      return described.error();
  } else if (entry.repo.empty()) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} has neither a path nor a repo: say where its files are, or where "
                             "they come from",
                             request.id)};
  }
  if (entry.name.empty()) entry.name = request.id;
  Status added = catalog.update([&entry](CatalogContent& content) -> Status {
    if (content.find(entry.id) != nullptr) {
      return Error{ErrorCode::Conflict,
                   fmt::format("{} is registered already; update or unregister it", entry.id)};
    }
    content.put(entry);
    return ok_status();
  });
  if (!added.ok()) return added.error();
  return catalog.find(entry.id);
}

Result<contract::ModelEntry> update_model(const ModelCatalog& catalog, std::string_view id,
                                          const UpdateRequest& request) {
  if (is_builtin(id)) return builtin_error(id);
  if (request.repo) {
    if (Status good = check_repo(*request.repo); !good.ok()) return good.error();
  }
  Status updated = catalog.update([&](CatalogContent& content) -> Status {
    contract::ModelEntry* entry = content.find(id);
    if (entry == nullptr) return no_such_model(content, id);
    if (request.name) entry->name = *request.name;
    if (request.repo) entry->repo = *request.repo;
    if (request.architecture) entry->architecture = *request.architecture;
    const std::string path = request.path.value_or(entry->path);
    if (request.downloaded == false) {
      entry->downloaded = false;
      entry->path = request.path.value_or("");
    } else if (request.downloaded == true || request.path) {
      if (path.empty()) {
        return Error{ErrorCode::InvalidArgument,
                     fmt::format("{} has no path: give one, or download it", id)};
      }
      return describe_files(path, *entry);
    }
    return ok_status();
  });
  if (!updated.ok()) return updated.error();
  return catalog.find(id);
}

Result<contract::ModelEntry> remove_model(const ModelCatalog& catalog, const base::Home& home,
                                          std::string_view id, bool files) {
  if (is_builtin(id)) return builtin_error(id);
  contract::ModelEntry removed;
  Status gone = catalog.update([&](CatalogContent& content) -> Status {
    const contract::ModelEntry* entry = content.find(id);
    if (entry == nullptr) return no_such_model(content, id);
    removed = *entry;
    content.remove(id);
    return ok_status();
  });
  if (!gone.ok()) return gone.error();
  remove_chunks(home.chunks(), id);
  const fs::path folder = home.models() / std::string(id);
  if (!files || removed.path.empty() || !is_below(removed.path, home.models())) return removed;
  std::error_code error;
  fs::remove_all(is_below(folder, home.models()) && fs::exists(folder, error)
                     ? folder
                     : fs::path(removed.path),
                 error);
  if (error) {
    return Error{ErrorCode::Internal,
                 fmt::format("{} is out of the catalog, but its files could not be removed: {}: {}",
                             id, removed.path, error.message())};
  }
  return removed;
}

}  // namespace llorch::catalog
