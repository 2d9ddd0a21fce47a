#include "catalog/leftovers.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>

#include "base/file_lock.h"
#include "catalog/model_catalog.h"
#include "catalog/model_names.h"
#include "catalog/registry.h"
#include "catalog/under_way.h"

namespace llorch::catalog {
namespace {

namespace fs = std::filesystem;
using contract::ModelEntry;

constexpr std::string_view kPart = ".part";

bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::symlink_status(path, error).type() == fs::file_type::directory;
}

// Everything below a path, the path itself first; links are not followed.
void for_each_below(const fs::path& path, const std::function<void(const fs::path&)>& call) {
  call(path);
  if (!is_folder(path)) return;
  std::error_code error;
  for (fs::recursive_directory_iterator at(path, error), end; !error && at != end;
       at.increment(error))
    call(at->path());
}

std::int64_t bytes_below(const fs::path& path) {
  std::int64_t bytes = 0;
  for_each_below(path, [&](const fs::path& one) {
    struct stat info {};
    if (::lstat(one.c_str(), &info) == 0) bytes += std::int64_t{info.st_blocks} * 512;
  });
  return bytes;
}

// A file that a transfer writes, or wrote: itself, its state or its lock.
bool is_part(const fs::path& path) {
  const std::string file = path.filename().string();
  return file.ends_with(kPart) || file.ends_with(".part.json") || file.ends_with(".part.json.new");
}

bool has_parts(const fs::path& folder) {
  bool found = false;
  for_each_below(folder, [&](const fs::path& one) { found = found || is_part(one); });
  return found;
}

// "model.gguf.part" and its companions are "model.gguf"'s.
fs::path target_of(const fs::path& part) {
  const std::string text = part.string();
  return text.substr(0, text.rfind(kPart));
}

// The catalog, and where its models lie, links followed once for all of them.
class Used {
 public:
  explicit Used(const CatalogContent& content) : content_(content) {
    for (const ModelEntry& entry : content.models) {
      if (entry.path.empty()) continue;
      paths_.insert(real_path(entry.path));
      paths_.insert(entry.path);  // where a link cannot be followed now
    }
  }

  const ModelEntry* entry(const std::string& id) const { return content_.find(id); }

  // Whether a model is this path or lies below it.
  bool is_used(const fs::path& path) const {
    return holds_some(real_path(path)) || holds_some(path.string());
  }

 private:
  bool holds_some(const std::string& path) const {
    if (paths_.contains(path)) return true;
    const auto below = paths_.lower_bound(path + "/");
    return below != paths_.end() && below->starts_with(path + "/");
  }
  static std::string real_path(const fs::path& path) {
    std::error_code error;
    const fs::path real = fs::weakly_canonical(path, error);
    return error ? path.string() : real.string();
  }

  const CatalogContent& content_;
  std::set<std::string> paths_;
};

// One folder of Home::models(), looked at against the catalog.
class ModelFolder {
 public:
  ModelFolder(const Used& used, fs::path folder)
      : used_(used), folder_(std::move(folder)), model_(folder_.filename().string()) {
    if (const std::optional<UnderWay> was = load_under_way(folder_)) ref_ = was->ref;
    if (const ModelEntry* entry = used_.entry(model_); entry != nullptr && ref_.empty())
      ref_ = entry->repo;
  }

  std::vector<Leftover> find() {
    const std::vector<fs::path> children = children_of(folder_);
    bool keeps_something = false;
    for (const fs::path& child : children) {
      if (!is_note(child)) keeps_something = look_at(child) || keeps_something;
    }
    // A download that was cut off, or nothing but what one writes about itself.
    const bool has_nothing_else = found_.empty() && !children.empty();
    if (!keeps_something && (has_nothing_else || load_under_way(folder_))) {
      found_.clear();
      add(LeftoverKind::UnfinishedDownload, folder_);
    }
    return std::move(found_);
  }

 private:
  static bool is_note(const fs::path& child) {
    const std::string file = child.filename().string();
    return file == kDownloadLockName || file.starts_with(kUnderWayName);
  }

  // True: it stays.
  bool look_at(const fs::path& child) {
    if (used_.is_used(child)) {
      find_parts(child);
      return true;
    }
    const std::string file = child.filename().string();
    if (file.ends_with(".new") || file.find(".tgz") != std::string::npos) {
      add(LeftoverKind::Package, child);
      return false;
    }
    if (!is_folder(child)) return true;  // somebody's own
    if (has_parts(child)) {
      add(LeftoverKind::UnfinishedDownload, child);
      return false;
    }
    // A revision of ours: the entry has another one, or its name can only be a commit's.
    const ModelEntry* entry = used_.entry(model_);
    const bool is_ours = is_hash_name(file) || load_under_way(folder_) ||
                         (entry != nullptr && is_inside(entry->path, folder_));
    if (!is_ours) return true;
    add(load_under_way(folder_) ? LeftoverKind::UnfinishedDownload : LeftoverKind::OldRevision,
        child);
    return false;
  }

