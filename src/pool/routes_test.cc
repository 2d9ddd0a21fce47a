#include "pool/routes_fixture.h"

namespace llorch::pool {
namespace {

TEST(PoolHealth, CountsWorkersAndSaysWhoItIs) {
  FakePool pool;
  pool.workers.put(a_worker("worker-cpu-0", PoolWorkerState::Ready));
  pool.workers.put(a_worker("worker-cpu-1", PoolWorkerState::Busy));
  pool.workers.put(a_worker("worker-cpu-2", PoolWorkerState::Starting));
  pool.workers.put(a_worker("worker-cpu-3", PoolWorkerState::Failed));
  register_model(pool);
  const std::string response = pool.get("/health");
  EXPECT_EQ(status_of(response), 200);
  expect_fits("Health", response);
  const json::Value body = json_of(response);
  EXPECT_EQ(body.at("status"), "healthy");
  EXPECT_EQ(body.at("workers_total"), 3);
  EXPECT_EQ(body.at("workers_ready"), 2);
  EXPECT_EQ(body.at("workers_failed"), 1);
  EXPECT_EQ(body.at("confinement"), "files by landlock (ABI 3), ports not");
  EXPECT_FALSE(body.at("pool_id").get_string().empty());
}

TEST(PoolHealth, SaysWhatIsWrong) {
  FakePool pool;
  std::ofstream(pool.home.catalog_file()) << "{\"version\":\"1.0\",\"models\":[{]}";
  pool.host.change([](auto& host) { host.disk_free_bytes = 1 << 20; });
  const std::string response = pool.get("/health");
  EXPECT_EQ(status_of(response), 503);
  expect_fits("Health", response);
  const json::Value body = json_of(response);
  EXPECT_EQ(body.at("status"), "unhealthy");
  ASSERT_EQ(body.at("reasons").get_array().size(), 2U);
  EXPECT_THAT(json::serialize(body.at("reasons")),
              AllOf(HasSubstr("catalog.json"), HasSubstr("1.00 MiB free")));
  EXPECT_EQ(body.at("error").at("code"), "UNAVAILABLE");
  EXPECT_EQ(header_of(response, "Retry-After"), "1");
  // It mends itself with the file.
  std::filesystem::remove(pool.home.catalog_file());
  pool.host.change([](auto& host) { host.disk_free_bytes = std::int64_t{1} << 40; });
  EXPECT_EQ(status_of(pool.get("/health")), 200);
}

TEST(PoolHealth, SaysWhenItStartsAndWhenItEnds) {
  FakePool pool;
  pool.phase = PoolPhase::Starting;
  EXPECT_EQ(json_of(pool.get("/health")).at("status"), "starting");
  pool.phase = PoolPhase::Draining;
  const std::string draining = pool.get("/health");
  EXPECT_EQ(status_of(draining), 503);
  EXPECT_EQ(json_of(draining).at("status"), "draining");
  const std::string refused =
      pool.send("POST", "/v2/workers/start", R"({"backend":"cpu","model":"m"})");
  EXPECT_EQ(status_of(refused), 503);
  EXPECT_EQ(code_of(refused), "UNAVAILABLE");
  EXPECT_THAT(pool.workers.calls(), IsEmpty());
}

TEST(PoolState, HoldsEverything) {
  FakePool pool;
  pool.workers.put(a_worker("worker-cpu-0", PoolWorkerState::Ready));
  register_model(pool);
  const std::string response = pool.get("/v2/state");
  EXPECT_EQ(status_of(response), 200);
  expect_fits("State", response);
  const json::Value body = json_of(response);
  EXPECT_EQ(body.at("host").at("hostname"), "attic");
  EXPECT_EQ(body.at("workers").at(0).at("id"), "worker-cpu-0");
  std::vector<std::string> ids;
  for (const json::Value& model : body.at("models").get_array())
    ids.emplace_back(json::view(model.at("id").get_string()));
  EXPECT_THAT(ids, AllOf(Contains("m"), Contains("builtin")));
}

// A handler that throws is one failed request.
TEST(PoolRoutes, AHandlerThatRunsOutOfMemoryFailsItsRequestAlone) {
  FakePool pool;
  register_model(pool);
  pool.plan.change([](auto& plan) {
    plan = [](const contract::ModelEntry&, const PlanRequest&) -> Result<std::vector<MemoryPlan>> {
      throw std::bad_alloc();
    };
  });
  const std::string answer = pool.get("/v2/models/m/plan");
  EXPECT_EQ(status_of(answer), 503) << answer;
  EXPECT_EQ(code_of(answer), "INSUFFICIENT_MEMORY");
  EXPECT_EQ(status_of(pool.get("/health")), 200);
}

TEST(PoolShutdown, IsAskedFor) {
  FakePool pool;
  const std::string response = pool.send("POST", "/v2/shutdown");
  EXPECT_EQ(status_of(response), 202);
  expect_fits("ShutdownAnswer", response);
  EXPECT_TRUE(pool.shutdown_requested);
}

TEST(PoolMetrics, AreWellFormed) {
  FakePool pool;
  contract::PoolWorker worker = a_worker("w", PoolWorkerState::Busy);
  worker.memory_bytes = 77;
  worker.tokens_per_second = 2.5;
  pool.workers.put(worker);
  pool.script.say(progress(10));
  pool.script.say(progress(60));
  pool.script.succeed();
  const std::string id = id_of(start(pool, "m"));
  events_of(pool.get("/v2/downloads/" + id + "/events"));
  const std::string page = body_of(pool.get("/metrics"));
  for (const char* line :
       {"llorch_pool_workers{state=\"busy\"} 1\n", "llorch_pool_workers{state=\"failed\"} 0\n",
        "llorch_pool_workers_memory_bytes 77\n", "llorch_pool_tokens_per_second 2.5\n",
        "llorch_pool_downloads_total{outcome=\"done\"} 1\n",
        "llorch_pool_downloaded_bytes_total 50\n", "llorch_pool_models 0\n"}) {
    EXPECT_THAT(page, HasSubstr(line));
  }
}

std::string pattern_of(const http::Router::Route& route) {
  std::string path;
  for (const auto& segment : route.segments)
    path += segment.is_param ? "/{" + segment.text + "}" : "/" + segment.text;
  return path;
}

std::set<std::string> served_routes(const http::Router& router) {
  std::set<std::string> served;
  for (const http::Router::Route& route : router.routes())
    served.insert(fmt::format("{} {}", http::method_name(route.method), pattern_of(route)));
  return served;
}

http::Router router_of(FakePool& pool) {
  return make_router({.home = pool.home,
                      .workers = pool.workers,
                      .downloads = pool.downloads,
                      .threads = pool.threads,
                      .board = pool.board,
                      .fence = pool.fence,
                      .speeds = pool.speeds,
                      .host = nullptr,
                      .plan = nullptr,
                      .download = nullptr,
                      .verify = nullptr,
                      .adopt = nullptr,
                      .request_shutdown = nullptr,
                      .phase = nullptr});
}

TEST(PoolOpenApi, HasEveryRouteAndNoOther) {
  FakePool pool;
  std::set<std::string> documented;
  const json::Object document = openapi_document();
  for (const auto& path : document.at("paths").get_object()) {
    for (const auto& operation : path.value().get_object()) {
      std::string method(json::view(operation.key()));
      for (char& c : method) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
      documented.insert(fmt::format("{} {}", method, json::view(path.key())));
    }
  }
  EXPECT_EQ(served_routes(router_of(pool)), documented);
  expect_fits("Document", pool.get("/openapi.json"));
}

// docs/api_pool.md has a heading for each route: "### POST /v2/workers/start".
TEST(PoolDocs, HaveEveryRouteAndNoOther) {
  FakePool pool;
  std::ifstream file(::llorch::test::source_path("docs/api_pool.md"));
  std::set<std::string> documented;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("### ") && line.find(" /") != std::string::npos)
      documented.insert(line.substr(4));
  }
  EXPECT_EQ(served_routes(router_of(pool)), documented);
}

