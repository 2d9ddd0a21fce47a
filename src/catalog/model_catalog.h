// ModelCatalog: the file that says which models this host has or knows where to get.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "contract/model_entry.h"

namespace llorch::catalog {

inline constexpr std::size_t kCatalogBytesMax = std::size_t{64} << 20;
inline constexpr std::size_t kCatalogModelsMax = 100'000;
inline constexpr std::chrono::milliseconds kLockPatience{30'000};

struct CatalogContent {
  std::string version = "1.0";               // "1.x" is read, and kept as it was
  std::string pool_id;                       // made once, when the catalog is first written
  std::vector<contract::ModelEntry> models;  // in the order of their ids
  json::Object unknown;                      // what a newer program wrote beside these: kept

  const contract::ModelEntry* find(std::string_view id) const;
  contract::ModelEntry* find(std::string_view id);
  void put(contract::ModelEntry entry);  // adds or replaces
  bool remove(std::string_view id);      // false: was not there

  friend bool operator==(const CatalogContent&, const CatalogContent&) = default;
};

// The file's text: one model in a line, so that errors and differences have a place. Parsing is
// Corrupt with that place, or Unsupported for a version that we cannot know.
std::string write_catalog(const CatalogContent& content);
Result<CatalogContent> parse_catalog(std::string_view text);

// NotFound for an id that is not in `content`: names similar ids, and what to run where it is a
// model that can be fetched.
Error no_such_model(const CatalogContent& content, std::string_view id);

// Any number of processes and threads use one file: a reader sees the old content or the new, a
// writer works on the newest and loses nobody's change. Holds no state but the path.
class ModelCatalog {
 public:
  explicit ModelCatalog(std::filesystem::path file) : file_(std::move(file)) {}

  const std::filesystem::path& file() const { return file_; }

  // What the file says; nothing when there is no file yet. Corrupt with the place when it is
  // damaged: it is then left alone, never overwritten.
  Result<CatalogContent> read() const;

  // One registered model, or the built-in one. NotFound names similar ids and what to run.
  Result<contract::ModelEntry> find(std::string_view id) const;

  // Calls `change` on the newest content under the lock and writes what it leaves; an error it
  // returns writes nothing, and so does a change of nothing once the pool has its id. Entries that
  // differ from what they were get the time as their updated_at. Waits for other writers,
  // Unavailable after kLockPatience. Makes the folder when it is not there.
  Status update(const std::function<Status(CatalogContent& content)>& change) const;

 private:
  std::filesystem::path file_;
};

}  // namespace llorch::catalog
