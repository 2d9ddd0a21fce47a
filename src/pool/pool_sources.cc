#include "pool/pool_sources.h"

#include <memory>

#include "catalog/known_models.h"
#include "catalog/model_catalog.h"
#include "catalog/trust.h"
#include "contract/pool_state.h"
#include "pool/devices.h"

namespace llorch::pool {
namespace {

Result<contract::ModelEntry> find_model(const catalog::ModelCatalog& catalog, std::string_view id) {
  Result<contract::ModelEntry> found = catalog.find(id);
  if (found.ok() || found.error().code != ErrorCode::NotFound) return found;
  // The built-in model is always here, registered or not.
  for (contract::ModelEntry& known : catalog::known_models()) {
    if (known.id == id && known.downloaded) return std::move(known);
  }
  return found;
}

}  // namespace

PoolSources system_sources(const base::Home& home, const Planner& planner) {
  const auto devices = std::make_shared<const Devices>();
  PoolSources sources;
  sources.find_model = [catalog = catalog::ModelCatalog(home.catalog_file())](std::string_view id) {
    return find_model(catalog, id);
  };
  sources.trust = [home](const contract::ModelEntry& model) {
    return catalog::trust_model(home, model);
  };
  sources.read_host = [devices, models = home.models()] { return devices->read(models); };
  sources.plan = [planner](const contract::ModelEntry& model, const PlanRequest& request,
                           const contract::HostInfo& host) {
    return planner.plan(model, request, host);
  };
  sources.worker_flags = worker_flags;
  sources.keep_measurement = [planner](const contract::ModelEntry& model, std::string_view backend,
                                       const contract::MemoryNeed& need, std::int64_t peak_bytes) {
    return planner.keep_measurement(model, backend, need, peak_bytes);
  };
  sources.model_hash = [catalog = catalog::ModelCatalog(home.catalog_file())](
                           const contract::ModelEntry& model) -> std::string {
    const Result<catalog::CatalogContent> content = catalog.read();
    return contract::model_hash(model, content.ok() ? content->pool_id : std::string());
  };
  sources.vram_of_process = [devices](std::int32_t gpu, std::int64_t pid) {
    return devices->vram_of_process(gpu, pid);
  };
  return sources;
}

}  // namespace llorch::pool
