#include "catalog/model_catalog.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <random>

#include "base/file.h"
#include "base/file_lock.h"
#include "base/json_fields.h"
#include "base/similar_names.h"
#include "base/utf8.h"
#include "catalog/known_models.h"
#include "contract/model_entry.h"

namespace llorch::catalog {
namespace {

namespace fs = std::filesystem;
using contract::ModelEntry;

constexpr std::size_t kSuggestionsMax = 3;

bool is_before(const ModelEntry& entry, std::string_view id) {
  return entry.id < id;
}

std::string now_text() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now));
}

// "attic-3fa9c1": the host's name for people, and digits because hosts share names.
std::string make_pool_id() {
  std::array<char, 256> host{};
  std::string name;
  if (::gethostname(host.data(), host.size() - 1) == 0) name = host.data();
  std::erase_if(name, [](char c) { return !contract::is_model_id(std::string_view(&c, 1)); });
  if (name.empty()) name = "pool";
  std::random_device random;
  return fmt::format("{}-{:06x}", name.substr(0, 64), random() & 0xFF'FFFFU);
}

Status check_version(std::string_view version) {
  if (version == "1" || version.starts_with("1.")) return ok_status();
  return Error{ErrorCode::Unsupported,
               fmt::format("its version is {}, this program knows 1.x: use the program that wrote "
                           "it, or move it away to begin with an empty catalog",
                           base::quoted(version))};
}

Status parse_models(const json::Array& array, CatalogContent& content) {
  if (array.size() > kCatalogModelsMax) {
    return Error{ErrorCode::TooLarge, fmt::format("it lists {} models, at most {} are possible",
                                                  array.size(), kCatalogModelsMax)};
  }
  content.models.reserve(array.size());
  for (const json::Value& element : array) {
    Result<ModelEntry> entry =
        contract::parse_model_entry(element, fmt::format("models[{}]", content.models.size()));
    if (!entry.ok()) return entry.error();
    content.models.push_back(entry.take());
  }
  return ok_status();
}

// Sorted by id, no id twice.
Status put_in_order(CatalogContent& content) {
  const auto is_less = [](const ModelEntry& a, const ModelEntry& b) { return a.id < b.id; };
  if (!std::is_sorted(content.models.begin(), content.models.end(), is_less))
    std::stable_sort(content.models.begin(), content.models.end(), is_less);
  const auto twice =
      std::adjacent_find(content.models.begin(), content.models.end(),
                         [](const ModelEntry& a, const ModelEntry& b) { return a.id == b.id; });
  if (twice == content.models.end()) return ok_status();
  return Error{ErrorCode::Corrupt,
               fmt::format("the model {} is listed twice", base::quoted(twice->id))};
}

// A catalog that is a link stays one: what it points to is locked and replaced.
fs::path behind_links(const fs::path& file) {
  std::error_code error;
  if (!fs::is_symlink(file, error)) return file;
  fs::path target = fs::canonical(file, error);
  return error ? file : target;
}

Result<CatalogContent> read_file(const fs::path& file) {
  const Result<std::string> text = base::read_text_file(file, kCatalogBytesMax);
  if (!text.ok()) {
    if (text.error().code == ErrorCode::NotFound) return CatalogContent{};
    // A folder or a device in its place is nobody's request.
    const bool is_no_file = text.error().code == ErrorCode::InvalidArgument;
    return Error{is_no_file ? ErrorCode::Corrupt : text.error().code, text.error().message}.in(
        "the catalog");
  }
  Result<CatalogContent> content = parse_catalog(*text);
  if (content.ok()) return content;
  return Error{content.error().code,
               fmt::format("the catalog {} cannot be used, and is left as it is: {}", file.string(),
                           content.error().message)};
}

void stamp_changes(const CatalogContent& old, CatalogContent& content) {
  const std::string now = now_text();
  for (ModelEntry& entry : content.models) {
    const ModelEntry* before = old.find(entry.id);
    if (before == nullptr || *before != entry) entry.updated_at = now;
  }
}

Status write_content(const fs::path& file, const CatalogContent& content) {
  if (content.models.size() > kCatalogModelsMax) {
    return Error{
        ErrorCode::TooLarge,
        fmt::format("the catalog would list {} models, at most {} are possible: unregister "
                    "some first",
                    content.models.size(), kCatalogModelsMax)};
  }
  const std::string text = write_catalog(content);
  if (text.size() > kCatalogBytesMax) {
    return Error{ErrorCode::TooLarge, fmt::format("the catalog would have {} bytes, at most {} are "
                                                  "possible: unregister some models first",
                                                  text.size(), kCatalogBytesMax)};
  }
  const Status written = base::write_file_atomically(file, text);
  if (written.ok()) return written;
  return written.error().in("the catalog is unchanged");
}

}  // namespace

const ModelEntry* CatalogContent::find(std::string_view id) const {
  const auto at = std::lower_bound(models.begin(), models.end(), id, is_before);
  return at != models.end() && at->id == id ? &*at : nullptr;
}

ModelEntry* CatalogContent::find(std::string_view id) {
  return const_cast<ModelEntry*>(std::as_const(*this).find(id));
}

void CatalogContent::put(ModelEntry entry) {
  const auto at = std::lower_bound(models.begin(), models.end(), entry.id, is_before);
  if (at != models.end() && at->id == entry.id) {
    *at = std::move(entry);
  } else {
    models.insert(at, std::move(entry));
  }
}

