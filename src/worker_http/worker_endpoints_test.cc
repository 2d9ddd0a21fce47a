// The other endpoints of the worker, over a real server.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "contract/worker_info.h"
#include "worker_http/fake_backend.h"

namespace llorch::worker_http {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr, ::testing::Not;

TEST(Health, ReportsEverythingOfAHealthyWorker) {
  TestWorker worker;
  WorkerStats numbers = worker.backend.numbers.get();
  numbers.queue_depth = 2;
  numbers.slots_busy = 3;
  numbers.kv_blocks_free = 9;
  numbers.last_token_age_ms = 17;
  numbers.uptime_seconds = 1.5;
  worker.backend.numbers = numbers;
  const std::string response = worker.get("/health");
  EXPECT_EQ(status_of(response), 200);
  const Result<contract::HealthReport> report = contract::parse_health_report(body_of(response));
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->status, contract::WorkerStatus::Healthy);
  EXPECT_TRUE(report->model_loaded);
  EXPECT_EQ(report->model, "fake");
  EXPECT_EQ(report->architecture, "gpt2");
  EXPECT_EQ(report->quant_kind, "F32");
  EXPECT_EQ(report->tokenizer_kind, "bpe");
  EXPECT_EQ(report->memory_bytes, 4096);
  EXPECT_EQ(report->vocab_size, 100);
  EXPECT_EQ(report->context_length, 64);
  EXPECT_EQ(report->queue_depth, 2);
  EXPECT_EQ(report->slots_total, 4);
  EXPECT_EQ(report->slots_busy, 3);
  EXPECT_EQ(report->kv_blocks_total, 10);
  EXPECT_TRUE(report->chat_template);
  EXPECT_EQ(report->kv_blocks_free, 9);
  EXPECT_EQ(report->last_token_age_ms, 17);
  EXPECT_EQ(report->uptime_seconds, 1.5);
  EXPECT_FALSE(report->version.empty());
  EXPECT_EQ(report->build, "0.1.0+test");
  EXPECT_EQ(report->device_class, "test-class");
  EXPECT_FALSE(report->load_progress.has_value());
}

std::shared_ptr<const ModelInfo> on_a_gpu(const ModelInfo& info) {
  ModelInfo changed = info;
  changed.memory_type = "vram-only";
  changed.vram = VramInfo{.sm = 90,
                          .cuda_runtime_version = "13.0",
                          .total_bytes = 1000,
                          .weights_bytes = 500,
                          .cache_bytes = 30,
                          .workspace_bytes = 4,
                          .is_resident = true};
  return std::make_shared<const ModelInfo>(std::move(changed));
}

TEST(Health, AWorkerOnAGpuSaysWhichAndWhatItHolds) {
  TestWorker worker;
  const json::Value on_host = json_of(worker.get("/health"));
  for (const std::string_view field : {"sm", "cuda_runtime_version", "vram_total", "resident"})
    EXPECT_FALSE(on_host.as_object().contains(field)) << field;
  worker.backend.info = on_a_gpu(*worker.backend.info.get());
  const json::Value report = json_of(worker.get("/health"));
  EXPECT_EQ(report.at("vram_bytes"), 534);
  EXPECT_EQ(report.at("sm"), 90);
  EXPECT_EQ(report.at("cuda_runtime_version"), "13.0");
  EXPECT_EQ(report.at("vram_total"), 1000);
  EXPECT_EQ(report.at("resident"), true);
}

TEST(Metrics, TellVramByPurposeAndWhatTheDriverSaysOfTheGpus) {
  TestWorker worker;
  EXPECT_THAT(body_of(worker.get("/metrics")), Not(HasSubstr("llorch_vram")));
  worker.backend.info = on_a_gpu(*worker.backend.info.get());
  worker.backend.gpus = {base::GpuReading{.uuid = "GPU-a", .power_watts = 71.5},
                         base::GpuReading{.uuid = "GPU-b", .power_watts = 60}};
  const std::string page = body_of(worker.get("/metrics"));
  EXPECT_THAT(page, HasSubstr("llorch_vram_bytes{purpose=\"weights\"} 500\n"));
  EXPECT_THAT(page, HasSubstr("llorch_vram_bytes{purpose=\"cache\"} 30\n"));
  EXPECT_THAT(page, HasSubstr("llorch_vram_bytes{purpose=\"workspace\"} 4\n"));
  EXPECT_THAT(page, HasSubstr("llorch_vram_total_bytes 1000\n"));
  EXPECT_THAT(page, HasSubstr("llorch_gpu_power_watts{gpu=\"GPU-a\"} 71.5\n"
                              "llorch_gpu_power_watts{gpu=\"GPU-b\"} 60\n"));
  EXPECT_THAT(page, Not(HasSubstr("temperature"))) << "no GPU told any";
}

