// ModelCatalog: the file that says which models this host has or knows where to get.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "contract/model_entry.h"

namespace llorch::catalog {

struct CatalogContent {
  std::string pool_id;                       // made once, when the catalog is first written
  std::vector<contract::ModelEntry> models;  // in the order of their ids

  const contract::ModelEntry* find(std::string_view id) const;
  contract::ModelEntry* find(std::string_view id);
  void put(contract::ModelEntry entry);  // adds or replaces
  bool remove(std::string_view id);      // false: was not there
};

// Any number of processes and threads use one file: a reader sees the old content or the new, a
// writer works on the newest and loses nobody's change. Holds no state but the path.
class ModelCatalog {
 public:
  explicit ModelCatalog(std::filesystem::path file) : file_(std::move(file)) {}

  const std::filesystem::path& file() const { return file_; }

  // What the file says; nothing when there is no file yet. Corrupt with the place when it is
  // damaged: it is then left alone, never overwritten.
  Result<CatalogContent> read() const;

  // One registered model. NotFound names similar ids and what to run.
  Result<contract::ModelEntry> find(std::string_view id) const;

  // Calls `change` on the newest content under the lock and writes what it leaves; an error it
  // returns writes nothing. Waits for other writers, Unavailable after `kLockPatience`. Makes the
  // folder when it is not there.
  Status update(const std::function<Status(CatalogContent& content)>& change) const;

 private:
  std::filesystem::path file_;
};

}  // namespace llorch::catalog
