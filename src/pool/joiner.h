// Joiner: takes this pool into a fleet that cannot reach it. The pool opens the connections; the
// orchestrator asks over them what it would ask at our unix socket, to which each is carried.
#pragma once

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "base/home.h"
#include "base/mutex.h"
#include "base/result.h"
#include "contract/join_api.h"
#include "http/io_threads.h"
#include "http/pipe.h"

namespace llorch::pool {

// Any thread.
class Joiner {
 public:
  explicit Joiner(base::Home home);
  ~Joiner();
  Joiner(const Joiner&) = delete;
  Joiner& operator=(const Joiner&) = delete;

  // From now on connections lead to `socket`; goes on with what was asked for before a restart.
  void start(std::string socket);

  // Asks the orchestrator, remembers it (0600) and begins; instead of what was before. Blocks. The
  // error is the orchestrator's, or says why it was not reached.
  Result<contract::PoolJoinState> join(const contract::PoolJoinRequest& request);
  // Tells the orchestrator, as far as it answers, and forgets it. Blocks.
  Result<contract::PoolJoinState> leave();

  contract::PoolJoinState state() const;

 private:
  struct Session;
  using SessionPtr = std::shared_ptr<Session>;

  Result<SessionPtr> make_session(const contract::PoolJoinRequest& request) const;
  void begin(const SessionPtr& session);
  void end_session();
  http::Task<void> keep_door(SessionPtr session);
  http::Task<void> use_door(http::Pipe door, std::string first);
  void note(const SessionPtr& session, const char* state, std::string reason);

  const base::Home home_;
  mutable base::Mutex mutex_;
  std::string socket_ LLORCH_GUARDED_BY(mutex_);
  SessionPtr session_ LLORCH_GUARDED_BY(mutex_);
  contract::PoolJoinState state_ LLORCH_GUARDED_BY(mutex_);
  http::IoThreads io_{1};  // last: its coroutines use the others
};

}  // namespace llorch::pool
