#include "pool/speed_book.h"

#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "base/json.h"
#include "base/timestamp.h"

namespace llorch::pool {
namespace {

constexpr std::size_t kFileBytesMax = std::size_t{4} << 20;
constexpr std::chrono::seconds kSavePause{10};
constexpr double kWeight = 0.125;  // of the newest
constexpr double kMoved = 0.1;     // in parts of the value: worth telling

}  // namespace

SpeedBook::SpeedBook(std::filesystem::path file) : file_(std::move(file)) {
  const Result<std::string> text = base::read_text_file(file_, kFileBytesMax);
  if (!text.ok()) return;
  const Result<json::Value> root = json::parse(*text);
  if (!root.ok() || !root->is_object()) return;
  const json::Value* list = root->get_object().if_contains("speeds");
  if (list == nullptr || !list->is_array()) return;
  const base::MutexLock lock(mutex_);
  for (const json::Value& item : list->get_array()) {
    Result<contract::ModelSpeed> speed = contract::parse_model_speed(item);
    if (!speed.ok() || speeds_.size() >= kSpeedsMax) continue;
    const Key key{speed->model_hash, speed->device};
    speeds_.insert_or_assign(key, speed.take());
  }
}

// Null: nobody knows what that worker runs.
contract::ModelSpeed* SpeedBook::row(const contract::PoolWorker& worker) {
  if (worker.model_hash.empty()) return nullptr;
  contract::ModelSpeed& speed = speeds_[{worker.model_hash, worker.device}];
  speed.model = worker.model;
  speed.model_hash = worker.model_hash;
  speed.backend = worker.backend;
  speed.device = worker.device;
  speed.measured_at = base::to_rfc3339(std::chrono::system_clock::now());
  changed_ = true;
  if (speeds_.size() > kSpeedsMax) {
    const auto oldest = std::min_element(
        speeds_.begin(), speeds_.end(),
        [](const auto& a, const auto& b) { return a.second.measured_at < b.second.measured_at; });
    if (&oldest->second != &speed) speeds_.erase(oldest);
  }
  return &speed;
}

void SpeedBook::blend(double& value, double sample) {
  const double before = value;
  value =
      value > 0 ? std::exp((1 - kWeight) * std::log(value) + kWeight * std::log(sample)) : sample;
  if (std::abs(value - before) > kMoved * before) ++version_;
}

void SpeedBook::add(const contract::PoolWorker& worker, const std::vector<SpeedSample>& samples) {
  if (samples.empty()) return;
  const base::MutexLock lock(mutex_);
  contract::ModelSpeed* speed = row(worker);
  if (speed == nullptr) return;
  for (const SpeedSample& sample : samples) {
    if (!(sample.tps > 0)) continue;
    ++speed->samples;
    if (sample.streams == 0) {
      blend(speed->prefill_tps, sample.tps);
      continue;
    }
    auto at = std::find_if(speed->decode_tps.begin(), speed->decode_tps.end(),
                           [&](const auto& one) { return one.streams >= sample.streams; });
    if (at == speed->decode_tps.end() || at->streams != sample.streams)
      at = speed->decode_tps.insert(at, {sample.streams, 0});
    blend(at->tps, sample.tps);
  }
}

void SpeedBook::add_load(const contract::PoolWorker& worker, double millis) {
  if (!(millis > 0)) return;
  const base::MutexLock lock(mutex_);
  contract::ModelSpeed* speed = row(worker);
  if (speed == nullptr) return;
  ++speed->samples;
  blend(speed->load_ms, millis);
}

std::vector<contract::ModelSpeed> SpeedBook::list() const {
  const base::MutexLock lock(mutex_);
  std::vector<contract::ModelSpeed> all;
  for (const auto& [key, speed] : speeds_) all.push_back(speed);
  return all;
}

std::uint64_t SpeedBook::version() const {
  const base::MutexLock lock(mutex_);
  return version_;
}

Status SpeedBook::save(bool now) {
  json::Array list;
  {
    const base::MutexLock lock(mutex_);
    const auto time = std::chrono::steady_clock::now();
    if (file_.empty() || !changed_ || (!now && time - saved_ < kSavePause)) return ok_status();
    changed_ = false;
    saved_ = time;
    for (const auto& [key, speed] : speeds_) list.push_back(contract::to_json(speed));
  }
  const json::Object root{{"version", "1.0"}, {"speeds", std::move(list)}};
  return base::write_file_atomically(file_, json::serialize(root) + "\n");
}

}  // namespace llorch::pool
