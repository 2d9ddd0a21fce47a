#include "catalog/model_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/ascii.h"
#include "catalog/known_models.h"
#include "catalog/under_way.h"
#include "http/url.h"

namespace llorch::catalog {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kIdBytesMax = 128;
constexpr std::size_t kHashDigitsMin = 16;
constexpr int kNumberMax = 1000;

// Folders of caches and hubs, and names that half of all weight files have.
constexpr std::array<std::string_view, 20> kSaysNothing = {
    "",       "/",       ".",        "..",     "main",         "master",       "resolve",
    "raw",    "blob",    "blobs",    "refs",   "snapshots",    "sha256",       "model",
    "models", "weights", "download", "latest", "consolidated", "pytorch_model"};
constexpr std::array<std::string_view, 6> kWeightEndings = {".gguf", ".safetensors", ".bin",
                                                            ".pt",   ".pth",         ".tgz"};

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

// "model-00001-of-00003": one of the parts of something.
bool is_shard(std::string_view text) {
  return text.starts_with("model-0") || text.starts_with("pytorch_model-0");
}

bool says_something(std::string_view part) {
  return !is_hash_name(part) && !is_shard(part) &&
         std::find(kSaysNothing.begin(), kSaysNothing.end(), base::ascii_lower(part)) ==
             kSaysNothing.end();
}

std::string_view without_ending(std::string_view file) {
  for (const std::string_view ending : kWeightEndings) {
    if (file.size() > ending.size() && file.ends_with(ending))
      return file.substr(0, file.size() - ending.size());
  }
  return file;
}

// "https://host/a/b%20c?x" → host, "a", "b c".
std::vector<std::string> parts_of_url(std::string_view url) {
  url = url.substr(0, url.find_first_of("?#"));
  const std::size_t scheme = url.find("://");
  if (scheme != std::string_view::npos) url.remove_prefix(scheme + 3);
  std::vector<std::string> parts;
  while (!url.empty()) {
    const std::size_t slash = std::min(url.find('/'), url.size());
    const Result<std::string> part = http::percent_decode(url.substr(0, slash));
    parts.push_back(part.ok() ? *part : std::string(url.substr(0, slash)));
    url.remove_prefix(std::min(url.size(), slash + 1));
  }
  return parts;
}

std::string last_telling(const std::vector<std::string>& parts) {
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    std::string_view text = *part;
    // Hugging Face's own cache: "models--org--repo".
    constexpr std::string_view kCached = "models--";
    if (text.starts_with(kCached))
      text.remove_prefix(std::max(kCached.size(), text.rfind("--") + 2));
    if (says_something(text)) return std::string(text);
  }
  return "model";
}

std::vector<std::string> parts_of(const fetch::ModelRef& ref) {
  if (ref.provider == fetch::Provider::Https) {
    std::vector<std::string> parts = parts_of_url(ref.location);
    if (!parts.empty()) parts.back() = without_ending(parts.back());
    return parts;
  }
  std::vector<std::string> parts;
  for (const fs::path& part : fs::path(ref.location)) parts.push_back(part.string());
  if (ref.provider == fetch::Provider::File && !parts.empty())
    parts.back() = without_ending(parts.back());
  return parts;
}

// Who it belongs to: the part in front of the one that names it. Empty: nobody says.
std::string owner_of(const fetch::ModelRef& ref) {
  std::vector<std::string> parts = parts_of(ref);
  const std::string name = last_telling(parts);
  while (!parts.empty() && parts.back() != name) parts.pop_back();
  if (!parts.empty()) parts.pop_back();
  std::string owner = last_telling(parts);
  if (owner == "model") return {};
  while (owner.starts_with('@')) owner.erase(0, 1);  // npm's scopes
  return owner;
}

std::string with_file(std::string text, const fetch::ModelRef& ref) {
  if (ref.file.empty()) return text;
  const std::string_view file = std::string_view(ref.file).substr(ref.file.rfind('/') + 1);
  return text + "-" + std::string(without_ending(file));
}

}  // namespace

bool is_hash_name(std::string_view text) {
  for (const std::string_view prefix : {"sha256-", "sha256:"})
    if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
  return text.size() >= kHashDigitsMin &&
         text.find_first_not_of("0123456789abcdefABCDEF") == std::string_view::npos;
}

std::string make_model_id(std::string_view text) {
  std::string id;
  for (const char c : base::ascii_lower(text)) id += is_plain(c) ? c : '-';
  while (!id.empty() && (id.front() == '-' || id.front() == '.' || id.front() == '_'))
    id.erase(id.begin());
  id.resize(std::min(id.size(), kIdBytesMax));
  return id.empty() ? "model" : id;
}

std::string telling_part(const fs::path& path) {
  std::vector<std::string> parts;
  for (const fs::path& part : path) parts.push_back(part.string());
  return last_telling(parts);
}

std::string derive_model_name(const fetch::ModelRef& ref) {
  return last_telling(parts_of(ref));
}

std::string derive_model_id(const fetch::ModelRef& ref) {
  return make_model_id(with_file(derive_model_name(ref), ref));
}

bool is_same_source(const fetch::ModelRef& a, const fetch::ModelRef& b) {
  return a.provider == b.provider && a.location == b.location && a.file == b.file;
}

bool is_same_place(std::string_view text, const fetch::ModelRef& ref) {
  const Result<fetch::ModelRef> other = fetch::parse_model_ref(text);
  return other.ok() && other->provider == ref.provider && other->location == ref.location;
}

bool is_same_source(std::string_view text, const fetch::ModelRef& ref) {
  const Result<fetch::ModelRef> other = fetch::parse_model_ref(text);
  return other.ok() && is_same_source(*other, ref);
}

FindOccupant find_occupants(const CatalogContent& content, const base::Home& home) {
  return [&content, models = home.models(),
          known = known_models()](const std::string& id) -> std::optional<std::string> {
    if (const contract::ModelEntry* entry = content.find(id)) return entry->repo;
    if (const std::optional<UnderWay> other = load_under_way(models / id)) return other->ref;
    for (const contract::ModelEntry& entry : known)
      if (entry.id == id) return entry.repo;
    return std::nullopt;
  };
}

std::string choose_model_id(const fetch::ModelRef& ref, const FindOccupant& occupant) {
  const std::string plain = derive_model_id(ref);
  const std::string owner = owner_of(ref);
  const std::string owned =
      owner.empty() ? plain : make_model_id(with_file(owner + "-" + derive_model_name(ref), ref));
  std::string free;
  for (int i = 0; i < kNumberMax; ++i) {
    const std::string suffix = i < 2 ? std::string() : fmt::format("-{}", i);
    std::string id = i == 0 ? plain : owned;
    id.resize(std::min(id.size(), kIdBytesMax - suffix.size()));
    id += suffix;
    const std::optional<std::string> who = occupant(id);
    if (who && is_same_source(*who, ref)) return id;
    if (!who && free.empty()) free = id;
    if (!who && i >= 1) break;  // numbers are given out in order
  }
  return free.empty() ? plain : free;
}

}  // namespace llorch::catalog