// Every body that a schema describes is known to its parser, and nothing more: a field that is in
// no schema is refused, one that is in it is not "unknown".
TEST(PoolOpenApi, BodiesAreThoseOfTheParsers) {
  FakePool pool;
  register_model(pool);
  pool.workers.put(a_worker("w", PoolWorkerState::Ready));
  const json::Object document = openapi_document();
  for (const Endpoint& endpoint : endpoints()) {
    if (endpoint.text.request_schema.empty() || endpoint.text.request_schema == "ReadyCallback")
      continue;
    json::Object body{{"surely_unknown", 1}};
    const json::Value& schema =
        document.at("components").at("schemas").at(endpoint.text.request_schema);
    for (const auto& property : schema.at("properties").get_object())
      body[property.key()] = json::Array{json::Array()};  // wrong for every type there is
    std::string path(endpoint.text.path);
    if (const std::size_t at = path.find("{id}"); at != std::string::npos) path.replace(at, 4, "m");
    const std::string response =
        pool.send(http::method_name(endpoint.text.method), path, json::serialize(body));
    EXPECT_EQ(status_of(response), 400) << path;
    std::set<std::string> unknown;
    const json::Value answer = json_of(response);
    for (const json::Value& error : answer.at("error").at("errors").get_array()) {
      if (error.at("constraint") == "known field")
        unknown.emplace(json::view(error.at("field").get_string()));
    }
    EXPECT_EQ(unknown, std::set<std::string>{"surely_unknown"}) << path << response;
  }
}

