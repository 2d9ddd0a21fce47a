#include "pool/state_routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "base/version.h"
#include "contract/backend_kind.h"
#include "pool/bodies.h"
#include "pool/download_routes.h"
#include "pool/fence.h"
#include "pool/model_routes.h"
#include "pool/need_book.h"
#include "pool/state_board.h"

namespace llorch::pool {
namespace {

using Clock = std::chrono::steady_clock;
using contract::PoolModel;

// Files and downloads tell nobody that they change: they are looked at.
constexpr std::chrono::milliseconds kLook{500};
constexpr std::size_t kPlansPerLook = 2;

PoolModel describe_model(const Service& service, const contract::ModelEntry& entry,
                         std::string_view pool_id) {
  PoolModel model;
  model.id = entry.id;
  model.name = entry.name;
  model.model_hash = contract::model_hash(entry, pool_id);
  model.downloaded = entry.downloaded;
  model.backends = entry.backends;
  model.weight_bytes = entry.size_bytes;
  model.missing_bytes = entry.downloaded ? 0 : entry.size_bytes;
  model.context = entry.context_length.value_or(0);
  model.need_bytes = service.needs.find(model.model_hash).value_or(0);
  return model;
}

bool is_builtin(const contract::ModelEntry& entry) {
  return entry.path == contract::kBuiltinModel;
}

// The catalog's models, and the built-in one where it is not among them.
std::vector<const contract::ModelEntry*> list_entries(const Service& service,
                                                      const catalog::CatalogContent& catalog) {
  std::vector<const contract::ModelEntry*> entries;
  for (const contract::ModelEntry& known : service.known_models) {
    if (is_builtin(known) && catalog.find(known.id) == nullptr) entries.push_back(&known);
  }
  for (const contract::ModelEntry& entry : catalog.models) entries.push_back(&entry);
  return entries;
}

// Looks at what tells nobody when it changes; a few memory plans are made on the way. Blocks.
Result<std::uint64_t> look(const Service& service) {
  const auto catalog = service.catalog.read();
  if (!catalog.ok()) return catalog.error();
  const std::string& pool_id = (*catalog)->pool_id;
  std::vector<PlannedModel> to_plan;
  for (const contract::ModelEntry* entry : list_entries(service, **catalog)) {
    if (entry->downloaded) to_plan.push_back({contract::model_hash(*entry, pool_id), entry});
  }
  service.needs.learn(to_plan, service.pool.plan, kPlansPerLook);
  std::string digest = fmt::format("{} {} {} {}", pool_id, (*catalog)->models.size(),
                                   service.needs.version(), service.pool.speeds.version());
  for (const contract::ModelEntry* entry : list_entries(service, **catalog)) {
    fmt::format_to(std::back_inserter(digest), "\n{} {} {}", entry->id, entry->updated_at,
                   entry->downloaded);
  }
  for (const DownloadStatus& status : service.pool.downloads.list())
    fmt::format_to(std::back_inserter(digest), "\n{} {}", status.id,
                   static_cast<int>(status.state));
  service.pool.board.take_rest(std::move(digest));
  return service.pool.board.revision();
}

std::vector<std::string> list_features() {
  return {std::string(contract::kFeatureRelay),     std::string(contract::kFeatureBoot),
          std::string(contract::kFeatureStateWait), std::string(contract::kFeatureUnixSocket),
          std::string(contract::kFeatureSpeeds),    std::string(contract::kFeatureOnDemand)};
}

Result<http::Response> state_response(const Service& service) {
  contract::PoolState state;
  state.revision = service.pool.board.revision();  // before the rest: a change after it is seen
  const auto catalog = service.catalog.read();
  if (!catalog.ok()) return catalog.error();
  state.pool_id = (*catalog)->pool_id;
  state.version = base::version();
  state.features = list_features();
  state.pool_start = service.pool.board.pool_start();
  state.uptime_seconds = std::chrono::duration<double>(Clock::now() - service.started).count();
  state.labels = service.pool.labels;
  state.host = service.pool.host();
  state.workers = service.pool.workers.workers();
  state.speeds = service.pool.speeds.list();
  state.devices = list_devices(state.host, state.workers);
  for (const contract::ModelEntry& known : service.known_models) {
    if (!is_builtin(known) && (*catalog)->find(known.id) == nullptr)
      state.known.push_back(describe_model(service, known, state.pool_id));
  }
  json::Object body = contract::to_json(state);
  // A model's entry has its own fields and, among them, those of PoolModel.
  json::Array models;
  for (const contract::ModelEntry* entry : list_entries(service, **catalog)) {
    json::Object object = to_json(show_model_entry(service, *entry));
    for (auto& [name, value] : contract::to_json(describe_model(service, *entry, state.pool_id)))
      object[name] = std::move(value);
    models.emplace_back(std::move(object));
  }
  body["models"] = std::move(models);
  for (auto& field : contract::write_fields(all_downloads(service)))
    body[field.key()] = field.value();
  return json_response(200, body);
}

}  // namespace

std::vector<contract::PoolDevice> list_devices(const contract::HostInfo& host,
                                               const std::vector<contract::PoolWorker>& workers) {
  std::vector<contract::PoolDevice> devices;
  devices.push_back({0, std::string(contract::kCpu), host.cpu, host.memory_total_bytes,
                     host.memory_free_bytes, 0});
  for (const contract::GpuInfo& gpu : host.gpus) {
    devices.push_back({contract::device_number(contract::kCuda, gpu.index),
                       std::string(contract::kCuda), gpu.name, gpu.vram_total_bytes,
                       gpu.vram_free_bytes, 0});
  }
  for (contract::PoolDevice& device : devices) {
    for (const contract::PoolWorker& worker : workers) {
      if (worker.device == device.number) device.free_bytes -= worker.promised_bytes;
    }
    device.free_bytes = std::max<std::int64_t>(0, device.free_bytes);
  }
  return devices;
}

http::Task<Status> show_state(ServicePtr service, const http::Request& request,
                              http::Responder& responder) {
  std::vector<json::FieldError> errors;
  const auto query = read_fields<StateQuery>(read_query(request), errors);
  if (!errors.empty())
    co_return co_await responder.send(failures_response(request, std::move(errors)));
  const Result<std::optional<std::uint64_t>> boot = boot_of(request.headers);
  if (!boot.ok()) co_return boot.error();
  if (boot->has_value()) {
    const Status heard = service->pool.fence.hear(**boot, Clock::now());
    if (!heard.ok()) co_return heard;
  }
  const Clock::time_point deadline = Clock::now() + std::chrono::milliseconds(query.wait_ms);
  StateBoard::Watch watch(service->pool.board);
  responder.on_disconnect([waker = watch.waker()]() mutable { waker.notify(); });
  while (!responder.is_closed()) {
    std::function<Result<std::uint64_t>()> look_now = [service] { return look(*service); };
    const Result<std::uint64_t> revision = co_await service->pool.threads.run(std::move(look_now));
    if (!revision.ok()) co_return revision.error();
    if (!query.since || *query.since != *revision || Clock::now() >= deadline ||
        service->pool.phase() != PoolPhase::Serving)
      break;
    co_await watch.waker().wait_until(std::min(deadline, Clock::now() + kLook));
  }
  std::function<Result<http::Response>()> answer = [service] { return state_response(*service); };
  Result<http::Response> response = co_await service->pool.threads.run(std::move(answer));
  if (!response.ok()) co_return response.error();
  co_return co_await responder.send(response.take());
}

}  // namespace llorch::pool
