#include "pool/state_routes.h"

#include "contract/pool_state.h"
#include "pool/routes_fixture.h"

namespace llorch::pool {
namespace {

contract::PoolState state_of(std::string_view response) {
  const Result<contract::PoolState> state = contract::parse_pool_state(json_of(response));
  EXPECT_TRUE(state.ok()) << state.error().message;
  return state.ok() ? *state : contract::PoolState();
}

TEST(PoolStateRoute, OneAnswerHasAllThatAFleetNeeds) {
  FakePool pool;
  register_model(pool);
  pool.plan.change([](auto& plan) {
    plan = [](const contract::ModelEntry&, const PlanRequest& request) {
      MemoryPlan one;
      one.need.weights_bytes = request.backend == "cpu" ? 70 : 90;
      one.total_bytes = 1'000;
      return Result<std::vector<MemoryPlan>>(std::vector<MemoryPlan>{one});
    };
  });
  contract::PoolWorker worker = a_worker("worker-cpu-0", PoolWorkerState::Ready);
  worker.promised_bytes = 1 << 20;
  pool.workers.put(worker);
  pool.host.change([](contract::HostInfo& host) { host.memory_free_bytes = 5 << 20; });
  const std::string response = pool.get("/v2/state");
  expect_fits("State", response);
  const contract::PoolState state = state_of(response);
  EXPECT_EQ(state.api, contract::kPoolApi);
  EXPECT_TRUE(state.has_feature(contract::kFeatureRelay));
  EXPECT_TRUE(state.has_feature(contract::kFeatureOnDemand));
  EXPECT_EQ(state.pool_start, 1'000U);
  EXPECT_GT(state.revision, 1'000U);
  EXPECT_THAT(state.labels, ElementsAre("zone=attic"));
  ASSERT_EQ(state.devices.size(), 1U);
  EXPECT_EQ(state.devices[0].free_bytes, 4 << 20) << "without what was promised";
  const auto model = std::find_if(state.models.begin(), state.models.end(),
                                  [](const auto& one) { return one.id == "m"; });
  ASSERT_NE(model, state.models.end());
  EXPECT_EQ(model->model_hash.size(), 32U);
  EXPECT_GT(model->weight_bytes, 0);
  EXPECT_GT(model->need_bytes, 0);
  EXPECT_FALSE(state.known.empty());
  EXPECT_GT(state.known.front().missing_bytes, 0);
  EXPECT_FALSE(json_of(response).at("models").get_array().front().get_object().contains("gpu"));
}

std::string waiting_request(std::uint64_t revision) {
  return http::test::get(fmt::format("/v2/state?since={}&wait_ms=30000", revision),
                         "Connection: close\r\n");
}

TEST(PoolStateRoute, WaitsForAChange) {
  FakePool pool;
  const std::uint64_t revision = state_of(pool.get("/v2/state")).revision;
  http::test::RawSocket waiting(pool.server->port());
  waiting.send(waiting_request(revision));
  pool.board.take_workers({a_worker("worker-cpu-0", PoolWorkerState::Ready)});
  EXPECT_GT(state_of(waiting.read_all()).revision, revision);
}

TEST(PoolStateRoute, SeesTheCatalogChange) {
  FakePool pool;
  const std::uint64_t revision = state_of(pool.get("/v2/state")).revision;
  http::test::RawSocket waiting(pool.server->port());
  waiting.send(waiting_request(revision));
  register_model(pool);
  EXPECT_THAT(waiting.read_all(), HasSubstr(R"("id":"m")"));
}

TEST(PoolStateRoute, AnswersWhenNothingHappensAndAtOnceToAnotherLife) {
  FakePool pool;
  const std::uint64_t revision = state_of(pool.get("/v2/state")).revision;
  EXPECT_EQ(state_of(pool.get(fmt::format("/v2/state?since={}&wait_ms=20", revision))).revision,
            revision);
  EXPECT_EQ(state_of(pool.get("/v2/state?since=99999999999999&wait_ms=30000")).revision, revision);
  EXPECT_EQ(state_of(pool.get("/v2/state?since=0&wait_ms=30000")).revision, revision);
  EXPECT_EQ(status_of(pool.get("/v2/state?wait_ms=30001")), 400);
  EXPECT_EQ(status_of(pool.get("/v2/state?since=x")), 400);
}

TEST(StateBoard, NumbersThatMoveAllTheTimeMakeNoRevision) {
  StateBoard board(10);
  contract::PoolWorker worker = a_worker("worker-cpu-0", PoolWorkerState::Ready);
  board.take_workers({worker});
  const std::uint64_t revision = board.revision();
  worker.memory_bytes += 1;
  worker.slots_busy = 3;
  worker.tokens_per_second = 17;
  worker.state = PoolWorkerState::Busy;
  board.take_workers({worker});
  EXPECT_EQ(board.revision(), revision);
  worker.start += 1;
  board.take_workers({worker});
  EXPECT_EQ(board.revision(), revision + 1);
  worker.state = PoolWorkerState::Failed;
  worker.category = contract::ExitCategory::OomKill;
  board.take_workers({worker});
  EXPECT_EQ(board.revision(), revision + 2);
  EXPECT_EQ(board.find("worker-cpu-0")->category, contract::ExitCategory::OomKill);
  board.take_workers({});
  EXPECT_EQ(board.revision(), revision + 3);
  EXPECT_FALSE(board.find("worker-cpu-0"));
}

}  // namespace
}  // namespace llorch::pool