TEST(Health, LoadingUnhealthyAndDrainingAre503) {
  TestWorker worker;
  worker.backend.info = nullptr;
  worker.backend.load = LoadStatus{LoadStatus::State::Loading, 0.25, ""};
  std::string response = worker.get("/health");
  EXPECT_EQ(status_of(response), 503);
  EXPECT_EQ(json_of(response).at("status"), "loading");
  EXPECT_EQ(json_of(response).at("load_progress"), 0.25);
  EXPECT_EQ(json_of(response).at("model_loaded"), false);

  worker.backend.load = LoadStatus{LoadStatus::State::Unhealthy, 1, "the engine stopped"};
  response = worker.get("/health");
  EXPECT_EQ(status_of(response), 503);
  EXPECT_EQ(json_of(response).at("status"), "unhealthy");
  EXPECT_EQ(json_of(response).at("reason"), "the engine stopped");

  worker.backend.info = std::make_shared<const ModelInfo>(test::fake_model());
  worker.backend.load = LoadStatus{LoadStatus::State::Draining, 1, ""};
  response = worker.get("/health");
  EXPECT_EQ(status_of(response), 503);
  EXPECT_EQ(json_of(response).at("status"), "draining");
}

TEST(Cancel, IsIdempotentAnd404ForTheUnknown) {
  TestWorker worker;
  worker.backend.script = [](const FakeJob& job) { job.end(); };
  worker.post("/execute", R"({"job_id":"j1","prompt":"p"})");
  for (int i = 0; i < 2; ++i) {
    const std::string response = worker.post("/cancel", R"({"job_id":"j1"})");
    EXPECT_EQ(status_of(response), 202);
    EXPECT_EQ(body_of(response), R"({"job_id":"j1","status":"cancelling"})");
  }
  EXPECT_THAT(worker.backend.cancelled(), ElementsAre("j1", "j1"));
  const std::string unknown = worker.post("/cancel", R"({"job_id":"other"})");
  EXPECT_EQ(status_of(unknown), 404);
  EXPECT_EQ(json_of(unknown).at("error").at("code"), "NOT_FOUND");
  const std::string wrong = worker.post("/cancel", R"({"job":"j1"})");
  EXPECT_EQ(status_of(wrong), 400);
  EXPECT_THAT(wrong, HasSubstr("job_id is required"));
  EXPECT_THAT(wrong, HasSubstr("\"field\":\"job\""));
}

