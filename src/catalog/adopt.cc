#include "catalog/adopt.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/file.h"
#include "base/utf8.h"
#include "catalog/describe.h"
#include "catalog/model_catalog.h"
#include "catalog/model_names.h"
#include "catalog/registry.h"
#include "catalog/under_way.h"
#include "fetch/chunks.h"

namespace llorch::catalog {
namespace {

namespace fs = std::filesystem;
using contract::ModelEntry;

constexpr std::size_t kManifestBytesMax = std::size_t{1} << 20;
constexpr std::size_t kRefBytesMax = 256;
constexpr std::size_t kModelsMax = 10'000;
constexpr int kDepthMax = 6;
constexpr int kNumberMax = 1000;
constexpr std::string_view kWeightsLayer = "application/vnd.ollama.image.model";
constexpr std::string_view kHubPrefix = "models--";

std::string text_of(const base::Environment& environment, const char* name) {
  const char* value = environment(name);
  return value != nullptr ? value : "";
}

bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

std::int64_t size_of(const fs::path& file) {
  std::error_code error;
  const auto size = fs::file_size(file, error);
  return error ? 0 : static_cast<std::int64_t>(size);
}

// The digest of the layer with the weights, "sha256:<hex>"; nothing: no such manifest.
std::optional<std::string> weights_digest(const fs::path& manifest) {
  const Result<std::string> text = base::read_text_file(manifest, kManifestBytesMax);
  if (!text.ok()) return std::nullopt;
  const Result<json::Value> value = json::parse(*text);
  const json::Object* object = value.ok() ? value->if_object() : nullptr;
  const json::Value* layers = object != nullptr ? object->if_contains("layers") : nullptr;
  if (layers == nullptr || !layers->is_array()) return std::nullopt;
  for (const json::Value& layer : layers->get_array()) {
    const json::Object* one = layer.if_object();
    const json::Value* type = one != nullptr ? one->if_contains("mediaType") : nullptr;
    const json::Value* digest = one != nullptr ? one->if_contains("digest") : nullptr;
    if (type == nullptr || digest == nullptr || !type->is_string() || !digest->is_string() ||
        json::view(type->get_string()) != kWeightsLayer)
      continue;
    return std::string(json::view(digest->get_string()));
  }
  return std::nullopt;
}

// The model of manifests/<host>/<namespace>/<name>/<tag>; its weights are blobs/sha256-<hex>.
std::optional<Adoptable> read_ollama_manifest(const fs::path& root, const fs::path& manifest) {
  const std::optional<std::string> digest = weights_digest(manifest);
  constexpr std::string_view kDigest = "sha256:";
  if (!digest || !digest->starts_with(kDigest)) return std::nullopt;
  const std::string hex = digest->substr(kDigest.size());
  if (!fetch::is_sha256_hex(hex)) return std::nullopt;  // it becomes a path
  const std::string tag = manifest.filename().string();
  const fs::path named = manifest.parent_path();
  const std::string space = named.parent_path().filename().string();
  const std::string name = (space == "library" ? "" : space + "/") + named.filename().string();
  Adoptable model;
  model.from = "ollama";
  model.name = name + ":" + tag;
  model.id = make_model_id(tag == "latest" ? name : name + "-" + tag);
  model.path = root / "blobs" / ("sha256-" + hex);
  model.bytes = size_of(model.path);
  model.sha256 = {{model.path.filename().string(), hex}};
  return model;
}

void find_ollama(const fs::path& root, std::vector<Adoptable>& found) {
  constexpr int kTagDepth = 3;
  std::vector<fs::path> manifests;
  std::error_code error;
  for (fs::recursive_directory_iterator at(root / "manifests", error), end; !error && at != end;
       at.increment(error)) {
    if (at.depth() == kTagDepth && is_file(at->path())) manifests.push_back(at->path());
    if (manifests.size() >= kModelsMax) break;
  }
  std::sort(manifests.begin(), manifests.end());
  for (const fs::path& manifest : manifests) {
    if (std::optional<Adoptable> model = read_ollama_manifest(root, manifest))
      found.push_back(std::move(*model));
  }
}

// A cached file is a link to a blob, which is named by its SHA-256 where it is a large one.
std::string blob_hash(const fs::path& file) {
  std::error_code error;
  const fs::path target = fs::read_symlink(file, error);
  const std::string name = error ? std::string() : target.filename().string();
  return fetch::is_sha256_hex(name) ? name : std::string();
}

bool is_first_part(const std::string& file) {
  return file.find("-of-") == std::string::npos || file.find("-00001-of-") != std::string::npos;
}

// The models of one folder and those below it: every GGUF is one, and so is a folder in Hugging
// Face layout. Links to folders are not followed.
void find_in_folder(const fs::path& folder, int depth, std::vector<Adoptable>& found) {
  if (depth > kDepthMax || found.size() >= kModelsMax) return;
  Adoptable whole;
  whole.path = folder;
  bool has_weights = false;
  for (const fs::path& child : children_of(folder)) {
    std::error_code error;
    if (fs::is_directory(fs::symlink_status(child, error))) {
      find_in_folder(child, depth + 1, found);
      continue;
    }
    if (!is_file(child)) continue;
    const std::string file = child.filename().string();
    const std::string hash = blob_hash(child);
    if (child.extension() == ".gguf") {
      if (!is_first_part(file)) continue;
      Adoptable model;
      model.path = child;
      model.bytes = size_of(child);
      if (!hash.empty()) model.sha256 = {{file, hash}};
      found.push_back(std::move(model));
      continue;
    }
    has_weights = has_weights || child.extension() == ".safetensors" ||
                  file == "pytorch_model.bin" || file == "pytorch_model.bin.index.json";
    whole.bytes += size_of(child);
    if (!hash.empty()) whole.sha256.emplace_back(file, hash);
  }
  if (has_weights && is_file(folder / "config.json")) found.push_back(std::move(whole));
}

// The snapshot that a repository's main branch means, else the newest.
fs::path snapshot_of(const fs::path& repository) {
  const Result<std::string> main = base::read_text_file(repository / "refs" / "main", kRefBytesMax);
  if (main.ok()) {
    const std::string commit = main->substr(0, main->find_first_of(" \r\n"));
    const fs::path folder = repository / "snapshots" / commit;
    if (is_hash_name(commit) && is_folder(folder)) return folder;
  }
  fs::path newest;
  fs::file_time_type time{};
  for (const fs::path& folder : children_of(repository / "snapshots")) {
    std::error_code error;
    const fs::file_time_type changed = fs::last_write_time(folder, error);
    if (error || !is_folder(folder) || (!newest.empty() && changed <= time)) continue;
    newest = folder;
    time = changed;
  }
  return newest;
}

// models--<org>--<repo>/snapshots/<commit>/…
void find_hub(const fs::path& root, std::vector<Adoptable>& found) {
  for (const fs::path& repository : children_of(root)) {
    std::string name = repository.filename().string();
    if (!name.starts_with(kHubPrefix) || !is_folder(repository)) continue;
    name.erase(0, kHubPrefix.size());
    if (const std::size_t dashes = name.find("--"); dashes != std::string::npos)
      name.replace(dashes, 2, "/");
    const fs::path snapshot = snapshot_of(repository);
    if (snapshot.empty()) continue;
    const std::size_t first = found.size();
    find_in_folder(snapshot, kDepthMax - 1, found);
    for (std::size_t i = first; i < found.size(); ++i) {
      Adoptable& model = found[i];
      model.from = "huggingface";
      fetch::ModelRef ref{fetch::Provider::HuggingFace, name, {}, {}};
      if (model.path != snapshot) ref.file = model.path.lexically_relative(snapshot).string();
      const Result<fetch::ModelRef> checked = fetch::parse_model_ref(ref.text());
      if (checked.ok()) model.ref = ref.text();
      model.name = ref.file.empty() ? name : fmt::format("{} {}", name, ref.file);
      model.id = ref.file.empty() ? make_model_id(telling_part(name))
                                  : make_model_id(model.path.stem().string());
    }
  }
}

void find_anywhere(const fs::path& root, std::vector<Adoptable>& found) {
  const std::size_t first = found.size();
  find_in_folder(root, 0, found);
  for (std::size_t i = first; i < found.size(); ++i) {
    Adoptable& model = found[i];
    model.from = "folder";
    fs::path named = model.path;
    if (named.extension() == ".gguf") named.replace_extension();
    model.name = telling_part(named);
    model.id = make_model_id(model.name);
  }
}

struct Place {
  enum class Kind : std::uint8_t { Ollama, Hub, Folder };
  Kind kind;
  fs::path path;
};

Place classify(const fs::path& path) {
  if (is_folder(path / "manifests") && is_folder(path / "blobs"))
    return {Place::Kind::Ollama, path};
  if (is_folder(path / "models" / "manifests")) return {Place::Kind::Ollama, path / "models"};
  const auto has_repositories = [](const fs::path& folder) {
    const std::vector<fs::path> children = children_of(folder);
    return std::any_of(children.begin(), children.end(), [](const fs::path& child) {
      return child.filename().string().starts_with(kHubPrefix);
    });
  };
  if (has_repositories(path)) return {Place::Kind::Hub, path};
  if (has_repositories(path / "hub")) return {Place::Kind::Hub, path / "hub"};
  return {Place::Kind::Folder, path};
}

fs::path ollama_folder(const base::Environment& environment) {
  if (const std::string named = text_of(environment, "OLLAMA_MODELS"); !named.empty()) return named;
  const std::string user = text_of(environment, "HOME");
  return user.empty() ? fs::path() : fs::path(user) / ".ollama" / "models";
}

fs::path hub_folder(const base::Environment& environment) {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
    if (const std::string named = text_of(environment, name); !named.empty()) return named;
  if (const std::string home = text_of(environment, "HF_HOME"); !home.empty())
    return fs::path(home) / "hub";
  if (const std::string cache = text_of(environment, "XDG_CACHE_HOME"); !cache.empty())
    return fs::path(cache) / "huggingface" / "hub";
  const std::string user = text_of(environment, "HOME");
  return user.empty() ? fs::path() : fs::path(user) / ".cache" / "huggingface" / "hub";
}

Result<std::vector<Place>> find_places(const base::Environment& environment,
                                       const std::string& from) {
  std::vector<Place> places;
  if (from.empty() || from == "ollama")
    places.push_back({Place::Kind::Ollama, ollama_folder(environment)});
  if (from.empty() || from == "huggingface")
    places.push_back({Place::Kind::Hub, hub_folder(environment)});
  if (places.empty()) {
    if (!fs::path(from).is_absolute())
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("{} is neither ollama, huggingface nor an absolute path",
                               base::quoted(from))};
    places.push_back(classify(from));
  }
  std::erase_if(places, [](const Place& place) { return !is_folder(place.path); });
  if (!places.empty() || from.empty()) return places;
  return Error{
      ErrorCode::NotFound,
      from.starts_with('/')
          ? fmt::format("{} is no folder", base::quoted(from))
          : fmt::format("there is no cache of {}: name its folder with --from PATH", from)};
}

// Registers, or says why not.
class Adoption {
 public:
  Adoption(const base::Home& home, bool dry_run)
      : catalog_(home.catalog_file()), dry_run_(dry_run), home_(home) {}

