// A pool manager with fake workers, for tests.
#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <charconv>
#include <csignal>
#include <fstream>
#include <iterator>
#include <set>
#include <thread>
#include "base/mutex.h"
#include "base/process_table.h"
#include "http/client.h"
#include "pool/pool_fixture.h"
#include "pool/pool_manager.h"
#include "pool/worker_log.h"
#include "pool/worker_record.h"

namespace llorch::pool {

using contract::ExitCategory;
using contract::PoolWorker;
using contract::PoolWorkerState;
using std::chrono::milliseconds;
using test::eventually;
using test::kMiB;
using ::testing::AllOf, ::testing::Contains, ::testing::HasSubstr, ::testing::IsEmpty,
    ::testing::Not;

class PoolManagerTest : public ::testing::Test {
 protected:
  void SetUp() override { pool_.start(); }

  // The worker once it has failed.
  PoolWorker failed(const std::string& id) {
    EXPECT_TRUE(pool_.wait_for(id, PoolWorkerState::Failed));
    return pool_.worker(id);
  }
  std::string started(const std::string& model) {
    const Result<PoolWorker> worker = pool_.start_worker(model);
    EXPECT_TRUE(worker.ok()) << worker.error().message;
    return worker.ok() ? worker->id : "";
  }
  // Stops it and waits; nothing of it may run then.
  PoolWorker stopped(const std::string& id) {
    const Result<PoolWorker> draining = pool_.manager().stop_worker(id);
    EXPECT_TRUE(draining.ok()) << draining.error().message;
    EXPECT_TRUE(eventually([&] {
      const PoolWorkerState state = pool_.worker(id).state;
      return state == PoolWorkerState::Stopped || state == PoolWorkerState::Failed;
    })) << pool_.worker(id).reason;
    EXPECT_THAT(test::processes_naming(pool_.root().string()), IsEmpty());
    return pool_.worker(id);
  }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(pool_.options.home.workers()))
      names.push_back(entry.path().filename().string());
    return names;
  }

  test::PoolFixture pool_;
};

}  // namespace llorch::pool
