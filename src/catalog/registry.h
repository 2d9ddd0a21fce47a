// What registering, updating and removing a model does to the catalog: one place for the command
// line and the API.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/home.h"
#include "base/result.h"
#include "catalog/model_catalog.h"
#include "contract/fields.h"
#include "contract/model_entry.h"

namespace llorch::catalog {

// Everything but the id may be empty, but for one of repo and path where the id is no known
// model's. With a path the files speak for themselves; an architecture that contradicts them is an
// error.
struct RegisterRequest {
  std::string id;
  std::string name;
  std::string repo;          // a model_ref to fetch it from
  std::string architecture;  // of a model that is not here yet
  std::string path;          // files that are here already: used in place
};
inline constexpr contract::FieldRule kModelText{.bytes = {0, 1024}};
inline constexpr contract::FieldRule kModelPath{.bytes = {0, 4096}};
template <class V, contract::Described<RegisterRequest> T>
void describe(V& v, T& request) {
  v("id", request.id,
    {.must = true,
     .bytes = {1, 128},
     .pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*(:[A-Za-z0-9][A-Za-z0-9._-]*)?$"});
  v("name", request.name, kModelText);
  v("repo", request.repo, kModelText);
  v("architecture", request.architecture, kModelText);
  v("path", request.path, kModelPath);
}

// Adds a model. Conflict when the id is taken, InvalidArgument for a bad id or repo, and whatever
// describe_files says about the path.
Result<contract::ModelEntry> register_model(const ModelCatalog& catalog,
                                            const RegisterRequest& request);

// Who uses a model now, which must not lose its files or its place then: a sentence that says who
// and what to do, empty when nobody does. Null: nobody ever does.
using FindUse = std::function<std::string(std::string_view id)>;

// What is absent stays. A path, or `downloaded` true, has the files read again: they must be there.
// `downloaded` false forgets no fact, so that true can take it back. Both are a Conflict while the
// model is used.
struct UpdateRequest {
  std::optional<std::string> name;
  std::optional<std::string> repo;
  std::optional<std::string> architecture;
  std::optional<std::string> path;
  std::optional<bool> downloaded;
};
template <class V, contract::Described<UpdateRequest> T>
void describe(V& v, T& request) {
  v("name", request.name, kModelText);
  v("repo", request.repo, kModelText);
  v("architecture", request.architecture, kModelText);
  v("path", request.path, kModelPath);
  v("downloaded", request.downloaded);
}
Result<contract::ModelEntry> update_model(const ModelCatalog& catalog, std::string_view id,
                                          const UpdateRequest& request,
                                          const FindUse& find_use = {});

// Takes the model out of the catalog; a Conflict while it is used. With `files` its own folder,
// Home::models()/<id>, goes too, also what a download that was cut off left there without an entry;
// files elsewhere are never deleted. Conflict, with nothing changed, while such a download runs or
// another entry's files are in that folder. Returns the entry as it was.
Result<contract::ModelEntry> remove_model(const ModelCatalog& catalog, const base::Home& home,
                                          std::string_view id, bool files,
                                          const FindUse& find_use = {});

// Whether a path lies inside a folder, links followed. A path is not inside itself.
bool is_inside(const std::filesystem::path& path, const std::filesystem::path& folder);

}  // namespace llorch::catalog