  Status take(std::vector<Adoptable> models, AdoptReport& report) {
    for (Adoptable& model : models) {
      Result<CatalogContent> content = catalog_.read();
      if (!content.ok()) return content.error();
      if (const Status done = take_one(*content, model); !done.ok())
        model.problem = done.error().message;
      (model.problem.empty() ? report.adopted : report.skipped).push_back(std::move(model));
    }
    return ok_status();
  }

 private:
  Status take_one(const CatalogContent& content, Adoptable& model) {
    for (const ModelEntry& entry : content.models) {
      if (fs::path(entry.path) != model.path) continue;
      model.id = entry.id;
      return Error{ErrorCode::Conflict, fmt::format("is here already, as {}", entry.id)};
    }
    const FindOccupant occupant = find_occupants(content, home_);
    const auto is_taken = [&](const std::string& id) {
      return occupant(id).has_value() ||
             std::find(planned_.begin(), planned_.end(), id) != planned_.end();
    };
    const std::string plain = model.id;
    for (int i = 2; is_taken(model.id) && i < kNumberMax; ++i)
      model.id = make_model_id(fmt::format("{}-{}", plain, i));
    planned_.push_back(model.id);
    ModelEntry described;
    if (const Status read = describe_files(model.path, described); !read.ok()) return read;
    if (dry_run_) return ok_status();
    const Result<ModelEntry> entry = register_model(
        catalog_, {.id = model.id, .name = model.name, .repo = model.ref, .path = model.path});
    if (!entry.ok()) return entry.error();
    return catalog_.update([&](CatalogContent& now) {
      ModelEntry* registered = now.find(model.id);
      if (registered == nullptr) return ok_status();
      for (contract::ModelFile& file : registered->files) {
        for (const auto& [path, sha256] : model.sha256)
          if (file.path == path) file.sha256 = sha256;
      }
      return ok_status();
    });
  }

  const ModelCatalog catalog_;
  const bool dry_run_;
  const base::Home& home_;
  std::vector<std::string> planned_;
};

}  // namespace

Result<AdoptReport> adopt_models(const base::Home& home, const base::Environment& environment,
                                 const AdoptRequest& request) {
  const Result<std::vector<Place>> places = find_places(environment, request.from);
  if (!places.ok()) return places.error();
  AdoptReport report;
  std::vector<Adoptable> found;
  for (const Place& place : *places) {
    report.places.push_back(place.path.string());
    switch (place.kind) {
      case Place::Kind::Ollama:
        find_ollama(place.path, found);
        break;
      case Place::Kind::Hub:
        find_hub(place.path, found);
        break;
      case Place::Kind::Folder:
        find_anywhere(place.path, found);
        break;
    }
  }
  Adoption adoption(home, request.dry_run);
  if (const Status taken = adoption.take(std::move(found), report); !taken.ok())
    return taken.error();
  return report;
}

}  // namespace llorch::catalog
