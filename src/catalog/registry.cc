#include "catalog/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/file_lock.h"
#include "base/utf8.h"
#include "catalog/describe.h"
#include "catalog/known_models.h"
#include "contract/model_entry.h"
#include "fetch/chunks.h"
#include "fetch/model_ref.h"

namespace llorch::catalog {
namespace {

namespace fs = std::filesystem;
using contract::ModelEntry;

Status refuse_builtin(std::string_view id) {
  if (id != contract::kBuiltinModel) return ok_status();
  return Error{ErrorCode::Conflict,
               fmt::format("{} is part of the program: it can be run, not changed or removed", id)};
}

Status check_id(std::string_view id) {
  if (contract::is_model_id(id)) return refuse_builtin(id);
  return Error{ErrorCode::InvalidArgument,
               fmt::format("{} is no model id: expected 1 to 128 letters, digits, '.', '_' or '-', "
                           "beginning with a letter or a digit",
                           base::quoted(id))};
}

Status check_unused(std::string_view id, const FindUse& find_use) {
  const std::string use = find_use ? find_use(id) : std::string();
  if (use.empty()) return ok_status();
  return Error{ErrorCode::Conflict, use};
}

Status check_text(std::string_view what, std::string_view text) {
  if (base::is_valid_utf8(text)) return ok_status();
  return Error{ErrorCode::InvalidArgument,
               fmt::format("the {} {} is not UTF-8 text", what, base::quoted(text))};
}

// As it is written in the catalog; "" stays "".
Result<std::string> canonical_repo(const std::string& repo) {
  if (repo.empty()) return repo;
  const Result<fetch::ModelRef> ref = fetch::parse_model_ref(repo);
  if (!ref.ok()) return ref.error();
  if (ref->provider != fetch::Provider::CatalogId) return ref->text();
  return Error{ErrorCode::InvalidArgument,
               fmt::format("the repo {} is no place to fetch a model from: expected hf:org/repo, "
                           "npm:package, https://… or file:/path",
                           base::quoted(repo))};
}

// Reads the files at `path` into the entry; what the user says the architecture is must not differ
// from what they say.
Status read_files(const std::string& path, std::string_view architecture, ModelEntry& entry) {
  ModelEntry described = entry;
  if (Status read = describe_files(path, described); !read.ok()) {
    // Whoever named the path named something that is no model.
    const ErrorCode code = read.error().code;
    const bool is_no_model = code == ErrorCode::Corrupt || code == ErrorCode::Unsupported;
    return Error{is_no_model ? ErrorCode::InvalidArgument : code, read.error().message};
  }
  if (described.architecture.empty()) described.architecture = architecture;
  if (!architecture.empty() && described.architecture != architecture) {
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("the architecture was said to be {}, but {} says {}: leave it out, the "
                    "files are read",
                    base::quoted(architecture), described.path,
                    base::quoted(described.architecture))};
  }
  entry = std::move(described);
  return ok_status();
}

// What is known about a model of that id before its files are here.
ModelEntry entry_of_known(std::string_view id) {
  for (ModelEntry& known : known_models()) {
    if (known.id == id) return std::move(known);
  }
  ModelEntry entry;
  entry.id = id;
  return entry;
}

Result<ModelEntry> make_entry(const RegisterRequest& request) {
  if (Status good = check_id(request.id); !good.ok()) return good.error();
  if (Status good = check_text("name", request.name); !good.ok()) return good.error();
  if (Status good = check_text("architecture", request.architecture); !good.ok())
    return good.error();
  const Result<std::string> repo = canonical_repo(request.repo);
  if (!repo.ok()) return repo.error();
  ModelEntry entry;
  // Files that are here need not be those of the model that is known by this name.
  if (request.path.empty() && repo->empty()) entry = entry_of_known(request.id);
  entry.id = request.id;
  if (!request.name.empty()) entry.name = request.name;
  if (!repo->empty()) entry.repo = *repo;
  if (!request.path.empty()) {
    if (Status read = read_files(request.path, request.architecture, entry); !read.ok())
      return read.error();
  } else {
    if (!request.architecture.empty()) entry.architecture = request.architecture;
    if (entry.repo.empty()) {
      return Error{
          ErrorCode::InvalidArgument,
          fmt::format("{} has neither a path nor a repo: say where its files are, or where "
                      "they come from",
                      request.id)};
    }
  }
  if (entry.name.empty()) entry.name = request.id;
  return entry;
}

Status apply(const UpdateRequest& request, ModelEntry& entry) {
  if (request.name) {
    if (Status good = check_text("name", *request.name); !good.ok()) return good;
    entry.name = request.name->empty() ? entry.id : *request.name;
  }
  if (request.repo) {
    Result<std::string> repo = canonical_repo(*request.repo);
    if (!repo.ok()) return repo.error();
    entry.repo = repo.take();
  }
  const std::string architecture = request.architecture.value_or("");
  if (Status good = check_text("architecture", architecture); !good.ok()) return good;
  const std::string path = request.path.value_or(entry.path);
  const bool wants_files = request.downloaded.value_or(request.path.has_value());
  if (wants_files) {
    if (path.empty()) {
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("nothing says where the files of {0} are: give --path, or run "
                               "`llorch-pool models download {0}`",
                               entry.id)};
    }
    return read_files(path, architecture, entry);
  }
  if (request.downloaded) entry.downloaded = false;
  if (request.path) entry.path = path;
  if (architecture.empty() || architecture == entry.architecture) return ok_status();
  if (entry.downloaded) return read_files(path, architecture, entry);  // says what contradicts
  entry.architecture = architecture;
  return ok_status();
}