TEST(WorkerRoutes, AnswersToHostileBodiesStaySmall) {
  TestWorker worker;
  json::Object body;
  for (int i = 0; i < 20'000; ++i) body[fmt::format("field{}", i)] = i;
  EXPECT_EQ(status_of(worker.post("/cancel", json::serialize(body))), 413);
  const std::string response = worker.post("/detokenize", json::serialize(body));
  EXPECT_EQ(status_of(response), 400);
  EXPECT_LT(response.size(), 20'000U);
  EXPECT_THAT(response, HasSubstr("and 19993 more"));
}

// Answered at once: no byte of the body is waited for.
TEST(WorkerRoutes, WhatIsOnlyShownTakesNoBody) {
  TestWorker worker;
  for (const char* path : {"/health", "/metrics", "/v1/models"}) {
    for (const char* frame : {"Content-Length: 3\r\n", "Transfer-Encoding: chunked\r\n"}) {
      http::test::RawSocket socket(worker.server->port());
      ASSERT_TRUE(socket.send(http::test::get(path, frame)));
      EXPECT_EQ(status_of(socket.read_response()), 413) << path << " " << frame;
    }
  }
}

TEST(Shutdown, IsAcceptedAndPassedOn) {
  TestWorker worker;
  EXPECT_FALSE(worker.backend.shutdown_requested());
  for (const char* bad : {R"({"timeout":5})", R"({"timeout_sec":-1})", R"({"timeout_sec":3601})",
                          R"({"timeout_sec":"5"})", "[]", "{"}) {
    EXPECT_EQ(status_of(worker.post("/shutdown", bad)), 400) << bad;
  }
  EXPECT_THAT(worker.post("/shutdown", R"({"force":true})"), HasSubstr("\"field\":\"force\""));
  EXPECT_FALSE(worker.backend.shutdown_requested());
  EXPECT_EQ(status_of(worker.post("/shutdown", "")), 202);
  EXPECT_TRUE(worker.backend.shutdown_requested());
  EXPECT_EQ(worker.backend.shutdown_patience(), std::nullopt);
  EXPECT_EQ(status_of(worker.post("/shutdown", R"({"timeout_sec":7})")), 202);
  EXPECT_EQ(worker.backend.shutdown_patience(), std::chrono::seconds(7));
}

TEST(Tokenize, BothWays) {
  TestWorker worker;
  EXPECT_EQ(body_of(worker.post("/tokenize", R"({"text":"hello"})")),
            R"({"tokens":[5],"pieces":["hello"],"count":1})");
  EXPECT_EQ(body_of(worker.post("/tokenize",
                                R"({"text":"hello","add_special":true,"parse_special":true})")),
            R"({"tokens":[1,1005],"pieces":["<s>","hello"],"count":2})");
  EXPECT_EQ(body_of(worker.post("/tokenize", R"({"text":"hello","special":true})")),
            R"({"tokens":[1005],"pieces":["hello"],"count":1})");
  EXPECT_EQ(body_of(worker.post("/detokenize", R"({"tokens":[1,2]})")), R"({"text":"<1><2>"})");
  for (const char* bad : {R"({"tokens":[-1]})", R"({"tokens":["1"]})", R"({"tokens":[1.5]})",
                          R"({"tokens":7})", R"({})", R"([])", "{"}) {
    const std::string refused = worker.post("/detokenize", bad);
    EXPECT_EQ(status_of(refused), 400) << bad;
    EXPECT_THAT(refused, HasSubstr(R"("errors":[{"field":)")) << bad;
  }
  worker.backend.info = nullptr;
  EXPECT_EQ(status_of(worker.post("/tokenize", R"({"text":"hello"})")), 503);
}

TEST(Metrics, CountOutcomesAndLatencies) {
  TestWorker worker;
  WorkerStats numbers = worker.backend.numbers.get();
  numbers.output_tokens_total = 42;
  worker.backend.numbers = numbers;
  ModelInfo info = test::fake_model();
  info.id = "a \"quoted\"\\ name";
  worker.backend.info = std::make_shared<const ModelInfo>(info);
  worker.backend.script = [](const FakeJob& job) {
    job.start();
    job.end(contract::StopReason::Eos, 5);
  };
  worker.post("/execute", R"({"job_id":"j1","prompt":"p"})");
  worker.post("/execute", R"({"job_id":"j2","prompt":"p"})");
  worker.post("/execute", R"({"job_id":"j3"})");
  worker.backend.admit = [](const TextRequest&) -> Status {
    return Error{ErrorCode::QueueFull, "full"};
  };
  worker.post("/execute", R"({"job_id":"j4","prompt":"p"})");
  const std::string page = worker.get("/metrics");
  EXPECT_EQ(status_of(page), 200);
  EXPECT_EQ(header_of(page, "content-type"), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_THAT(page, HasSubstr("llorch_requests_total{outcome=\"eos\"} 2\n"));
  EXPECT_THAT(page, HasSubstr("llorch_requests_total{outcome=\"refused\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("llorch_requests_total{outcome=\"queue_full\"} 1\n"));
  EXPECT_THAT(page, HasSubstr("llorch_requests_total{outcome=\"cancelled\"} 0\n"));
  EXPECT_THAT(page, HasSubstr("llorch_output_tokens_total 42\n"));
  EXPECT_THAT(page, HasSubstr("llorch_kv_blocks_free 10\n"));
  // 2.5 ms to the first token, 12 ms over four intervals.
  EXPECT_THAT(page, HasSubstr("llorch_first_token_seconds_bucket{le=\"0.001\"} 0\n"));
  EXPECT_THAT(page, HasSubstr("llorch_first_token_seconds_bucket{le=\"0.0025\"} 2\n"));
  EXPECT_THAT(page, HasSubstr("llorch_first_token_seconds_bucket{le=\"+Inf\"} 2\n"));
  EXPECT_THAT(page, HasSubstr("llorch_first_token_seconds_sum 0.005\n"));
  EXPECT_THAT(page, HasSubstr("llorch_first_token_seconds_count 2\n"));
  EXPECT_THAT(page, HasSubstr("llorch_token_seconds_sum 0.006\n"));
  EXPECT_THAT(page, HasSubstr("model=\"a \\\"quoted\\\"\\\\ name\""));
}

TEST(Metrics, TimesAreOfTheTokensMadeHere) {
  TestWorker worker;
  worker.backend.script = [](const FakeJob& job) {
    job.start();
    job.tell({{"a", {1, 2}}, {"", {3}}});
    job.end(contract::StopReason::Eos, job.request.job_id == "whole" ? 3 : 5);
  };
  worker.post("/execute", R"({"job_id":"j","prompt":"p","seed":1,"resume":{"ids":[1,2,3]}})");
  worker.post("/execute", R"({"job_id":"whole","prompt":"p","seed":1,"resume":{"ids":[1,2,3]}})");
  const std::string page = worker.get("/metrics");
  // 12 ms between the two that were made here.
  EXPECT_THAT(page, HasSubstr("llorch_token_seconds_sum 0.012\n"));
  EXPECT_THAT(page, HasSubstr("llorch_token_seconds_count 1\n"));
  EXPECT_THAT(page, HasSubstr("llorch_first_token_seconds_count 1\n"));
}

// Every line is a comment or "name{labels} number", every metric is announced before it is used.
TEST(Metrics, IsPrometheusText) {
  TestWorker worker;
  const std::string page = body_of(worker.get("/metrics"));
  std::set<std::string> announced;
  std::size_t from = 0;
  int samples = 0;
  while (from < page.size()) {
    const std::string line = page.substr(from, page.find('\n', from) - from);
    from += line.size() + 1;
    if (line.starts_with("# TYPE ")) announced.insert(line.substr(7, line.find(' ', 7) - 7));
    if (line.starts_with("#")) continue;
    const std::string metric = line.substr(0, line.find_first_of("{ "));
    const bool known =
        announced.contains(metric) || announced.contains(metric.substr(0, metric.rfind('_')));
    EXPECT_TRUE(known) << line;
    EXPECT_NO_THROW(std::ignore = std::stod(line.substr(line.rfind(' ') + 1))) << line;
    ++samples;
  }
  EXPECT_GT(samples, 50);
}

TEST(WorkerRoutes, ErrorsHaveTheEnvelope) {
  TestWorker worker;
  for (const auto& [response, status, code] :
       {std::tuple{worker.get("/nowhere"), 404, "NOT_FOUND"},
        std::tuple{worker.get("/execute"), 405, "METHOD_NOT_ALLOWED"},
        std::tuple{worker.ask("GARBAGE\r\n\r\n"), 400, "INVALID_REQUEST"},
        std::tuple{worker.ask(fmt::format("POST /execute HTTP/1.1\r\nHost: t\r\nContent-Type: "
                                          "application/json\r\nContent-Length: "
                                          "999999999\r\nConnection: close\r\n\r\n")),
                   413, "PAYLOAD_TOO_LARGE"},
        std::tuple{worker.ask("GET /health HTTP/1.1\r\nHost: t\r\nA: " + std::string(20'000, 'x') +
                              "\r\nConnection: close\r\n\r\n"),
                   431, "INVALID_REQUEST"},
        std::tuple{worker.ask("GET /health HTTP/1.1\r\nHost: evil.example\r\n"
                              "Connection: close\r\n\r\n"),
                   403, "FORBIDDEN"}}) {
    EXPECT_EQ(status_of(response), status) << response;
    const json::Value body = json_of(response);
    EXPECT_EQ(body.at("error").at("code"), code);
    EXPECT_TRUE(body.at("error").as_object().contains("correlation_id"));
  }
}

}  // namespace
}  // namespace llorch::worker_http