TEST(PoolOpenApi, QueriesAreThoseOfTheParsers) {
  FakePool pool;
  register_model(pool);
  contract::PoolWorker worker = a_worker("m", PoolWorkerState::Ready);
  pool.workers.put(worker);
  for (const Endpoint& endpoint : endpoints()) {
    if (endpoint.text.query == nullptr) continue;
    std::string path(endpoint.text.path);
    if (const std::size_t at = path.find("{id}"); at != std::string::npos) path.replace(at, 4, "m");
    path += "?surely_unknown=1";
    const json::Object query = endpoint.text.query();
    for (const auto& parameter : query)
      path += fmt::format("&{}=wrong", json::view(parameter.key()));
    const std::string response = pool.send(http::method_name(endpoint.text.method), path);
    EXPECT_EQ(status_of(response), 400) << path;
    EXPECT_EQ(failed_fields(response).size(), query.size() + 1) << path << response;
    EXPECT_THAT(failed_fields(response), Contains("surely_unknown"));
  }
}

TEST(PoolOpenApi, AParameterOfNoEndpointIsNamed) {
  FakePool pool;
  for (const Endpoint& endpoint : endpoints()) {
    if (endpoint.text.query != nullptr || std::holds_alternative<ElsewhereTask>(endpoint.task))
      continue;
    std::string path(endpoint.text.path);
    if (endpoint.text.takes_any_query) continue;
    if (const std::size_t at = path.find("{id}"); at != std::string::npos) path.replace(at, 4, "m");
    const std::string response =
        pool.send(http::method_name(endpoint.text.method), path + "?surely_unknown=1");
    EXPECT_EQ(status_of(response), 400) << path;
    EXPECT_THAT(failed_fields(response), Contains("surely_unknown")) << path;
  }
  EXPECT_EQ(status_of(pool.send("GET", "/health?probe=1")), 200);
}

TEST(PoolCallbackServer, AnswersNothingElse) {
  FakePool pool;
  const http::Router router = make_callback_router(pool.workers, pool.threads);
  EXPECT_THAT(served_routes(router), ElementsAre("POST /v2/internal/workers/ready"));
}

}  // namespace
}  // namespace llorch::pool
