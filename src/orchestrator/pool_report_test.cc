#include "orchestrator/pool_report.h"

#include <gtest/gtest.h>

#include <string>

namespace llorch::orchestrator {
namespace {

contract::PoolModel model(std::string id, std::string hash, bool downloaded) {
  contract::PoolModel made;
  made.id = std::move(id);
  made.model_hash = std::move(hash);
  made.downloaded = downloaded;
  made.backends = {"cpu"};
  made.weight_bytes = 1000;
  made.missing_bytes = downloaded ? 0 : 1000;
  return made;
}

const std::string kFiles(32, 'a');
const std::string kSource(32, 'b');
const std::string kOther(32, 'c');

TEST(ModelBook, AFetchedModelStaysTheOneThatJobsWaitFor) {
  ModelBook book;
  const fleet::ModelHash waited = book.find(model("m", kSource, false));
  EXPECT_EQ(fleet::text(waited), kSource);
  EXPECT_EQ(book.find(model("m", kFiles, true)), waited);
  EXPECT_EQ(book.find(kFiles, "m"), waited);  // its worker's
  const auto aliases = book.take_new_aliases();
  ASSERT_EQ(aliases.size(), 1U);
  EXPECT_TRUE(book.take_new_aliases().empty());
  // After a start nothing but the alias is known.
  ModelBook later;
  later.add_alias(aliases.front());
  EXPECT_EQ(later.find(model("m", kFiles, true)), waited);
}

TEST(ModelBook, AHostWithoutAModelMeansTheOneThatAnotherHas) {
  ModelBook book;
  const fleet::ModelHash here = book.find(model("m", kFiles, true));
  EXPECT_EQ(fleet::text(here), kFiles);
  EXPECT_EQ(book.find(model("m", kSource, false)), here);
}

TEST(ModelBook, TwoModelsOfOneNameAreTwo) {
  ModelBook book;
  const fleet::ModelHash first = book.find(model("m", kFiles, true));
  EXPECT_NE(book.find(model("m", kOther, true)), first);
}

TEST(PoolReport, ListsDownloadsThatAreUnderWay) {
  const Result<json::Value> state = json::parse(R"({"downloads":[
    {"id":"d-1","kind":"download","model":"a","state":"running",
     "progress":{"event":"progress","bytes_done":25,"bytes_total":100,"seconds_left":3}},
    {"id":"d-2","kind":"verify","model":"b","state":"running","progress":null},
    {"id":"d-3","kind":"download","model":"c","state":"queued"},
    {"id":"d-4","kind":"download","model":"d","state":"done"},
    {"id":"d-5","kind":"download","model":"e","state":"failed"}]})");
  ASSERT_TRUE(state.ok());
  const std::vector<contract::FleetLoad> loads = list_downloads("box2", *state);
  ASSERT_EQ(loads.size(), 3U);
  EXPECT_EQ(loads[0], (contract::FleetLoad{"box2", "a", "fetching", 0.25, 3000}));
  EXPECT_EQ(loads[1], (contract::FleetLoad{"box2", "b", "verifying", std::nullopt, 0}));
  EXPECT_EQ(loads[2], (contract::FleetLoad{"box2", "c", "queued", std::nullopt, 0}));
  for (const std::string_view odd : {"{}", "[]", R"({"downloads":3})", R"({"downloads":[3]})",
                                     R"({"downloads":[{"state":"running","progress":3}]})"})
    EXPECT_LE(list_downloads("box2", *json::parse(odd)).size(), 1U) << odd;
}

TEST(PoolReport, SaysWhatPlacementNeeds) {
  contract::PoolState state;
  state.pool_start = 5;
  state.revision = 9;
  state.labels = {"fast"};
  contract::PoolDevice cpu;
  cpu.backend = "cpu";
  cpu.total_bytes = 100;
  cpu.free_bytes = 60;
  contract::PoolDevice gpu;
  gpu.number = 2;
  gpu.backend = "cuda";
  state.devices = {cpu, gpu};
  contract::PoolModel both = model("m", kFiles, true);
  both.backends = {"cpu", "cuda"};
  both.need_bytes = 40;
  contract::PoolModel none = model("n", kOther, true);
  none.backends = {};
  state.models = {both, none};
  state.known = {model("k", kSource, false)};
  contract::PoolWorker worker;
  worker.id = "worker-cuda-0";
  worker.model = "m";
  worker.model_hash = kFiles;
  worker.device = 2;
  worker.state = contract::PoolWorkerState::Failed;
  worker.category = contract::ExitCategory::OomKill;
  worker.slots = 3;
  worker.start = 77;
  state.workers = {worker};
  ModelBook book;
  const fleet::PoolSeen seen = make_pool_seen("h", state, book);
  EXPECT_EQ(seen.host, "h");
  EXPECT_EQ(seen.revision, 9U);
  ASSERT_EQ(seen.models.size(), 2U);  // nothing runs n
  EXPECT_EQ(seen.models[0].devices, 0b101U);
  EXPECT_EQ(seen.models[0].need_bytes, 40);
  EXPECT_EQ(seen.models[1].name, "k");
  EXPECT_EQ(seen.models[1].missing_bytes, 1000);
  ASSERT_EQ(seen.workers.size(), 1U);
  EXPECT_EQ(seen.workers[0].state, fleet::SeenState::Ended);
  EXPECT_EQ(seen.workers[0].cause, fleet::LossCause::OutOfMemory);
  EXPECT_EQ(seen.workers[0].device, 2U);
  EXPECT_EQ(seen.workers[0].start, 77U);
  EXPECT_EQ(seen.workers[0].model, seen.models[0].model);
}

TEST(PoolReport, WorkersThatSomebodyStartedAreToStay) {
  contract::PoolState state;
  contract::PoolWorker worker;
  worker.model_hash = kFiles;
  state.workers.assign(2, worker);
  state.workers[1].on_demand = true;
  ModelBook book;
  EXPECT_FALSE(make_pool_seen("h", state, book).workers[0].is_pinned)
      << "a pool that does not tell has none that stay";
  state.features = {std::string(contract::kFeatureOnDemand)};
  const fleet::PoolSeen seen = make_pool_seen("h", state, book);
  EXPECT_TRUE(seen.workers[0].is_pinned);
  EXPECT_FALSE(seen.workers[1].is_pinned);
}

TEST(PoolReport, EqualBuildsAndDevicesComputeTheSame) {
  contract::PoolState state;
  contract::PoolWorker worker;
  worker.model_hash = kFiles;
  worker.build = "b1";
  worker.device_class = "avx2";
  state.workers.assign(3, worker);
  state.workers[1].id = "other";
  state.workers[2].device_class = "sse4";
  ModelBook book;
  const fleet::PoolSeen seen = make_pool_seen("h", state, book);
  EXPECT_EQ(seen.workers[0].exactness, seen.workers[1].exactness);
  EXPECT_NE(seen.workers[0].exactness, seen.workers[2].exactness);
}

}  // namespace
}  // namespace llorch::orchestrator
