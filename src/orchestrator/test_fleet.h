// For tests and benchmarks: a whole orchestrator in process (owner, pools, relays, answers, store,
// HTTP) on one scripted pool with workers of the model "story".
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "http/io_threads.h"
#include "http/server.h"
#include "http/work_threads.h"
#include "job_store/store.h"
#include "orchestrator/answer_book.h"
#include "orchestrator/keys.h"
#include "orchestrator/orchestrator.h"
#include "orchestrator/pools.h"
#include "orchestrator/relay.h"
#include "orchestrator/test_pool.h"

namespace llorch::orchestrator::test {

struct TestFleetOptions {
  std::filesystem::path folder;  // of the store; made where it is not there
  std::uint32_t workers = 2;     // w0, w1, …
  std::int32_t slots = 8;        // of each
  std::string pool_url;          // another pool than its own; empty: its own
  int io_threads = 1;
  std::chrono::milliseconds keep_alive{10'000};
};

class TestFleet {
 public:
  explicit TestFleet(TestFleetOptions options);
  ~TestFleet();

  // Returns once a worker takes jobs.
  void wait_until_ready();
  std::string url(std::string_view path) const;  // of the orchestrator
  // The workers that the pool shows from now on.
  void show_workers(std::uint32_t workers);

  TestPool pool;

 private:
  const TestFleetOptions options_;
  std::unique_ptr<job_store::Store> store_;
  std::unique_ptr<Orchestrator> core_;

 public:
  http::WorkThreads threads{4};
  std::unique_ptr<http::IoThreads> io;
  std::unique_ptr<KeyRing> keys;
  std::unique_ptr<Pools> pools;
  std::unique_ptr<AnswerBook> answers;
  std::unique_ptr<Relays> relays;

  Orchestrator& core() { return *core_; }
  job_store::Store& store() { return *store_; }

 private:
  std::unique_ptr<http::Server> server_;
};

}  // namespace llorch::orchestrator::test
