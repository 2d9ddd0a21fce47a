#include "contract/pool_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/digest.h"
#include "contract/backend_kind.h"
#include "contract/peer_message.h"
#include "contract/pool_info_fields.h"

namespace llorch::contract {
namespace {

constexpr std::size_t kHashDigits = 32;
constexpr std::size_t kModelsMax = 100'000;
constexpr std::size_t kWorkersMax = 4'096;
constexpr std::size_t kSpeedsMax = 10'000;
constexpr std::size_t kStreamStepsMax = 64;
constexpr std::size_t kLabelBytesMax = 64;

std::string short_hash(std::string_view text) {
  return base::sha256_hex(text).substr(0, kHashDigits);
}

}  // namespace

template <class V, Described<PoolDevice> T>
void describe(V& v, T& device) {
  v("number", device.number, {.must = true, .min = 0});
  v("backend", device.backend);
  v("name", device.name);
  v("total_bytes", device.total_bytes);
  v("free_bytes", device.free_bytes);
  v("bytes_per_second", device.bytes_per_second);
}

template <class V, Described<PoolModel> T>
void describe(V& v, T& model) {
  v("id", model.id, {.must = true, .bytes = {.min_bytes = 1}});
  v("name", model.name);
  v("model_hash", model.model_hash);
  v("downloaded", model.downloaded);
  v("backends", model.backends);
  v("weight_bytes", model.weight_bytes);
  v("need_bytes", model.need_bytes);
  v("missing_bytes", model.missing_bytes);
  v("context", model.context);
}

template <class V, Described<StreamSpeed> T>
void describe(V& v, T& speed) {
  v("streams", speed.streams, {.must = true, .min = 1});
  v("tps", speed.tps, {.must = true, .min = 0, .thousandths = true});
}

template <class V, Described<ModelSpeed> T>
void describe(V& v, T& speed) {
  v("model", speed.model);
  v("model_hash", speed.model_hash, {.must = true});
  v("backend", speed.backend);
  v("device", speed.device, {.min = 0});
  v("prefill_tps", speed.prefill_tps, {.min = 0, .thousandths = true});
  v("decode_tps", speed.decode_tps, {.max_items = kStreamStepsMax});
  v("load_ms", speed.load_ms, {.min = 0, .thousandths = true});
  v("samples", speed.samples, {.min = 0});
  v("measured_at", speed.measured_at);
}

template <class V, Described<PoolState> T>
void describe(V& v, T& state) {
  v("pool_id", state.pool_id);
  v("version", state.version);
  v("api", state.api);
  v("features", state.features);
  v("pool_start", state.pool_start);
  v("revision", state.revision);
  v("uptime_seconds", state.uptime_seconds);
  v("labels", state.labels);
  v("host", state.host);
  v("devices", state.devices, {.max_items = kGpusMax});
  v("models", state.models, {.max_items = kModelsMax});
  v("known", state.known, {.max_items = kModelsMax});
  v("workers", state.workers, {.max_items = kWorkersMax});
  v("speeds", state.speeds, {.max_items = kSpeedsMax});
}

std::string model_hash(const ModelEntry& model, std::string_view place) {
  if (model.path == kBuiltinModel) return short_hash(kBuiltinModel);
  const bool has_hashes =
      !model.files.empty() &&
      std::all_of(model.files.begin(), model.files.end(),
                  [](const ModelFile& file) { return file.sha256.size() >= kHashDigits; });
  if (has_hashes && model.files.size() == 1)
    return model.files.front().sha256.substr(0, kHashDigits);
  if (has_hashes) {
    std::map<std::string_view, std::string_view> by_path;
    for (const ModelFile& file : model.files) by_path.emplace(file.path, file.sha256);
    std::string text;
    for (const auto& [path, sha256] : by_path) text += fmt::format("{} {}\n", path, sha256);
    return short_hash(text);
  }
  if (!model.downloaded && !model.repo.empty()) return short_hash("source " + model.repo);
  std::string text = fmt::format("unseen {} {} {}", place, model.id, model.path);
  for (const ModelFile& file : model.files)
    text += fmt::format("\n{} {} {} {}", file.path, file.size, file.modified_ms, file.inode);
  return short_hash(text);
}

std::int32_t device_number(std::string_view backend, std::int32_t gpu) {
  return needs_gpu(backend) ? 1 + gpu : 0;
}

bool PoolState::has_feature(std::string_view name) const {
  return std::find(features.begin(), features.end(), name) != features.end();
}

Result<PoolState> parse_pool_state(const json::Value& value) {
  return read_peer<PoolState>("pool state", value);
}
Result<ModelSpeed> parse_model_speed(const json::Value& value) {
  return read_peer<ModelSpeed>("speed", value);
}
json::Object to_json(const PoolState& state) {
  return write_fields(state);
}
json::Object to_json(const PoolModel& model) {
  return write_fields(model);
}
json::Object to_json(const PoolDevice& device) {
  return write_fields(device);
}
json::Object to_json(const ModelSpeed& speed) {
  return write_fields(speed);
}
template <>
json::Object schema_of<PoolState>() {
  return described_schema<PoolState>(SchemaOf::Answer);
}
template <>
json::Object schema_of<PoolModel>() {
  return described_schema<PoolModel>(SchemaOf::Answer);
}
template <>
json::Object schema_of<PoolDevice>() {
  return described_schema<PoolDevice>(SchemaOf::Answer);
}
template <>
json::Object schema_of<ModelSpeed>() {
  return described_schema<ModelSpeed>(SchemaOf::Answer);
}

bool is_label(std::string_view text) {
  return !text.empty() && text.size() <= kLabelBytesMax &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  std::string_view("._=/-").find(c) != std::string_view::npos;
         });
}

}  // namespace llorch::contract
