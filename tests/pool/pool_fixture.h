// A pool in a folder of its own, with short patience, fake workers and answers made up for the rest
// of the host. Shared by the tests and by the manager that they kill.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "http/server.h"
#include "pool/pool_manager.h"
#include "support/test_paths.h"

namespace llorch::test {

inline constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// A model is a file in ROOT/models whose name says how the worker behaves (tests/fake_worker).
// "huge…" needs 100 GiB, every other 1 MiB; the host has 8 GiB and one GPU.
pool::PoolManagerOptions make_pool_options(const std::filesystem::path& root,
                                           std::string callback_url);
void add_model(const std::filesystem::path& root, const std::string& name);

// Takes ready callbacks as the pool's API does.
class CallbackServer {
 public:
  CallbackServer();
  std::string url() const;
  // The manager must be detached (null) before it goes.
  void attach(pool::PoolManager* manager);

 private:
  Result<http::Response> take(const http::Request& request);

  base::Mutex mutex_;
  pool::PoolManager* manager_ LLORCH_GUARDED_BY(mutex_) = nullptr;
  std::unique_ptr<http::Server> server_;
};

// Processes whose command line names the text.
std::vector<int> processes_naming(const std::string& text);

// Waits until the condition holds; false after ten seconds.
bool eventually(const std::function<bool()>& condition);

// A manager inside the test. Leaves no process behind, which it asserts.
class PoolFixture {
  TempDir folder_;
  CallbackServer callback_;

 public:
  PoolFixture();
  ~PoolFixture();

  // Starts the manager, or again.
  void start();
  // Lets go of the workers.
  void detach();

  pool::PoolManager& manager() { return *manager_; }
  const std::filesystem::path& root() const { return folder_.path(); }
  const CallbackServer& callback() const { return callback_; }

  // A worker of this behaviour; the model is made.
  Result<contract::PoolWorker> start_worker(const std::string& model,
                                            const std::string& backend = "cpu");
  contract::PoolWorker worker(const std::string& id);  // empty id: not there
  bool wait_for(const std::string& id, contract::PoolWorkerState state);
  // An id that is ready.
  std::string ready_worker(const std::string& model);
  std::string log(const std::string& id) const;

  pool::PoolManagerOptions options;  // for the next start()

 private:
  std::unique_ptr<pool::PoolManager> manager_;
};

}  // namespace llorch::test
