#include "contract/worker_info.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/json_fields.h"
#include "base/utf8.h"
#include "contract/peer_message.h"

namespace llorch::contract {
namespace {

constexpr std::int64_t kInt64Max = std::numeric_limits<std::int64_t>::max();
constexpr std::array<std::string_view, 4> kStatusNames = {"healthy", "loading", "unhealthy",
                                                          "draining"};
constexpr std::size_t kCapabilitiesMax = 64;

// The fields of a report that are plain text or plain counts, each named once for both ways.
struct TextField {
  std::string_view name;
  std::string HealthReport::*member;
};
constexpr std::array kTexts = {
    TextField{"model", &HealthReport::model},
    TextField{"architecture", &HealthReport::architecture},
    TextField{"quant_kind", &HealthReport::quant_kind},
    TextField{"tokenizer_kind", &HealthReport::tokenizer_kind},
    TextField{"backend", &HealthReport::backend},
    TextField{"device", &HealthReport::device},
    TextField{"version", &HealthReport::version},
};
struct CountField {
  std::string_view name;
  std::int64_t HealthReport::*member;
};
constexpr std::array kCounts = {
    CountField{"memory_bytes", &HealthReport::memory_bytes},
    CountField{"vocab_size", &HealthReport::vocab_size},
    CountField{"context_length", &HealthReport::context_length},
    CountField{"queue_depth", &HealthReport::queue_depth},
    CountField{"slots_total", &HealthReport::slots_total},
    CountField{"slots_busy", &HealthReport::slots_busy},
    CountField{"kv_blocks_total", &HealthReport::kv_blocks_total},
    CountField{"kv_blocks_free", &HealthReport::kv_blocks_free},
};

double to_millisecond(double seconds) {
  return std::round(seconds * 1000) / 1000;
}

WorkerStatus read_status(json::FieldReader& reader) {
  const std::string text = reader.required_string("status");
  const std::optional<WorkerStatus> status = worker_status_from_name(text);
  if (!status) reader.fail("status", "worker status", "is unknown: " + base::quoted(text));
  return status.value_or(WorkerStatus::Unhealthy);
}

}  // namespace

std::string_view name(WorkerStatus status) {
  return kStatusNames[static_cast<std::size_t>(status)];
}

std::optional<WorkerStatus> worker_status_from_name(std::string_view text) {
  const auto* found = std::find(kStatusNames.begin(), kStatusNames.end(), text);
  if (found == kStatusNames.end()) return std::nullopt;
  return static_cast<WorkerStatus>(found - kStatusNames.begin());
}

int http_status(WorkerStatus status) {
  return status == WorkerStatus::Healthy ? 200 : 503;
}

json::Object to_json(const HealthReport& report) {
  json::Object object{{"status", name(report.status)},
                      {"model_loaded", report.model_loaded},
                      {"vram_bytes", report.vram_bytes},
                      {"memory_type", base::to_valid_utf8(report.memory_type)}};
  if (report.load_progress) object["load_progress"] = *report.load_progress;
  if (!report.reason.empty()) object["reason"] = base::to_valid_utf8(report.reason);
  for (const TextField& field : kTexts) {
    object[field.name] = base::to_valid_utf8(report.*field.member);
  }
  for (const CountField& field : kCounts) object[field.name] = report.*field.member;
  object["chat_template"] = report.chat_template;
  object["uptime_seconds"] = to_millisecond(report.uptime_seconds);
  if (report.last_token_age_ms) {
    object["last_token_age_ms"] = *report.last_token_age_ms;
  } else {
    object["last_token_age_ms"] = nullptr;
  }
  return object;
}

Result<HealthReport> parse_health_report(std::string_view body) {
  Result<json::Object> object = parse_peer_object("health report", body);
  if (!object.ok()) return object.error();
  json::FieldReader reader(object.value());
  HealthReport report;
  report.status = read_status(reader);
  report.model_loaded = reader.required_bool("model_loaded");
  report.vram_bytes = reader.required_integer("vram_bytes", 0, kInt64Max);
  report.memory_type = reader.required_string("memory_type");
  report.load_progress = reader.optional_number("load_progress", {.min = 0, .max = 1});
  report.reason = reader.optional_string("reason").value_or("");
  for (const TextField& field : kTexts) {
    report.*field.member = reader.optional_string(field.name).value_or("");
  }
  for (const CountField& field : kCounts) {
    report.*field.member = reader.optional_integer(field.name, 0, kInt64Max).value_or(0);
  }
  report.chat_template = reader.optional_bool("chat_template").value_or(false);
  report.uptime_seconds = reader.optional_number("uptime_seconds", {.min = 0}).value_or(0);
  report.last_token_age_ms = reader.optional_integer("last_token_age_ms", 0, kInt64Max);
  if (Status sound = check_peer_object("health report", reader, object.value()); !sound.ok())
    return sound.error();
  return report;
}

json::Object to_json(const ReadyCallback& callback) {
  json::Array capabilities;
  for (const std::string& capability : callback.capabilities) capabilities.emplace_back(capability);
  return {{"worker_id", base::to_valid_utf8(callback.worker_id)},
          {"uri", base::to_valid_utf8(callback.uri)},
          {"model_ref", base::to_valid_utf8(callback.model_ref)},
          {"memory_bytes", callback.memory_bytes},
          {"memory_architecture", callback.memory_architecture},
          {"worker_type", callback.worker_type},
          {"capabilities", std::move(capabilities)},
          {"version", callback.version}};
}

Result<ReadyCallback> parse_ready_callback(std::string_view body) {
  Result<json::Object> object = parse_peer_object("ready callback", body);
  if (!object.ok()) return object.error();
  json::FieldReader reader(object.value());
  ReadyCallback callback;
  callback.worker_id = reader.required_string("worker_id");
  callback.uri = reader.required_string("uri");
  callback.model_ref = reader.required_string("model_ref");
  callback.memory_bytes = reader.required_integer("memory_bytes", 0, kInt64Max);
  callback.memory_architecture = reader.required_string("memory_architecture");
  callback.worker_type = reader.required_string("worker_type");
  if (auto capabilities = reader.optional_strings("capabilities", kCapabilitiesMax)) {
    callback.capabilities = std::move(*capabilities);
  } else {
    reader.fail("capabilities", "required", "is required");
  }
  callback.version = reader.required_string("version");
  if (Status sound = check_peer_object("ready callback", reader, object.value()); !sound.ok())
    return sound.error();
  return callback;
}

}  // namespace llorch::contract
