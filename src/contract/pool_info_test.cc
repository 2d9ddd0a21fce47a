#include "contract/pool_info.h"

#include <gtest/gtest.h>

#include <string>

namespace llorch::contract {
namespace {

PoolWorker full_worker() {
  PoolWorker worker;
  worker.id = "worker-cpu-0";
  worker.backend = "cpu";
  worker.model = "stories";
  worker.state = PoolWorkerState::Failed;
  worker.uri = "http://127.0.0.1:8001";
  worker.pid = 4242;
  worker.gpu = 1;
  worker.started_at = "2026-01-02T03:04:05Z";
  worker.load_progress = 0.5;
  worker.planned = {1, 2, 3, 4, 5, 4096, 16, "q8_0", 7};
  worker.memory_peak_bytes = 1 << 20;
  worker.tokens_per_second = 12.5;
  worker.last_token_age_ms = 3;
  worker.category = ExitCategory::OomKill;
  worker.reason = "the kernel ended it";
  worker.exit_signal = 9;
  worker.last_log_lines = {"one", "two"};
  return worker;
}

TEST(PoolWorkerJson, BothWays) {
  const PoolWorker worker = full_worker();
  const Result<PoolWorker> read = parse_pool_worker(json::Value(to_json(worker)));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, worker);
}

TEST(PoolWorkerJson, ANewerPeersFieldIsFineAWrongOneIsNot) {
  json::Object object = to_json(full_worker());
  object["from_the_future"] = 1;
  EXPECT_TRUE(parse_pool_worker(json::Value(object)).ok());
  object["state"] = "dancing";
  const Result<PoolWorker> read = parse_pool_worker(json::Value(object));
  ASSERT_FALSE(read.ok());
  EXPECT_NE(read.error().message.find("dancing"), std::string::npos) << read.error().message;
  EXPECT_FALSE(parse_pool_worker(json::Value(json::Object{{"id", 1}})).ok());
  EXPECT_FALSE(parse_pool_worker(json::Value("text")).ok());
}

TEST(HostInfoJson, BothWays) {
  HostInfo host;
  host.hostname = "attic";
  host.cores = 2;
  host.memory_total_bytes = 24LL << 30;
  host.gpus.push_back({0, "NVIDIA X", "GPU-1", "550.1", 100, 50, 77.5, std::nullopt, 0.25});
  const Result<HostInfo> read = parse_host_info(json::Value(to_json(host)));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, host);
}

TEST(StartWorkerRequest, BothWays) {
  const StartWorkerRequest request{"cuda", "qwen", 1, 8192, 4, "q8_0"};
  std::vector<json::FieldError> errors;
  EXPECT_EQ(parse_start_worker_request(to_json(request), errors), request);
  EXPECT_TRUE(errors.empty());
}

TEST(StartWorkerRequest, EveryFailureAtOnce) {
  const json::Object body{{"backend", "tpu"}, {"ctx", 0}, {"kv", "f32"}, {"speed", 1}};
  std::vector<json::FieldError> errors;
  parse_start_worker_request(body, errors);
  std::string fields;
  for (const json::FieldError& error : errors) fields += error.field + " ";
  for (const char* field : {"backend", "model", "ctx", "kv", "speed"})
    EXPECT_NE(fields.find(field), std::string::npos) << field << " in " << fields;
}

TEST(StartWorkerRequest, ATemplateIsANameOrAWholePath) {
  const auto failures = [](std::string_view chosen) {
    std::vector<json::FieldError> errors;
    parse_start_worker_request({{"backend", "cpu"}, {"model", "m"}, {"chat_template", chosen}},
                               errors);
    return errors.size();
  };
  for (const std::string_view good : {"chatml", "zephyr", "/a/b.jinja"})
    EXPECT_EQ(failures(good), 0U) << good;
  for (const std::string_view bad : {"", "chat", "my.jinja", "my/own", "./x"})
    EXPECT_EQ(failures(bad), 1U) << bad;
}

TEST(StartWorkerRequest, AGpuForACpuWorkerIsAMistake) {
  std::vector<json::FieldError> errors;
  parse_start_worker_request({{"backend", "cpu"}, {"model", "m"}, {"gpu", 0}}, errors);
  ASSERT_EQ(errors.size(), 1U);
  EXPECT_EQ(errors[0].field, "gpu");
}

}  // namespace
}  // namespace llorch::contract
