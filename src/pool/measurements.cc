#include "pool/measurements.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "base/file.h"
#include "base/file_lock.h"
#include "base/json.h"
#include "base/version.h"

namespace llorch::pool {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kFileBytesMax = std::size_t{1} << 20;
constexpr std::chrono::milliseconds kLockPatience{5'000};

// Keys and peaks, oldest first. What cannot be read counts as nothing: it is measured again.
std::vector<std::pair<std::string, std::int64_t>> read_all(const fs::path& file) {
  std::vector<std::pair<std::string, std::int64_t>> entries;
  const Result<std::string> text = base::read_text_file(file, kFileBytesMax);
  if (!text.ok()) return entries;
  const Result<json::Value> root = json::parse(*text);
  if (!root.ok() || !root->is_object()) return entries;
  const json::Value* list = root->get_object().if_contains("measurements");
  if (list == nullptr || !list->is_array()) return entries;
  for (const json::Value& item : list->get_array()) {
    if (!item.is_object()) continue;
    const json::Value* key = item.get_object().if_contains("key");
    const json::Value* peak = item.get_object().if_contains("peak_bytes");
    if (key != nullptr && key->is_string() && peak != nullptr && peak->is_int64() &&
        peak->get_int64() > 0) {
      entries.emplace_back(json::view(key->get_string()), peak->get_int64());
    }
  }
  return entries;
}

}  // namespace

std::string measurement_key(const contract::ModelEntry& model, std::string_view backend,
                            const contract::MemoryNeed& need) {
  std::string files = model.path;
  for (const contract::ModelFile& file : model.files)
    files += fmt::format("\n{} {} {}", file.path, file.size, file.sha256);
  return fmt::format("{} {} ctx={} slots={} kv={} {}", base::sha256_hex(files).substr(0, 24),
                     backend, need.context, need.slots, need.kv_type, base::version());
}

std::optional<std::int64_t> find_measurement(const fs::path& file, std::string_view key) {
  for (const auto& [name, peak] : read_all(file)) {
    if (name == key) return peak;
  }
  return std::nullopt;
}

Status keep_measurement(const fs::path& file, std::string_view key, std::int64_t peak_bytes) {
  if (peak_bytes <= 0) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("a peak of {} bytes cannot be right", peak_bytes)};
  }
  if (Status made = base::make_private_folder(file.parent_path()); !made.ok()) return made;
  fs::path lock_file = file;
  lock_file += ".lock";
  const Result<std::unique_ptr<base::FileLock>> lock =
      base::FileLock::acquire(lock_file, kLockPatience);
  if (!lock.ok()) return lock.error();
  std::vector<std::pair<std::string, std::int64_t>> entries = read_all(file);
  std::erase_if(entries, [&](const auto& entry) { return entry.first == key; });
  entries.emplace_back(key, peak_bytes);
  const std::size_t first =
      entries.size() > kMeasurementsMax ? entries.size() - kMeasurementsMax : 0;
  json::Array list;
  for (std::size_t i = first; i < entries.size(); ++i)
    list.push_back(json::Object{{"key", entries[i].first}, {"peak_bytes", entries[i].second}});
  const json::Object root{{"version", "1.0"}, {"measurements", std::move(list)}};
  return base::write_file_atomically(file, json::serialize(root) + "\n");
}

}  // namespace llorch::pool
