// The worker that answers a command: one of our own, gone with it, or one of a pool, which stays.
// Private to cli/.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "base/mutex.h"
#include "base/result.h"
#include "cli/find_pool.h"
#include "cli/local_worker.h"
#include "contract/backend_kind.h"
#include "contract/model_entry.h"

namespace llorch::cli {

struct WorkerChoice {
  std::string model{contract::kBuiltinModel};
  std::filesystem::path worker;  // the program of a worker of our own
  std::optional<std::int64_t> threads;
  std::optional<std::int64_t> context;
  // Set: a ready worker of that pool, or one that it is asked to start. `model` is then an id of
  // its catalog.
  std::optional<PoolTarget> pool;
  std::string backend{contract::kCpu};  // of a worker that the pool starts
};

// Owned by the thread that starts it; interrupt() may come from any other, also before start().
class AnsweringWorker {
 public:
  explicit AnsweringWorker(WorkerChoice choice) : choice_(std::move(choice)) {}
  AnsweringWorker(const AnsweringWorker&) = delete;
  AnsweringWorker& operator=(const AnsweringWorker&) = delete;
  ~AnsweringWorker();

  // Returns when it can be asked; a bar moves on stderr meanwhile. Cancelled after interrupt().
  Status start();

  const WorkerChoice& choice() const { return choice_; }
  const std::string& uri() const { return uri_; }
  double load_seconds() const { return load_seconds_; }

  // Ends what waits in start(), and a worker of our own with whatever waits for it.
  void interrupt();

  // Why it may have died; empty while it lives.
  std::string obituary();

 private:
  Status start_own();
  LocalWorker* own() LLORCH_EXCLUDES(mutex_);  // null: there is none
  Status start_in_pool();

  const WorkerChoice choice_;
  std::string uri_;
  double load_seconds_ = 0;
  std::stop_source stop_;
  base::Mutex mutex_;
  // Set once by start(). The mutex is for interrupt(), which may look for it meanwhile.
  std::unique_ptr<LocalWorker> own_ LLORCH_GUARDED_BY(mutex_);
  std::optional<PoolClient> client_;
  std::string pool_worker_;  // its id
};

}  // namespace llorch::cli
