#include "orchestrator/pool_report.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <optional>

#include "base/digest.h"
#include "contract/backend_kind.h"
#include "contract/download_event.h"

namespace llorch::orchestrator {
namespace {

using contract::ExitCategory;
using contract::PoolWorkerState;

constexpr std::int64_t kNeedBesideWeights = std::int64_t{300} << 20U;  // where nobody has planned
constexpr std::uint32_t kDevicesMax = 64;                              // bits of SeenModel
constexpr std::size_t kHashDigits = 32;

std::uint64_t hash_words(std::initializer_list<std::string_view> words) {
  base::Digest digest;
  for (const std::string_view word : words) {
    digest.add(word);
    digest.add(std::string_view("\0", 1));
  }
  const std::string hex = digest.finish_hex();
  std::uint64_t number = 0;
  std::from_chars(hex.data(), hex.data() + 16, number, 16);
  return number;
}

// Pools name models by hash; an older one only by id.
fleet::ModelHash hash_from(std::string_view hash, std::string_view id) {
  if (const auto told = fleet::model_hash_from_text(hash)) return *told;
  const std::string made = base::sha256_hex("id:" + std::string(id)).substr(0, kHashDigits);
  return fleet::model_hash_from_text(made).value_or(fleet::ModelHash{});
}

// Those of an older pool are made of what it says about its host.
std::vector<contract::PoolDevice> devices_of(const contract::PoolState& state) {
  if (!state.devices.empty()) return state.devices;
  std::vector<contract::PoolDevice> devices;
  contract::PoolDevice cpu;
  cpu.backend = contract::kCpu;
  cpu.total_bytes = state.host.memory_total_bytes;
  cpu.free_bytes = state.host.memory_free_bytes;
  devices.push_back(cpu);
  for (const contract::GpuInfo& gpu : state.host.gpus) {
    contract::PoolDevice device;
    device.number = gpu.index + 1;
    device.backend = contract::kCuda;
    device.name = gpu.name;
    device.total_bytes = gpu.vram_total_bytes;
    device.free_bytes = gpu.vram_free_bytes;
    devices.push_back(device);
  }
  return devices;
}

std::uint64_t device_bits(const contract::PoolModel& model,
                          const std::vector<contract::PoolDevice>& devices) {
  std::uint64_t bits = 0;
  for (const contract::PoolDevice& device : devices) {
    const auto number = static_cast<std::uint32_t>(device.number);
    const bool fits = std::find(model.backends.begin(), model.backends.end(), device.backend) !=
                      model.backends.end();
    if (fits && number < kDevicesMax) bits |= std::uint64_t{1} << number;
  }
  return bits;
}

fleet::SeenState seen_state(PoolWorkerState state) {
  switch (state) {
    case PoolWorkerState::Starting:
      return fleet::SeenState::Loading;
    case PoolWorkerState::Ready:
    case PoolWorkerState::Busy:
      return fleet::SeenState::Serving;
    case PoolWorkerState::Draining:
      return fleet::SeenState::Draining;
    case PoolWorkerState::Stopped:
    case PoolWorkerState::Failed:
      break;
  }
  return fleet::SeenState::Ended;
}

std::optional<fleet::LossCause> cause_of(ExitCategory category) {
  switch (category) {
    case ExitCategory::None:
    case ExitCategory::Stopped:
      return std::nullopt;
    case ExitCategory::StartFailed:
    case ExitCategory::Timeout:
      return fleet::LossCause::WorkerError;
    case ExitCategory::Crash:
      return fleet::LossCause::Crash;
    case ExitCategory::OomKill:
      return fleet::LossCause::OutOfMemory;
    case ExitCategory::Hang:
      return fleet::LossCause::Hang;
  }
  return std::nullopt;
}

}  // namespace

std::string_view backend_of_device(std::uint32_t device) {
  return device == kCpuDevice ? contract::kCpu : contract::kCuda;
}

bool was_accident(const contract::PoolWorker& worker) {
  return worker.category != ExitCategory::StartFailed || worker.exit_signal.has_value();
}

std::uint32_t start_of(const contract::PoolWorker& worker) {
  if (worker.start != 0) return worker.start;
  return static_cast<std::uint32_t>(hash_words({worker.id, worker.started_at}));
}

fleet::ModelHash ModelBook::resolve(const fleet::ModelHash& hash) const {
  const auto alias = aliases_.find(hash);
  return alias == aliases_.end() ? hash : alias->second;
}

fleet::ModelHash ModelBook::find(const contract::PoolModel& model) {
  const fleet::ModelHash own = resolve(hash_from(model.model_hash, model.id));
  const auto known = by_id_.find(model.id);
  if (known == by_id_.end()) {
    by_id_.emplace(model.id, Known{own, !model.downloaded});
    return own;
  }
  if (known->second.hash == own) return own;
  if (!model.downloaded) return known->second.hash;  // some host has it, and so knows its hash
  if (known->second.is_provisional) {
    new_aliases_.emplace_back(own, known->second.hash);
    aliases_.emplace(own, known->second.hash);
    known->second.is_provisional = false;
    return known->second.hash;
  }
  return own;  // two models of one name
}

fleet::ModelHash ModelBook::find(std::string_view hash, const std::string& id) {
  if (hash.empty()) {
    if (const auto known = by_id_.find(id); known != by_id_.end()) return known->second.hash;
  }
  return resolve(hash_from(hash, id));
}

fleet::SeenWorker make_seen_worker(const contract::PoolWorker& worker, ModelBook& book) {
  fleet::SeenWorker seen;
  seen.id = worker.id;
  seen.start = start_of(worker);
  seen.model = book.find(worker.model_hash, worker.model);
  seen.device = static_cast<std::uint32_t>(std::max(0, worker.device));
  if (worker.gpu && worker.device == 0) seen.device = static_cast<std::uint32_t>(*worker.gpu) + 1;
  seen.state = seen_state(worker.state);
  seen.cause = cause_of(worker.category);
  seen.slots = static_cast<std::uint16_t>(std::clamp(worker.slots, 1, 4096));
  seen.context = static_cast<std::uint32_t>(std::max(0, worker.context));
  seen.bytes = std::max(worker.planned.device_bytes(),
                        seen.device == kCpuDevice ? worker.memory_bytes : worker.vram_bytes);
  seen.exactness =
      hash_words({fleet::text(seen.model), worker.backend, worker.build, worker.device_class});
  seen.can_resume = worker.can_resume;
  seen.ready_in_ms = static_cast<double>(worker.ready_in_ms.value_or(0));
  seen.token_age_ms = static_cast<std::uint32_t>(
      std::clamp<std::int64_t>(worker.last_token_age_ms.value_or(0), 0, 0x7fffffff));
  return seen;
}

std::vector<contract::FleetLoad> list_downloads(const fleet::HostId& host,
                                                const json::Value& state) {
  std::vector<contract::FleetLoad> shown;
  const json::Object* object = state.if_object();
  const json::Value* list = object == nullptr ? nullptr : object->if_contains("downloads");
  if (list == nullptr || !list->is_array()) return shown;
  for (const json::Value& entry : list->get_array()) {
    const json::Object* download = entry.if_object();
    if (download == nullptr || shown.size() == kDownloadsShown) break;
    const auto text = [download](std::string_view name) -> std::string_view {
      const json::Value* field = download->if_contains(name);
      return field != nullptr && field->is_string() ? std::string_view(field->get_string())
                                                    : std::string_view();
    };
    const bool is_running = text("state") == "running";
    if (!is_running && text("state") != "queued") continue;
    contract::FleetLoad load;
    load.host = host;
    load.model = text("model");
    load.stage = !is_running ? "queued" : text("kind") == "verify" ? "verifying" : "fetching";
    const json::Value* field = download->if_contains("progress");
    if (field != nullptr && field->is_object()) {
      const auto progress = contract::read_download_event(field->get_object());
      if (progress.bytes_total > 0) {
        load.progress =
            static_cast<double>(progress.bytes_done) / static_cast<double>(progress.bytes_total);
      }
      load.eta_ms = 1000 * progress.seconds_left.value_or(0);
    }
    shown.push_back(std::move(load));
  }
  return shown;
}

fleet::PoolSeen make_pool_seen(const fleet::HostId& host, const contract::PoolState& state,
                               ModelBook& book) {
  fleet::PoolSeen seen;
  seen.host = host;
  seen.pool_start = state.pool_start;
  seen.revision = state.revision;
  const std::vector<contract::PoolDevice> devices = devices_of(state);
  for (const contract::PoolDevice& device : devices) {
    seen.devices.push_back({.number = static_cast<std::uint32_t>(device.number),
                            .total_bytes = device.total_bytes,
                            .free_bytes = device.free_bytes,
                            .bytes_per_second = static_cast<double>(device.bytes_per_second)});
  }
  const auto add_model = [&](const contract::PoolModel& model) {
    const std::uint64_t bits = device_bits(model, devices);
    if (bits == 0) return;
    const std::int64_t guess = model.weight_bytes * 11 / 10 + kNeedBesideWeights;
    seen.models.push_back(
        {.model = book.find(model),
         .name = model.id,
         .weight_bytes = model.weight_bytes,
         .need_bytes = model.need_bytes > 0 ? model.need_bytes : guess,
         .missing_bytes = model.downloaded ? 0 : std::max<std::int64_t>(1, model.missing_bytes),
         .context =
             static_cast<std::uint32_t>(std::clamp<std::int64_t>(model.context, 0, 0x7fffffff)),
         .devices = bits});
  };
  for (const contract::PoolModel& model : state.models) add_model(model);
  for (const contract::PoolModel& model : state.known) add_model(model);
  // A pool that does not tell whose its workers are has none that stay.
  const bool tells_whose = state.has_feature(contract::kFeatureOnDemand);
  for (const contract::PoolWorker& worker : state.workers) {
    fleet::SeenWorker& one = seen.workers.emplace_back(make_seen_worker(worker, book));
    one.is_pinned = tells_whose && !worker.on_demand;
  }
  for (const contract::ModelSpeed& speed : state.speeds) {
    fleet::SeenSpeed one{.model = book.find(speed.model_hash, speed.model),
                         .device = static_cast<std::uint32_t>(speed.device),
                         .prefill_tps = speed.prefill_tps,
                         .decode_tps = {},
                         .load_ms = speed.load_ms};
    for (const contract::StreamSpeed& streams : speed.decode_tps)
      one.decode_tps.emplace_back(static_cast<std::uint32_t>(streams.streams), streams.tps);
    seen.speeds.push_back(std::move(one));
  }
  seen.labels = state.labels;
  seen.disk_free_bytes = state.host.disk_free_bytes;
  return seen;
}

}  // namespace llorch::orchestrator