  // A whole model's folder, where a repair was cut off.
  void find_parts(const fs::path& folder) {
    for_each_below(folder, [&](const fs::path& one) {
      if (is_part(one) && !base::FileLock::is_held(target_of(one).native() + ".lock"))
        add(LeftoverKind::PartOfFile, one);
    });
  }

  void add(LeftoverKind kind, const fs::path& path) {
    found_.push_back({kind, model_, path, ref_, bytes_below(path)});
  }

  const Used& used_;
  const fs::path folder_;
  const std::string model_;
  std::string ref_;
  std::vector<Leftover> found_;
};

bool contains(const std::vector<std::string>& all, const std::string& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

// The folders that may hold something, in the order of their names.
std::vector<fs::path> list_folders(const fs::path& models, const std::vector<std::string>& in_use) {
  std::vector<fs::path> folders = children_of(models);
  std::erase_if(folders, [&](const fs::path& folder) {
    return !is_folder(folder) || contains(in_use, folder.filename().string());
  });
  return folders;
}

std::vector<Leftover> find_hashes(const base::Home& home, const CatalogContent& content) {
  std::vector<Leftover> found;
  for (const fs::path& file : children_of(home.chunks())) {
    const std::string model = file.stem().string();
    const bool is_busy = base::FileLock::is_held(home.models() / model / kDownloadLockName);
    if (file.extension() != ".json" || content.find(model) != nullptr || is_busy) continue;
    found.push_back({LeftoverKind::Hashes, model, file, {}, bytes_below(file)});
  }
  return found;
}

Status remove_all_of(const std::vector<Leftover>& leftovers, std::vector<Leftover>& removed) {
  for (const Leftover& leftover : leftovers) {
    std::error_code error;
    fs::remove_all(leftover.path, error);
    if (error) {
      return Error{ErrorCode::Unavailable, fmt::format("{} could not be removed: {}",
                                                       leftover.path.string(), error.message())};
    }
    removed.push_back(leftover);
  }
  return ok_status();
}

}  // namespace

std::int64_t total_bytes(const std::vector<Leftover>& leftovers) {
  std::int64_t sum = 0;
  for (const Leftover& leftover : leftovers) sum += leftover.bytes;
  return sum;
}

Result<std::vector<Leftover>> find_leftovers(const base::Home& home,
                                             const std::vector<std::string>& in_use) {
  const Result<CatalogContent> content = ModelCatalog(home.catalog_file()).read();
  if (!content.ok()) return content.error();
  std::vector<Leftover> all;
  const Used used(*content);
  for (const fs::path& folder : list_folders(home.models(), in_use)) {
    if (base::FileLock::is_held(folder / kDownloadLockName)) continue;
    std::vector<Leftover> found = ModelFolder(used, folder).find();
    std::move(found.begin(), found.end(), std::back_inserter(all));
  }
  std::vector<Leftover> hashes = find_hashes(home, *content);
  std::move(hashes.begin(), hashes.end(), std::back_inserter(all));
  return all;
}

Result<std::vector<Leftover>> remove_leftovers(const base::Home& home,
                                               const std::vector<std::string>& in_use) {
  std::vector<Leftover> removed;
  const ModelCatalog catalog(home.catalog_file());
  const Result<std::vector<Leftover>> before = find_leftovers(home, in_use);
  if (!before.ok()) return before.error();
  for (const fs::path& folder : list_folders(home.models(), in_use)) {
    const bool has_some = std::any_of(before->begin(), before->end(), [&](const Leftover& one) {
      return one.model == folder.filename() && one.kind != LeftoverKind::Hashes;
    });
    if (!has_some) continue;
    const auto lock =
        base::FileLock::acquire(folder / kDownloadLockName, std::chrono::milliseconds(0));
    if (!lock.ok()) continue;  // a download began
    // As it is now: one may have ended between the look and the lock.
    const Result<CatalogContent> content = catalog.read();
    if (!content.ok()) return content.error();
    std::vector<Leftover> found = ModelFolder(Used(*content), folder).find();
    const Status gone = remove_all_of(found, removed);
    (*lock)->remove_file();
    if (!gone.ok()) return gone.error();
    remove_under_way(folder);
    std::error_code ignored;
    fs::remove(folder, ignored);  // when it is empty
  }
  const Result<CatalogContent> content = catalog.read();
  if (!content.ok()) return content.error();
  if (const Status gone = remove_all_of(find_hashes(home, *content), removed); !gone.ok())
    return gone.error();
  return removed;
}

}  // namespace llorch::catalog
