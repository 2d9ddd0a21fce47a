#include "pool/model_routes.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "base/utf8.h"
#include "catalog/describe.h"
#include "catalog/registry.h"
#include "contract/backend_kind.h"
#include "contract/model_entry.h"

namespace llorch::pool {
namespace {

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
  return json_response(status, to_json(show_model_entry(service, *entry)));
}

// Every registered model, the built-in one among them.
std::vector<ShownModel> list_registered(const Service& service,
                                        const catalog::CatalogContent& content) {
  std::vector<ShownModel> models;
  for (const contract::ModelEntry& known : service.known_models) {
    if (known.path == contract::kBuiltinModel && content.find(known.id) == nullptr)
      models.push_back(show_model_entry(service, known));
  }
  for (const contract::ModelEntry& entry : content.models)
    models.push_back(show_model_entry(service, entry));
  return models;
}

// What could be fetched by name and is not here.
std::vector<ShownModel> list_known(const Service& service, const catalog::CatalogContent& content) {
  std::vector<ShownModel> models;
  for (const contract::ModelEntry& entry : service.known_models) {
    if (entry.path != contract::kBuiltinModel && content.find(entry.id) == nullptr)
      models.push_back(show_model_entry(service, entry));
  }
  return models;
}

void check_model_id(json::FieldReader& reader, const catalog::RegisterRequest& wanted) {
  if (wanted.id.empty() || contract::is_model_id(wanted.id)) return;
  reader.fail("id", "[A-Za-z0-9._-]",
              "may hold only letters, digits, '.', '_' and '-', begins with a letter or digit, and "
              "may have a variant behind one ':'");
}

Result<http::Response> answer_plans(const Service& service, const contract::ModelEntry& entry,
                                    PlanRequest wanted) {
  std::vector<std::string> backends = {wanted.backend};
  if (wanted.backend.empty()) {
    const bool has_gpu = wanted.gpu || !service.pool.host().gpus.empty();
    backends.clear();
    for (const contract::BackendKind& kind : contract::kBackendKinds) {
      if (kind.needs_gpu ? has_gpu : !wanted.gpu) backends.emplace_back(kind.name);
    }
  }
  Plans plans{entry.id, {}};
  for (const std::string& backend : backends) {
    wanted.backend = backend;
    Result<std::vector<MemoryPlan>> found = service.pool.plan(entry, wanted);
    if (!found.ok()) return found.error();
    std::move(found->begin(), found->end(), std::back_inserter(plans.plans));
  }
  return json_response(200, contract::write_fields(plans));
}

}  // namespace

json::Object to_json(const ShownModel& model) {
  json::Object object = contract::to_json(model.entry);
  contract::FieldWriter writer(object);
  describe_state(writer, model);
  return object;
}

ShownModel show_model_entry(const Service& service, const contract::ModelEntry& entry) {
  ShownModel shown{entry, std::string(catalog::state_of(entry))};
  if (!entry.downloaded && service.pool.downloads.is_busy_with(entry.id))
    shown.state = "downloading";
  return shown;
}

Result<http::Response> list_models(const Service& service, const http::Request& request) {
  return answer_query<ListQuery>(request, [&](const ListQuery& query) -> Result<http::Response> {
    const auto content = service.catalog.read();
    if (!content.ok()) return content.error();
    ModelList list{list_registered(service, **content), {}};
    if (query.known) list.known = list_known(service, **content);
    return json_response(200, contract::write_fields(list));
  });
}

Result<http::Response> list_outdated(const Service& service, const http::Request&) {
  const auto content = service.catalog.read();
  if (!content.ok()) return content.error();
  const RevisionList list{service.pool.check_revisions((*content)->models)};
  return json_response(200, contract::write_fields(list));
}

Result<http::Response> show_model(const Service& service, const http::Request& request) {
  return entry_response(service, 200, service.catalog.catalog().find(path_param(request, "id")));
}

Result<http::Response> register_model(const Service& service, const http::Request& request) {
  const auto add = [&](const catalog::RegisterRequest& wanted) {
    return entry_response(service, 201, catalog::register_model(service.catalog.catalog(), wanted));
  };
  return answer_body<catalog::RegisterRequest>(request, add, check_model_id);
}

Result<http::Response> update_model(const Service& service, const http::Request& request) {
  return answer_body<catalog::UpdateRequest>(request, [&](const catalog::UpdateRequest& wanted) {
    return entry_response(
        service, 200,
        catalog::update_model(service.catalog.catalog(), path_param(request, "id"), wanted,
                              find_uses(service)));
  });
}

Result<http::Response> remove_model(const Service& service, const http::Request& request) {
  return answer_query<RemoveQuery>(request, [&](const RemoveQuery& query) {
    return entry_response(
        service, 200,
        catalog::remove_model(service.catalog.catalog(), service.pool.home,
                              path_param(request, "id"), query.files, find_uses(service)));
  });
}

Result<http::Response> plan_model(const Service& service, const http::Request& request) {
  return answer_query<PlanRequest>(request,
                                   [&](const PlanRequest& wanted) -> Result<http::Response> {
                                     const Result<contract::ModelEntry> entry =
                                         service.catalog.catalog().find(path_param(request, "id"));
                                     if (!entry.ok()) return entry.error();
                                     return answer_plans(service, *entry, wanted);
                                   });
}

}  // namespace llorch::pool

namespace llorch::contract {

template <>
json::Object schema_of<pool::ShownModel>() {
  json::Object schema = schema_of<ModelEntry>();
  SchemaWriter writer(SchemaOf::Answer);
  const pool::ShownModel model;
  pool::describe_state(writer, model);
  const json::Object state = writer.finish();
  for (const auto& field : state.at("properties").get_object())
    schema["properties"].get_object()[field.key()] = field.value();
  return schema;
}

}  // namespace llorch::contract
