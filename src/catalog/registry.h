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
#include "contract/model_entry.h"

namespace llorch::catalog {

// Everything but the id may be empty; with a path, what the files say wins over what the user says.
struct RegisterRequest {
  std::string id;
  std::string name;
  std::string repo;          // a model_ref to fetch it from
  std::string architecture;  // of a model that is not here yet
  std::string path;          // files that are here already: used in place
};

// Adds a model. Conflict when the id is taken, InvalidArgument for a bad id or repo, and whatever
// describe_files says about the path.
Result<contract::ModelEntry> register_model(const ModelCatalog& catalog,
                                            const RegisterRequest& request);

// What is absent stays.
struct UpdateRequest {
  std::optional<std::string> name;
  std::optional<std::string> repo;
  std::optional<std::string> architecture;
  std::optional<std::string> path;
  std::optional<bool> downloaded;  // true: the files are looked at and must be whole
};
Result<contract::ModelEntry> update_model(const ModelCatalog& catalog, std::string_view id,
                                          const UpdateRequest& request);

// Takes the model out of the catalog; with `files`, what is below our own models' folder goes too
// (files used in place never do). Returns the entry as it was.
Result<contract::ModelEntry> remove_model(const ModelCatalog& catalog, const base::Home& home,
                                          std::string_view id, bool files);

}  // namespace llorch::catalog
