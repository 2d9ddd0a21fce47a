#include "pool/routes_fixture.h"

namespace llorch::pool {
namespace {

TEST(PoolModels, RegisterShowUpdateRemove) {
  FakePool pool;
  const std::string created = register_model(pool);
  EXPECT_EQ(status_of(created), 201) << created;
  expect_fits("Model", created);
  EXPECT_EQ(json_of(created).at("architecture"), "gpt2");
  EXPECT_EQ(json_of(created).at("downloaded"), true);
  expect_fits("Model", pool.get("/v2/models/m"));
  expect_fits("ModelList", pool.get("/v2/models?known=true"));
  EXPECT_EQ(status_of(register_model(pool)), 409);

  const std::string updated = pool.send("PATCH", "/v2/models/m", R"({"name":"Mine"})");
  EXPECT_EQ(status_of(updated), 200) << updated;
  EXPECT_EQ(json_of(pool.get("/v2/models/m")).at("name"), "Mine");

  EXPECT_EQ(status_of(pool.send("DELETE", "/v2/models/m")), 200);
  EXPECT_EQ(status_of(pool.get("/v2/models/m")), 404);
  EXPECT_EQ(status_of(pool.send("DELETE", "/v2/models/m")), 404);
}

TEST(PoolModels, KnownOnesAreShownWhenAskedFor) {
  FakePool pool;
  EXPECT_FALSE(json_of(pool.get("/v2/models")).get_object().contains("known"));
  EXPECT_THAT(body_of(pool.get("/v2/models?known=true")), HasSubstr("tinyllama"));
}

TEST(PoolModels, MistakesAreNamed) {
  FakePool pool;
  EXPECT_THAT(failed_fields(pool.send("POST", "/v2/models", R"({"id":"../x","size":3})")),
              ElementsAre("id", "size"));
  EXPECT_EQ(status_of(pool.send("POST", "/v2/models", R"({"id":"x","path":"/nowhere"})")), 404);
  EXPECT_EQ(status_of(pool.send("POST", "/v2/models", R"({"id":"x"})")), 400);
  EXPECT_EQ(status_of(pool.send("POST", "/v2/models", R"({"id":"x","repo":"nowhere"})")), 400);
  EXPECT_EQ(status_of(pool.send("POST", "/v2/models", R"({"id":"builtin"})")), 409);
  EXPECT_THAT(failed_fields(pool.send("PATCH", "/v2/models/m", R"({"id":"x"})")),
              ElementsAre("id"));
  EXPECT_THAT(failed_fields(pool.send("DELETE", "/v2/models/m?file=true")), ElementsAre("file"));
  EXPECT_THAT(failed_fields(pool.get("/v2/models?knwon=true")), ElementsAre("knwon"));
  EXPECT_EQ(status_of(pool.send("DELETE", "/v2/models/builtin")), 409);
}

TEST(PoolModels, OneInUseKeepsItsPlace) {
  FakePool pool;
  register_model(pool);
  pool.workers.put(a_worker("w", PoolWorkerState::Ready));
  const std::string removed = pool.send("DELETE", "/v2/models/m?files=true");
  EXPECT_EQ(status_of(removed), 409);
  EXPECT_THAT(message_of(removed), HasSubstr("stop"));
  EXPECT_EQ(status_of(pool.send("PATCH", "/v2/models/m", R"({"downloaded":false})")), 409);
  EXPECT_EQ(status_of(pool.send("PATCH", "/v2/models/m", R"({"name":"still"})")), 200);
  pool.workers.put(a_worker("w", PoolWorkerState::Stopped));
  EXPECT_EQ(status_of(pool.send("DELETE", "/v2/models/m?files=true")), 200);
  EXPECT_TRUE(std::filesystem::exists(::llorch::test::source_path("tests/golden/gpt2_tiny")))
      << "files that are used in place stay";
}

TEST(PoolModels, FilesOfOurOwnGoWithTheModel) {
  FakePool pool;
  const std::filesystem::path ours = pool.home.models() / "m";
  std::filesystem::create_directories(pool.home.models());
  std::filesystem::copy(::llorch::test::source_path("tests/golden/gpt2_tiny"), ours,
                        std::filesystem::copy_options::recursive);
  const std::string body = fmt::format(R"({{"id":"m","path":"{}"}})", ours.string());
  ASSERT_EQ(status_of(pool.send("POST", "/v2/models", body)), 201);
  ASSERT_EQ(status_of(pool.send("DELETE", "/v2/models/m")), 200);
  EXPECT_TRUE(std::filesystem::exists(ours));
  ASSERT_EQ(status_of(pool.send("POST", "/v2/models", body)), 201);
  ASSERT_EQ(status_of(pool.send("DELETE", "/v2/models/m?files=true")), 200);
  EXPECT_FALSE(std::filesystem::exists(ours));
  EXPECT_TRUE(std::filesystem::exists(pool.home.models()));
}

TEST(PoolPlan, AsksForEveryDeviceThatIsHere) {
  FakePool pool;
  register_model(pool);
  test::Shared<std::vector<PlanRequest>> requests;
  pool.plan.change([&requests](auto& plan) {
    plan = [&requests](const contract::ModelEntry& model,
                       const PlanRequest& request) -> Result<std::vector<MemoryPlan>> {
      EXPECT_EQ(model.id, "m");
      requests.change([&](auto& all) { all.push_back(request); });
      MemoryPlan answer;
      answer.device = request.backend;
      return std::vector<MemoryPlan>{answer};
    };
  });
  pool.host.change([](auto& host) { host.gpus.emplace_back(); });
  std::string response = pool.get("/v2/models/m/plan?ctx=512&slots=2&kv=q8_0");
  EXPECT_EQ(status_of(response), 200) << response;
  std::vector<PlanRequest> asked = requests.get();
  ASSERT_EQ(asked.size(), 2U);
  EXPECT_EQ(asked[0].backend, "cpu");
  EXPECT_EQ(asked[1].backend, "cuda");
  EXPECT_EQ(asked[1].context, 512);
  EXPECT_EQ(asked[1].slots, 2);
  EXPECT_EQ(asked[1].kv_type, "q8_0");
  expect_fits("Plans", response);
  response = pool.get("/v2/models/m/plan?backend=cuda&gpu=0");
  asked = requests.get();
  ASSERT_EQ(asked.size(), 3U);
  EXPECT_EQ(asked[2].gpu, 0);
  EXPECT_THAT(failed_fields(pool.get("/v2/models/m/plan?backend=tpu&ctx=0&kv=f64&x=1")),
              ElementsAre("backend", "ctx", "kv", "x"));
  EXPECT_EQ(status_of(pool.get("/v2/models/none/plan")), 404);
}

}  // namespace
}  // namespace llorch::pool
