#include "contract/worker_info.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace llorch::contract {
namespace {

using ::testing::HasSubstr;

HealthReport full_report() {
  HealthReport report;
  report.status = WorkerStatus::Healthy;
  report.model_loaded = true;
  report.vram_bytes = 7;
  report.memory_type = "vram-only";
  report.model = "tiny";
  report.architecture = "gpt2";
  report.quant_kind = "F32";
  report.tokenizer_kind = "bpe";
  report.backend = "cpu";
  report.device = "a \"CPU\"";
  report.version = "0.1.0";
  report.build = "0.1.0+00ff";
  report.device_class = "cpu-avx2";
  report.memory_bytes = 1;
  report.vocab_size = 2;
  report.context_length = 3;
  report.uptime_seconds = 4.125;
  report.queue_depth = 5;
  report.slots_total = 6;
  report.slots_busy = 7;
  report.kv_blocks_total = 8;
  report.chat_template = true;
  report.kv_blocks_free = 9;
  report.last_token_age_ms = 10;
  return report;
}

TEST(HealthReport, ReadsBackTheSame) {
  HealthReport report = full_report();
  const Result<HealthReport> again = parse_health_report(json::serialize(to_json(report)));
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(*again, report);

  report.status = WorkerStatus::Loading;
  report.load_progress = 0.25;
  report.reason = "still reading";
  report.last_token_age_ms.reset();
  const Result<HealthReport> loading = parse_health_report(json::serialize(to_json(report)));
  ASSERT_TRUE(loading.ok()) << loading.error().message;
  EXPECT_EQ(*loading, report);
}

TEST(HealthReport, HasTheFieldsOfTheContractInItsOrder) {
  const std::string text = json::serialize(to_json(full_report()));
  EXPECT_THAT(text,
              ::testing::StartsWith(
                  R"({"status":"healthy","model_loaded":true,"vram_bytes":7,"memory_type":)"));
  const json::Object object = to_json(full_report());
  for (const char* field :
       {"model", "architecture", "quant_kind", "memory_bytes", "tokenizer_kind", "vocab_size",
        "context_length", "uptime_seconds", "queue_depth", "slots_total", "slots_busy",
        "kv_blocks_total", "kv_blocks_free", "last_token_age_ms", "backend", "device", "version",
        "build", "device_class"}) {
    EXPECT_TRUE(object.contains(field)) << field;
  }
  EXPECT_FALSE(object.contains("load_progress"));
}

TEST(HealthReport, NeedsOnlyWhatTheContractPromises) {
  const Result<HealthReport> minimal = parse_health_report(
      R"({"status":"draining","model_loaded":true,"vram_bytes":0,"memory_type":"cpu","new":1})");
  ASSERT_TRUE(minimal.ok()) << minimal.error().message;
  EXPECT_EQ(minimal->status, WorkerStatus::Draining);
  EXPECT_FALSE(minimal->last_token_age_ms.has_value());
}

TEST(HealthReport, RefusesWhatBreaksTheContract) {
  for (const char* body :
       {"", "[]", "{}",
        R"({"status":"fine","model_loaded":true,"vram_bytes":0,"memory_type":"cpu"})",
        R"({"status":"healthy","model_loaded":1,"vram_bytes":0,"memory_type":"cpu"})",
        R"({"status":"healthy","model_loaded":true,"vram_bytes":-1,"memory_type":"cpu"})"}) {
    const Result<HealthReport> report = parse_health_report(body);
    ASSERT_FALSE(report.ok()) << body;
    EXPECT_EQ(report.error().code, ErrorCode::Internal);
    EXPECT_THAT(report.error().message, HasSubstr("health report"));
  }
}

TEST(HealthReport, OnlyHealthyIs200) {
  EXPECT_EQ(http_status(WorkerStatus::Healthy), 200);
  for (const WorkerStatus status :
       {WorkerStatus::Loading, WorkerStatus::Unhealthy, WorkerStatus::Draining}) {
    EXPECT_EQ(http_status(status), 503) << name(status);
  }
}

TEST(ReadyCallback, ReadsBackTheSame) {
  ReadyCallback callback;
  callback.worker_id = "worker-cpu-0";
  callback.uri = "http://127.0.0.1:8000";
  callback.model_ref = "/models/ä.gguf";
  callback.memory_bytes = 123;
  callback.worker_type = "llorch-cpud";
  callback.version = "0.1.0";
  const std::string text = json::serialize(to_json(callback));
  EXPECT_EQ(
      text,
      R"({"worker_id":"worker-cpu-0","uri":"http://127.0.0.1:8000","model_ref":"/models/ä.gguf",)"
      R"("memory_bytes":123,"memory_architecture":"cpu","worker_type":"llorch-cpud",)"
      R"("capabilities":["text-gen"],"version":"0.1.0"})");
  const Result<ReadyCallback> again = parse_ready_callback(text);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(*again, callback);
}

TEST(ReadyCallback, EveryFieldIsRequired) {
  const std::string_view whole =
      R"({"worker_id":"w","uri":"u","model_ref":"m","memory_bytes":1,"memory_architecture":"cpu",)"
      R"("worker_type":"t","capabilities":[],"version":"v"})";
  const Result<json::Value> parsed = json::parse(whole);
  ASSERT_TRUE(parsed.ok());
  ASSERT_TRUE(parse_ready_callback(whole).ok());
  for (const auto& field : parsed->get_object()) {
    json::Object less = parsed->get_object();
    less.erase(field.key());
    const Result<ReadyCallback> refused = parse_ready_callback(json::serialize(less));
    ASSERT_FALSE(refused.ok()) << field.key();
    EXPECT_THAT(refused.error().message, HasSubstr(std::string(json::view(field.key()))));
  }
}

}  // namespace
}  // namespace llorch::contract