// A file below the folder that a downloader holds now.
bool is_being_written(const fs::path& folder) {
  std::error_code error;
  const auto options = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator at(folder, options, error), end; !error && at != end;
       at.increment(error)) {
    if (at->path().extension() == ".lock" && base::FileLock::is_held(at->path())) return true;
  }
  return false;
}

Status check_folder_is_free(const CatalogContent& content, std::string_view id,
                            const fs::path& folder) {
  for (const ModelEntry& other : content.models) {
    if (other.id != id && !other.path.empty() && is_inside(other.path, folder)) {
      return Error{ErrorCode::Conflict,
                   fmt::format("the files of {} are also those of {}: unregister "
                               "or remove {} first",
                               id, other.id, other.id)};
    }
  }
  if (!is_being_written(folder)) return ok_status();
  return Error{ErrorCode::Conflict, fmt::format("{} is being downloaded: end that first", id)};
}

}  // namespace

bool is_inside(const fs::path& path, const fs::path& folder) {
  std::error_code error;
  const fs::path inner = fs::weakly_canonical(path, error);
  if (error) return false;
  const fs::path outer = fs::weakly_canonical(folder, error);
  if (error || inner == outer) return false;
  const auto [end, unused] = std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end());
  return end == outer.end();
}

Result<ModelEntry> register_model(const ModelCatalog& catalog, const RegisterRequest& request) {
  const Result<ModelEntry> entry = make_entry(request);
  if (!entry.ok()) return entry.error();
  const Status added = catalog.update([&entry](CatalogContent& content) -> Status {
    if (content.find(entry->id) != nullptr) {
      return Error{
          ErrorCode::Conflict,
          fmt::format("{} is registered already: update it, or unregister it first", entry->id)};
    }
    content.put(*entry);
    return ok_status();
  });
  if (!added.ok()) return added.error();
  return catalog.find(request.id);
}

Result<ModelEntry> update_model(const ModelCatalog& catalog, std::string_view id,
                                const UpdateRequest& request, const FindUse& find_use) {
  if (Status good = refuse_builtin(id); !good.ok()) return good.error();
  if (request.path || request.downloaded) {
    if (Status unused = check_unused(id, find_use); !unused.ok()) return unused.error();
  }
  const Status updated = catalog.update([&](CatalogContent& content) -> Status {
    ModelEntry* entry = content.find(id);
    if (entry == nullptr) return no_such_model(content, id);
    return apply(request, *entry);
  });
  if (!updated.ok()) return updated.error();
  return catalog.find(id);
}

Result<ModelEntry> remove_model(const ModelCatalog& catalog, const base::Home& home,
                                std::string_view id, bool files, const FindUse& find_use) {
  if (Status good = check_id(id); !good.ok()) return good.error();
  if (Status unused = check_unused(id, find_use); !unused.ok()) return unused.error();
  const fs::path folder = home.models() / id;
  std::error_code error;
  const bool has_folder =
      files && fs::symlink_status(folder, error).type() != fs::file_type::not_found;
  ModelEntry removed;
  removed.id = id;
  const Status gone = catalog.update([&](CatalogContent& content) -> Status {
    const ModelEntry* entry = content.find(id);
    if (entry == nullptr && !has_folder) return no_such_model(content, id);
    if (has_folder) {
      if (Status free = check_folder_is_free(content, id, folder); !free.ok()) return free;
    }
    if (entry != nullptr) removed = *entry;
    content.remove(id);
    return ok_status();
  });
  if (!gone.ok()) return gone.error();
  fetch::remove_chunks(home.chunks(), id);  // hashes of files no longer known
  if (!has_folder) return removed;
  fs::remove_all(folder, error);  // a link goes, what it points to stays
  if (!error) return removed;
  return Error{ErrorCode::Unavailable,
               fmt::format("{} is out of the catalog, but {} could not be deleted: {}", id,
                           folder.string(), error.message())};
}

}  // namespace llorch::catalog
