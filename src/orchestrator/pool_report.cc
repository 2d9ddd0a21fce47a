#include "orchestrator/pool_report.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/digest.h"
#include "contract/backend_kind.h"

namespace llorch::orchestrator {
namespace {

using contract::ExitCategory;
using contract::PoolWorkerState;

constexpr std::int64_t kNeedBesideWeights = std::int64_t{300} << 20U;  // cache, buffers, program
constexpr std::uint32_t kDevicesMax = 64;                              // bits of SeenModel

std::string text_of(const json::Object& object, std::string_view name) {
  const json::Value* value = object.if_contains(name);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

double number_of(const json::Object& object, std::string_view name) {
  const json::Value* value = object.if_contains(name);
  return value != nullptr && value->is_number() ? value->to_number<double>() : 0;
}

// Whole numbers, or texts that stand for one.
std::uint64_t count_of(const json::Object& object, std::string_view name) {
  const json::Value* value = object.if_contains(name);
  if (value == nullptr) return 0;
  if (value->is_uint64()) return value->get_uint64();
  if (value->is_int64())
    return static_cast<std::uint64_t>(std::max<std::int64_t>(0, value->get_int64()));
  if (!value->is_string() || value->get_string().empty()) return 0;
  const std::string hex = base::sha256_hex(std::string_view(value->get_string()));
  std::uint64_t number = 0;
  std::from_chars(hex.data(), hex.data() + 16, number, 16);
  return number;
}

const json::Array* array_of(const json::Object& object, std::string_view name) {
  const json::Value* value = object.if_contains(name);
  return value != nullptr && value->is_array() ? &value->get_array() : nullptr;
}

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

fleet::ModelHash hash_of_text(std::string_view text) {
  const auto hash = fleet::model_hash_from_text(base::sha256_hex(text).substr(0, 32));
  return hash.value_or(fleet::ModelHash{});
}

// The hash that a pool tells, or one made of the hashes of its files. Nothing: not known yet.
std::optional<fleet::ModelHash> hash_of_weights(const contract::ModelEntry& entry,
                                                std::string_view told) {
  if (told.size() >= 32) {
    if (const auto hash = fleet::model_hash_from_text(told.substr(0, 32))) return hash;
  }
  if (!told.empty()) return hash_of_text(told);
  if (!entry.downloaded) return std::nullopt;
  std::string all;
  for (const contract::ModelFile& file : entry.files) {
    if (file.sha256.empty()) return std::nullopt;
    all += file.sha256;
  }
  if (all.empty()) return std::nullopt;
  return hash_of_text(all);
}

std::uint64_t device_bits(const contract::ModelEntry& entry, const contract::HostInfo& host) {
  std::uint64_t bits = 0;
  for (const std::string& backend : entry.backends) {
    if (backend == contract::kCpu) bits |= 1U;
    if (backend != contract::kCuda) continue;
    for (const contract::GpuInfo& gpu : host.gpus) {
      const auto number = static_cast<std::uint32_t>(gpu.index) + 1;
      if (number < kDevicesMax) bits |= std::uint64_t{1} << number;
    }
  }
  return bits;
}

std::uint32_t device_of(const contract::PoolWorker& worker) {
  if (worker.backend == contract::kCpu) return kCpuDevice;
  return static_cast<std::uint32_t>(worker.gpu.value_or(0)) + 1;
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

fleet::SeenWorker make_seen_worker(const ReportedWorker& reported, const PoolReport& report,
                                   ModelBook& book) {
  const contract::PoolWorker& worker = reported.worker;
  fleet::SeenWorker seen;
  seen.id = worker.id;
  seen.start = reported.start;
  const auto entry = std::find_if(
      report.models.begin(), report.models.end(),
      [&worker](const ReportedModel& model) { return model.entry.id == worker.model; });
  seen.model = entry != report.models.end() ? book.find(entry->entry, entry->hash)
                                            : book.find_by_id(worker.model);
  seen.device = device_of(worker);
  seen.state = seen_state(worker.state);
  seen.cause = cause_of(worker.category);
  seen.slots = static_cast<std::uint16_t>(std::clamp(worker.slots, 1, 4096));
  seen.context = static_cast<std::uint32_t>(std::max(0, worker.context));
  seen.bytes = std::max(worker.planned.device_bytes(),
                        seen.device == kCpuDevice ? worker.memory_bytes : worker.vram_bytes);
  const bool is_cpu = seen.device == kCpuDevice;
  seen.exactness = hash_words({fleet::text(seen.model), worker.backend,
                               reported.build.empty() ? report.version : reported.build,
                               !reported.device_class.empty() ? reported.device_class
                               : is_cpu                       ? report.host.isa
                                                              : std::string("gpu")});
  seen.can_resume = !reported.build.empty();  // pools that name it relay ids
  seen.token_age_ms = static_cast<std::uint32_t>(
      std::clamp<std::int64_t>(worker.last_token_age_ms.value_or(0), 0, 0x7fffffff));
  return seen;
}

void add_models(const PoolReport& report, const std::vector<contract::ModelEntry>& known,
                ModelBook& book, fleet::PoolSeen& seen) {
  const auto add = [&](const contract::ModelEntry& entry, std::string_view hash,
                       std::int64_t need_bytes) {
    const std::uint64_t devices = device_bits(entry, report.host);
    if (devices == 0) return;
    if (!entry.downloaded && entry.repo.empty()) return;  // nowhere to be had
    fleet::SeenModel model;
    model.model = book.find(entry, hash);
    model.name = entry.id;
    model.weight_bytes = entry.size_bytes;
    model.need_bytes =
        need_bytes > 0 ? need_bytes : entry.size_bytes * 11 / 10 + kNeedBesideWeights;
    model.missing_bytes = entry.downloaded ? 0 : std::max<std::int64_t>(1, entry.size_bytes);
    model.context = static_cast<std::uint32_t>(
        std::clamp<std::int64_t>(entry.context_length.value_or(0), 0, 0x7fffffff));
    model.devices = devices;
    seen.models.push_back(std::move(model));
  };
  for (const ReportedModel& model : report.models) add(model.entry, model.hash, model.need_bytes);
  for (const contract::ModelEntry& entry : known) {
    const bool is_here =
        std::any_of(report.models.begin(), report.models.end(),
                    [&entry](const ReportedModel& model) { return model.entry.id == entry.id; });
    if (!is_here) add(entry, {}, 0);
  }
}

void add_devices(const contract::HostInfo& host, fleet::PoolSeen& seen) {
  seen.devices.push_back({.number = kCpuDevice,
                          .total_bytes = host.memory_total_bytes,
                          .free_bytes = host.memory_free_bytes});
  for (const contract::GpuInfo& gpu : host.gpus) {
    seen.devices.push_back({.number = static_cast<std::uint32_t>(gpu.index) + 1,
                            .total_bytes = gpu.vram_total_bytes,
                            .free_bytes = gpu.vram_free_bytes});
  }
}

void add_speeds(const PoolReport& report, ModelBook& book, fleet::PoolSeen& seen) {
  for (const ReportedSpeed& speed : report.speeds) {
    for (const fleet::SeenDevice& device : seen.devices) {
      if (backend_of_device(device.number) != speed.backend) continue;
      seen.speeds.push_back({.model = book.find_by_id(speed.model),
                             .device = device.number,
                             .prefill_tps = speed.prefill_tps,
                             .decode_tps = speed.decode_tps,
                             .load_ms = speed.load_ms});
    }
  }
}

// "decode_tps": {"1": 80, "4": 60}, or a list of {"streams","tps"}.
std::vector<std::pair<std::uint32_t, double>> read_decode_speeds(const json::Object& object) {
  std::vector<std::pair<std::uint32_t, double>> speeds;
  const json::Value* value = object.if_contains("decode_tps");
  if (value == nullptr) return speeds;
  if (value->is_number()) speeds.emplace_back(1U, value->to_number<double>());
  if (value->is_object()) {
    for (const auto& [streams, tps] : value->get_object()) {
      std::uint32_t number = 0;
      const std::string_view digits = streams;
      std::from_chars(digits.data(), digits.data() + digits.size(), number);
      if (number > 0 && tps.is_number()) speeds.emplace_back(number, tps.to_number<double>());
    }
  }
  if (value->is_array()) {
    for (const json::Value& one : value->get_array()) {
      if (!one.is_object()) continue;
      const auto streams = static_cast<std::uint32_t>(number_of(one.get_object(), "streams"));
      if (streams > 0) speeds.emplace_back(streams, number_of(one.get_object(), "tps"));
    }
  }
  std::sort(speeds.begin(), speeds.end());
  return speeds;
}

}  // namespace

std::string_view backend_of_device(std::uint32_t device) {
  return device == kCpuDevice ? contract::kCpu : contract::kCuda;
}

fleet::ModelHash ModelBook::find(const contract::ModelEntry& entry, std::string_view weights) {
  const auto hash = hash_of_weights(entry, weights);
  if (!hash) return find_by_id(entry.id);
  if (const auto alias = aliases_.find(*hash); alias != aliases_.end()) {
    by_id_[entry.id] = alias->second;
    return alias->second;
  }
  const auto known = by_id_.find(entry.id);
  const fleet::ModelHash by_name = hash_of_text("id:" + entry.id);
  if (known != by_id_.end() && known->second == by_name) {
    new_aliases_.emplace_back(*hash, by_name);
    aliases_.emplace(*hash, by_name);
    return by_name;
  }
  by_id_[entry.id] = *hash;
  return *hash;
}

fleet::ModelHash ModelBook::find_by_id(const std::string& id) {
  return by_id_.emplace(id, hash_of_text("id:" + id)).first->second;
}

Result<ReportedWorker> read_reported_worker(const json::Value& value) {
  Result<contract::PoolWorker> worker = contract::parse_pool_worker(value);
  if (!worker.ok()) return worker.error();
  const json::Object& object = value.get_object();
  ReportedWorker reported;
  reported.worker = worker.take();
  reported.start = static_cast<std::uint32_t>(count_of(object, "start"));
  if (reported.start == 0) {
    reported.start = static_cast<std::uint32_t>(
        hash_words({reported.worker.started_at, std::to_string(reported.worker.pid)}));
  }
  reported.model_hash = text_of(object, "model_hash");
  reported.build = text_of(object, "build");
  reported.device_class = text_of(object, "device_class");
  return reported;
}

Result<PoolReport> read_pool_report(const json::Value& state) {
  if (!state.is_object()) return Error{ErrorCode::Corrupt, "a pool's state: expected an object"};
  const json::Object& object = state.get_object();
  PoolReport report;
  report.pool_id = text_of(object, "pool_id");
  report.version = text_of(object, "version");
  report.start = count_of(object, "start");
  report.revision = count_of(object, "revision");
  const json::Value* host = object.if_contains("host");
  if (host == nullptr) return Error{ErrorCode::Corrupt, "a pool's state: there is no host in it"};
  Result<contract::HostInfo> info = contract::parse_host_info(*host);
  if (!info.ok()) return info.error().in("a pool's state");
  report.host = info.take();
  if (const json::Array* models = array_of(object, "models")) {
    for (const json::Value& model : *models) {
      Result<contract::ModelEntry> entry = contract::parse_model_entry(model, "a pool's model");
      if (!entry.ok()) continue;
      const json::Object& fields = model.get_object();
      report.models.push_back({entry.take(), text_of(fields, "model_hash"),
                               static_cast<std::int64_t>(count_of(fields, "need_bytes"))});
    }
  }
  if (const json::Array* workers = array_of(object, "workers")) {
    for (const json::Value& worker : *workers) {
      Result<ReportedWorker> read = read_reported_worker(worker);
      if (!read.ok()) return read.error().in("a pool's state");
      report.workers.push_back(read.take());
    }
  }
  if (const json::Array* speeds = array_of(object, "speeds")) {
    for (const json::Value& speed : *speeds) {
      if (!speed.is_object()) continue;
      const json::Object& fields = speed.get_object();
      report.speeds.push_back({text_of(fields, "model"), text_of(fields, "backend"),
                               number_of(fields, "prefill_tps"), read_decode_speeds(fields),
                               number_of(fields, "load_ms")});
    }
  }
  if (const json::Array* labels = array_of(object, "labels")) {
    for (const json::Value& label : *labels) {
      if (label.is_string()) report.labels.emplace_back(label.get_string());
    }
  }
  return report;
}

std::vector<contract::ModelEntry> read_known_models(const json::Value& answer) {
  std::vector<contract::ModelEntry> known;
  if (!answer.is_object()) return known;
  if (const json::Array* models = array_of(answer.get_object(), "known")) {
    for (const json::Value& model : *models) {
      Result<contract::ModelEntry> entry = contract::parse_model_entry(model, "a known model");
      if (entry.ok()) known.push_back(entry.take());
    }
  }
  return known;
}

fleet::PoolSeen make_pool_seen(const fleet::HostId& host, const PoolReport& report,
                               const std::vector<contract::ModelEntry>& known, ModelBook& book) {
  fleet::PoolSeen seen;
  seen.host = host;
  seen.pool_start = report.start;
  seen.revision = report.revision;
  add_devices(report.host, seen);
  add_models(report, known, book, seen);
  for (const ReportedWorker& worker : report.workers)
    seen.workers.push_back(make_seen_worker(worker, report, book));
  // A model whose worker runs is known by what that worker needs.
  for (fleet::SeenModel& model : seen.models) {
    for (const fleet::SeenWorker& worker : seen.workers) {
      if (worker.model == model.model && worker.bytes > 0 &&
          worker.state != fleet::SeenState::Ended)
        model.need_bytes = worker.bytes;
    }
  }
  add_speeds(report, book, seen);
  seen.labels = report.labels;
  seen.disk_free_bytes = report.host.disk_free_bytes;
  return seen;
}

}  // namespace llorch::orchestrator
