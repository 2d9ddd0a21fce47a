#include "cli/model_store.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "catalog/describe.h"
#include "catalog/known_models.h"
#include "catalog/model_catalog.h"
#include "http/url.h"
#include "pool/pool_manager.h"

namespace llorch::cli {
namespace {

namespace fs = std::filesystem;
using contract::ModelEntry;

// A model as the manager tells it. What the manager says of its state is the truth; one that says
// nothing has looked no further than its catalog.
Result<ListedModel> read_listed(const json::Value& value) {
  Result<ModelEntry> entry = contract::parse_model_entry(value, "the pool manager's model");
  if (!entry.ok()) return entry.error();
  ListedModel listed{entry.take(), ""};
  if (const auto state = listed.entry.unknown.find("state");
      state != listed.entry.unknown.end() && state->value().is_string()) {
    listed.state = std::string(state->value().get_string());
    listed.entry.unknown.erase(state);
  } else {
    listed.state = listed.entry.downloaded ? "ready" : "not_downloaded";
  }
  return listed;
}

Result<ModelEntry> read_entry(const Result<json::Value>& answer) {
  if (!answer.ok()) return answer.error();
  Result<ListedModel> listed = read_listed(*answer);
  if (!listed.ok()) return listed.error();
  return std::move(listed->entry);
}

const json::Array* list_in(const json::Value& answer, std::string_view name) {
  const json::Object* object = answer.if_object();
  const json::Value* list = object != nullptr ? object->if_contains(name) : nullptr;
  return list != nullptr ? list->if_array() : nullptr;
}

}  // namespace

std::string model_path(std::string_view id, std::string_view rest) {
  return fmt::format("/v2/models/{}{}", http::percent_encode(id), rest);
}

Result<ModelStore> ModelStore::open(const PoolContext& context) {
  ModelStore store(context);
  Result<PoolClient> client = find_pool(target_of(context));
  if (client.ok())
    store.client_ = client.take();
  else if (!context.pool_url.empty())
    return client.error();
  return store;
}

catalog::ModelCatalog ModelStore::catalog() const {
  return catalog::ModelCatalog(context_.home.catalog_file());
}

void ModelStore::make_absolute(std::string& path) const {
  std::error_code ignored;
  const bool is_here = context_.pool_url.empty() || is_on_this_host(context_.pool_url);
  if (!path.empty() && is_here) path = fs::absolute(path, ignored).lexically_normal().string();
}

Result<ModelListing> ModelStore::list() {
  ModelListing listing;
  if (!client_) {
    const Result<catalog::CatalogContent> content = catalog().read();
    if (!content.ok()) return content.error();
    listing.pool_id = content->pool_id;
    for (const ModelEntry& known : catalog::known_models()) {
      if (content->find(known.id) != nullptr) continue;
      if (known.downloaded)
        listing.models.push_back({known, std::string(catalog::state_of(known))});
      else
        listing.known.push_back(known);
    }
    for (const ModelEntry& entry : content->models)
      listing.models.push_back({entry, std::string(catalog::state_of(entry))});
    return listing;
  }
  const Result<json::Value> answer = client_->get("/v2/models?known=true");
  if (!answer.ok()) return answer.error();
  if (const Result<json::Object> health = client_->health(); health.ok()) {
    const json::Value* id = health->if_contains("pool_id");
    if (id != nullptr && id->is_string()) listing.pool_id = std::string(id->get_string());
  }
  const json::Array* models = list_in(*answer, "models");
  if (models == nullptr)
    return Error{ErrorCode::Internal, "the pool manager's answer has no models"};
  for (const json::Value& value : *models) {
    Result<ListedModel> listed = read_listed(value);
    if (!listed.ok()) return listed.error();
    listing.models.push_back(listed.take());
  }
  if (const json::Array* known = list_in(*answer, "known")) {
    for (const json::Value& value : *known) {
      Result<ModelEntry> entry = contract::parse_model_entry(value, "the pool manager's model");
      if (!entry.ok()) return entry.error();
      listing.known.push_back(entry.take());
    }
  }
  return listing;
}

Result<ListedModel> ModelStore::find(std::string_view id) {
  if (client_) {
    const Result<json::Value> answer = client_->get(model_path(id));
    if (!answer.ok()) return answer.error();
    return read_listed(*answer);
  }
  Result<ModelEntry> entry = catalog().find(id);
  if (!entry.ok()) return entry.error();
  std::string state(catalog::state_of(*entry));
  return ListedModel{entry.take(), std::move(state)};
}

Result<ModelEntry> ModelStore::add(catalog::RegisterRequest request) {
  if (!client_) return catalog::register_model(catalog(), request);
  make_absolute(request.path);
  json::Object body{{"id", request.id}};
  const auto put = [&body](std::string_view name, const std::string& value) {
    if (!value.empty()) body[name] = value;
  };
  put("name", request.name);
  put("repo", request.repo);
  put("architecture", request.architecture);
  put("path", request.path);
  return read_entry(client_->post("/v2/models", body));
}

Result<ModelEntry> ModelStore::update(std::string_view id, catalog::UpdateRequest request) {
  if (!client_)
    return catalog::update_model(catalog(), id, request, pool::find_uses(context_.home));
  if (request.path) make_absolute(*request.path);
  json::Object body;
  const auto put = [&body](std::string_view name, const std::optional<std::string>& value) {
    if (value) body[name] = *value;
  };
  put("name", request.name);
  put("repo", request.repo);
  put("architecture", request.architecture);
  put("path", request.path);
  if (request.downloaded) body["downloaded"] = *request.downloaded;
  return read_entry(client_->patch(model_path(id), body));
}

Result<RemovedModel> ModelStore::remove(std::string_view id, bool files) {
  RemovedModel removed;
  if (client_) {
    const Result<ModelEntry> entry =
        read_entry(client_->remove(model_path(id, files ? "?files=true" : "")));
    if (!entry.ok()) return entry.error();
    // What was downloaded lies below the manager's own folder of that name; all else stays.
    const bool is_own = entry->path.find(fmt::format("/models/{}/", id)) != std::string::npos;
    removed.files_deleted = files && is_own;
    if (!removed.files_deleted && entry->downloaded) removed.files_kept_at = entry->path;
    return removed;
  }
  std::error_code error;
  removed.files_deleted =
      files && contract::is_model_id(id) && fs::exists(context_.home.models() / id, error);
  const Result<ModelEntry> entry =
      catalog::remove_model(catalog(), context_.home, id, files, pool::find_uses(context_.home));
  if (!entry.ok()) return entry.error();
  if (!entry->path.empty() && fs::exists(entry->path, error)) removed.files_kept_at = entry->path;
  return removed;
}

}  // namespace llorch::cli
