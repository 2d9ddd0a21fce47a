#include "pool/model_routes.h"

#include <fmt/format.h>

#include <utility>

#include "base/utf8.h"
#include "catalog/describe.h"
#include "catalog/registry.h"
#include "contract/backend_kind.h"
#include "contract/model_entry.h"

namespace llorch::pool {
namespace {

constexpr std::size_t kTextBytesMax = 1024;
constexpr std::size_t kPathBytesMax = 4096;
constexpr std::int64_t kContextMax = 16'777'216;
constexpr std::int64_t kSlotsMax = 256;
constexpr std::int64_t kGpuMax = 255;

std::optional<std::int32_t> narrow(std::optional<std::int64_t> number) {
  if (!number) return std::nullopt;
  return static_cast<std::int32_t>(*number);
}

PlanRequest read_plan_request(json::FieldReader& reader) {
  PlanRequest plan;
  plan.backend = reader.optional_string("backend").value_or("");
  if (!plan.backend.empty() && contract::find_backend_kind(plan.backend) == nullptr)
    reader.fail("backend", "cpu|cuda", "must be cpu or cuda, not " + base::quoted(plan.backend));
  plan.gpu = narrow(reader.optional_integer("gpu", 0, kGpuMax));
  plan.context = narrow(reader.optional_integer("ctx", contract::kContextTokensMin, kContextMax));
  plan.slots = narrow(reader.optional_integer("slots", 1, kSlotsMax));
  plan.kv_type = reader.optional_string("kv").value_or("");
  if (!plan.kv_type.empty() && plan.kv_type != "f16" && plan.kv_type != "q8_0")
    reader.fail("kv", "f16|q8_0", "must be f16 or q8_0, not " + base::quoted(plan.kv_type));
  return plan;
}

// What must not lose its files or its name now.
catalog::FindUse find_uses(const Service& service) {
  return [&service](std::string_view model) -> std::string {
    const std::string id(model);
    for (const contract::PoolWorker& worker : service.pool.workers.workers()) {
      const bool has_ended = worker.state == contract::PoolWorkerState::Stopped ||
                             worker.state == contract::PoolWorkerState::Failed;
      if (worker.model == id && !has_ended) {
        return fmt::format("{} is run by {}; stop it first (`llorch-pool worker stop {}`)", id,
                           worker.id, worker.id);
      }
    }
    if (service.pool.workers.uses_model(id))
      return fmt::format("a worker uses {}; stop it first (POST /v2/workers/stop)", id);
    if (!service.pool.downloads.is_busy_with(id)) return {};
    return fmt::format(
        "{} is being downloaded or verified; cancel that first (DELETE /v2/downloads/ID)", id);
  };
}

Result<http::Response> entry_response(const Service& service, int status,
                                      const Result<contract::ModelEntry>& entry) {
  if (!entry.ok()) return entry.error();
  return json_response(status, show_model_entry(service, *entry));
}

// Every registered model, the built-in one among them.
json::Array models_json(const Service& service, const catalog::CatalogContent& content) {
  json::Array models;
  for (const contract::ModelEntry& known : service.known_models) {
    if (known.path == contract::kBuiltinModel && content.find(known.id) == nullptr)
      models.emplace_back(show_model_entry(service, known));
  }
  for (const contract::ModelEntry& entry : content.models)
    models.emplace_back(show_model_entry(service, entry));
  return models;
}

}  // namespace

json::Object show_model_entry(const Service& service, const contract::ModelEntry& entry) {
  json::Object object = catalog::show_entry(entry);
  if (!entry.downloaded && service.pool.downloads.is_busy_with(entry.id))
    object["state"] = "downloading";
  return object;
}

Result<http::Response> list_models(const Service& service, const http::Request& request) {
  const json::Object query = read_query(request);
  json::FieldReader reader(query);
  const bool with_known = reader.optional_bool("known").value_or(false);
  if (std::vector<json::FieldError> errors = reader.finish(); !errors.empty())
    return failures_response(request, std::move(errors));
  const auto content = service.catalog.read();
  if (!content.ok()) return content.error();
  json::Object body{{"models", models_json(service, **content)}};
  if (with_known) {
    json::Array known;
    for (const contract::ModelEntry& entry : service.known_models) {
      if (entry.path != contract::kBuiltinModel && (*content)->find(entry.id) == nullptr)
        known.emplace_back(show_model_entry(service, entry));
    }
    body["known"] = std::move(known);
  }
  return json_response(200, body);
}

Result<http::Response> list_outdated(const Service& service, const http::Request&) {
  const auto content = service.catalog.read();
  if (!content.ok()) return content.error();
  json::Array list;
  for (const catalog::RevisionCheck& check : service.pool.check_revisions((*content)->models))
    list.push_back(catalog::to_json(check));
  return json_response(200, json::Object{{"models", std::move(list)}});
}

Result<http::Response> show_model(const Service& service, const http::Request& request) {
  return entry_response(service, 200, service.catalog.catalog().find(path_param(request, "id")));
}

Result<http::Response> register_model(const Service& service, const http::Request& request) {
  const Result<json::Object> body = read_body(request);
  if (!body.ok()) return body.error();
  json::FieldReader reader(*body);
  catalog::RegisterRequest wanted;
  wanted.id = reader.required_string("id", {1, 128});
  if (!wanted.id.empty() && !contract::is_model_id(wanted.id))
    reader.fail(
        "id", "[A-Za-z0-9._-]",
        "may hold only letters, digits, '.', '_' and '-', and begins with a letter or digit");
  wanted.name = reader.optional_string("name", {0, kTextBytesMax}).value_or("");
  wanted.repo = reader.optional_string("repo", {0, kTextBytesMax}).value_or("");
  wanted.architecture = reader.optional_string("architecture", {0, kTextBytesMax}).value_or("");
  wanted.path = reader.optional_string("path", {0, kPathBytesMax}).value_or("");
  if (std::vector<json::FieldError> errors = reader.finish(); !errors.empty())
    return failures_response(request, std::move(errors));
  return entry_response(service, 201, catalog::register_model(service.catalog.catalog(), wanted));
}

Result<http::Response> update_model(const Service& service, const http::Request& request) {
  const Result<json::Object> body = read_body(request);
  if (!body.ok()) return body.error();
  json::FieldReader reader(*body);
  catalog::UpdateRequest wanted;
  wanted.name = reader.optional_string("name", {0, kTextBytesMax});
  wanted.repo = reader.optional_string("repo", {0, kTextBytesMax});
  wanted.architecture = reader.optional_string("architecture", {0, kTextBytesMax});
  wanted.path = reader.optional_string("path", {0, kPathBytesMax});
  wanted.downloaded = reader.optional_bool("downloaded");
  if (std::vector<json::FieldError> errors = reader.finish(); !errors.empty())
    return failures_response(request, std::move(errors));
  const std::string& id = path_param(request, "id");
  return entry_response(
      service, 200,
      catalog::update_model(service.catalog.catalog(), id, wanted, find_uses(service)));
}

Result<http::Response> remove_model(const Service& service, const http::Request& request) {
  const json::Object query = read_query(request);
  json::FieldReader reader(query);
  const bool files = reader.optional_bool("files").value_or(false);
  if (std::vector<json::FieldError> errors = reader.finish(); !errors.empty())
    return failures_response(request, std::move(errors));
  const std::string& id = path_param(request, "id");
  return entry_response(service, 200,
                        catalog::remove_model(service.catalog.catalog(), service.pool.home, id,
                                              files, find_uses(service)));
}

Result<http::Response> plan_model(const Service& service, const http::Request& request) {
  const json::Object query = read_query(request);
  json::FieldReader reader(query);
  PlanRequest wanted = read_plan_request(reader);
  if (std::vector<json::FieldError> errors = reader.finish(); !errors.empty())
    return failures_response(request, std::move(errors));
  const Result<contract::ModelEntry> entry =
      service.catalog.catalog().find(path_param(request, "id"));
  if (!entry.ok()) return entry.error();
  std::vector<std::string> backends = {wanted.backend};
  if (wanted.backend.empty()) {
    const bool has_gpu = wanted.gpu || !service.pool.host().gpus.empty();
    backends.clear();
    for (const contract::BackendKind& kind : contract::backend_kinds()) {
      if (kind.needs_gpu ? has_gpu : !wanted.gpu) backends.emplace_back(kind.name);
    }
  }
  json::Array plans;
  for (const std::string& backend : backends) {
    wanted.backend = backend;
    const Result<std::vector<MemoryPlan>> found = service.pool.plan(*entry, wanted);
    if (!found.ok()) return found.error();
    for (const MemoryPlan& plan : *found) plans.emplace_back(to_json(plan));
  }
  return json_response(200, json::Object{{"model", entry->id}, {"plans", std::move(plans)}});
}

}  // namespace llorch::pool