bool CatalogContent::remove(std::string_view id) {
  return std::erase_if(models, [id](const ModelEntry& entry) { return entry.id == id; }) > 0;
}

std::string write_catalog(const CatalogContent& content) {
  std::string text =
      fmt::format("{{\"version\":{},\"pool_id\":{}", json::serialize(json::Value(content.version)),
                  json::serialize(json::Value(content.pool_id)));
  for (const auto& field : content.unknown) {
    text += fmt::format(",{}:{}", json::serialize(json::Value(field.key())),
                        json::serialize(field.value()));
  }
  text += ",\"models\":[";
  bool first = true;
  for (const ModelEntry& entry : content.models) {
    text += first ? "\n" : ",\n";
    first = false;
    text += json::serialize(contract::to_json(entry));
  }
  text += first ? "]}\n" : "\n]}\n";
  return text;
}

Result<CatalogContent> parse_catalog(std::string_view text) {
  json::Limits limits;
  limits.max_bytes = kCatalogBytesMax;
  limits.in_one_block = true;
  const Result<json::Value> value = json::parse(text, limits);
  if (!value.ok()) {
    const bool is_large = value.error().code == ErrorCode::TooLarge;
    return Error{is_large ? ErrorCode::TooLarge : ErrorCode::Corrupt, value.error().message};
  }
  const json::Object* object = value->if_object();
  if (object == nullptr) {
    return Error{ErrorCode::Corrupt,
                 fmt::format("expected {{\"version\",\"pool_id\",\"models\"}}, found {}",
                             json::kind_name(*value))};
  }
  json::FieldReader reader(*object);
  CatalogContent content;
  content.version = reader.required_string("version");
  content.pool_id = reader.optional_string("pool_id").value_or("");
  const json::Array* models = reader.required_array("models");
  for (const auto& field : *object) {
    const std::string_view key = json::view(field.key());
    if (key == "version" || key == "pool_id" || key == "models") continue;
    reader.ignore(key);
    content.unknown.emplace(field.key(), field.value());
  }
  const std::vector<json::FieldError> errors = reader.finish();
  if (!errors.empty()) {
    return Error{ErrorCode::Corrupt, fmt::format("{} {}", errors[0].field, errors[0].message)};
  }
  if (Status good = check_version(content.version); !good.ok()) return good.error();
  if (Status good = parse_models(*models, content); !good.ok()) return good.error();
  if (Status good = put_in_order(content); !good.ok()) return good.error();
  return content;
}

Error no_such_model(const CatalogContent& content, std::string_view id) {
  const std::vector<ModelEntry> known = known_models();
  const bool is_known = std::any_of(known.begin(), known.end(),
                                    [id](const ModelEntry& entry) { return entry.id == id; });
  if (is_known && id != contract::kBuiltinModel) {
    return {ErrorCode::NotFound,
            fmt::format(
                "the model {0} is known but not here: run `llorch-pool models download {0}`", id)};
  }
  std::vector<std::string_view> ids;
  for (const ModelEntry& entry : content.models) ids.push_back(entry.id);
  for (const ModelEntry& entry : known) {
    if (content.find(entry.id) == nullptr) ids.push_back(entry.id);
  }
  const std::vector<std::string> similar = base::similar_names(id, ids, kSuggestionsMax);
  return {
      ErrorCode::NotFound,
      fmt::format("no model is called {}{}; `llorch-pool models list` shows those here, `models "
                  "catalog` those that can be fetched",
                  base::quoted(id),
                  similar.empty() ? std::string()
                                  : fmt::format(" (did you mean {}?)", fmt::join(similar, ", ")))};
}

Result<CatalogContent> ModelCatalog::read() const {
  return read_file(file_);
}

Result<ModelEntry> ModelCatalog::find(std::string_view id) const {
  if (id == contract::kBuiltinModel) return builtin_entry();
  const Result<CatalogContent> content = read();
  if (!content.ok()) return content.error();
  const ModelEntry* entry = content->find(id);
  if (entry == nullptr) return no_such_model(*content, id);
  return *entry;
}

Status ModelCatalog::update(const std::function<Status(CatalogContent& content)>& change) const {
  const fs::path file = behind_links(file_);
  if (Status made = base::make_private_folder(file.parent_path()); !made.ok())
    return made.error().in("the catalog");
  fs::path lock_file = file;
  lock_file += ".lock";
  const Result<std::unique_ptr<base::FileLock>> lock =
      base::FileLock::acquire(lock_file, kLockPatience);
  if (!lock.ok()) {
    const bool is_busy = lock.error().code == ErrorCode::Conflict;
    return Error{is_busy ? ErrorCode::Unavailable : lock.error().code, lock.error().message};
  }
  base::remove_abandoned_writes(file);
  const Result<CatalogContent> old = read_file(file);
  if (!old.ok()) return old.error();
  CatalogContent content = *old;
  if (Status changed = change(content); !changed.ok()) return changed;
  if (content == *old && !old->pool_id.empty()) return ok_status();
  if (Status good = put_in_order(content); !good.ok()) return good;
  if (content.pool_id.empty()) content.pool_id = make_pool_id();
  stamp_changes(*old, content);
  return write_content(file, content);
}

}  // namespace llorch::catalog
