// The models that a command means: through the manager that is named or runs, else in the files of
// this home. Private to cli/.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "catalog/registry.h"
#include "cli/find_pool.h"
#include "cli/pool_command.h"
#include "contract/model_entry.h"

namespace llorch::cli {

struct ListedModel {
  contract::ModelEntry entry;
  std::string state;  // "ready", "not_downloaded", "changed", "missing", "unsupported", …
};

struct ModelListing {
  std::string pool_id;                      // empty: not known
  std::vector<ListedModel> models;          // the built-in one first
  std::vector<contract::ModelEntry> known;  // can be fetched by name and are not among them
};

struct RemovedModel {
  bool files_deleted = false;
  std::string files_kept_at;  // empty: nowhere
};

class ModelStore {
 public:
  // Unavailable when a manager is named and does not answer.
  static Result<ModelStore> open(const PoolContext& context);

  // The manager, null where the files are used.
  PoolClient* client() { return client_ ? &*client_ : nullptr; }

  Result<ModelListing> list();
  Result<ListedModel> find(std::string_view id);
  // A path means one of the manager's host; relative ones are made absolute where that is ours.
  Result<contract::ModelEntry> add(catalog::RegisterRequest request);
  Result<contract::ModelEntry> update(std::string_view id, catalog::UpdateRequest request);
  // Refused while a worker uses the model.
  Result<RemovedModel> remove(std::string_view id, bool files);

 private:
  explicit ModelStore(const PoolContext& context) : context_(context) {}
  catalog::ModelCatalog catalog() const;
  void make_absolute(std::string& path) const;

  const PoolContext& context_;
  std::optional<PoolClient> client_;
};

// "/v2/models/ID" with `rest` behind it.
std::string model_path(std::string_view id, std::string_view rest = "");

}  // namespace llorch::cli
