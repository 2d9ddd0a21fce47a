// JoinedPools: pools that came by themselves. They open the connections (TLS, from behind whatever
// is between), we use them: each host has a unix socket here, and what connects to it is carried
// over one of the connections that its pool keeps in reserve. To everybody else such a pool is one
// at the end of a socket, as behind ssh.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <set>
#include <stop_token>
#include <string>
#include <unordered_map>

#include "base/mutex.h"
#include "base/result.h"
#include "fleet/handles.h"
#include "http/feed.h"
#include "http/io_threads.h"
#include "http/stream.h"
#include "orchestrator/ports.h"

namespace llorch::orchestrator {

// Any thread.
class JoinedPools {
 public:
  // `run_folder`: for sockets, this user's alone. Coroutines run on `io`, which ends first.
  JoinedPools(http::IoThreads& io, std::filesystem::path run_folder);
  ~JoinedPools();
  JoinedPools(const JoinedPools&) = delete;
  JoinedPools& operator=(const JoinedPools&) = delete;

  // How the pool of this host is asked from now on. `key`: whose connections are taken.
  PoolAddress open(const fleet::HostId& host, fleet::KeyId key);
  // Ends all of its connections; false: there is no such host.
  bool close(const fleet::HostId& host);
  // The same for every host that this key let in; it may come again with another.
  void close_of_key(fleet::KeyId key);
  void close_all();  // nothing is taken any more

  // One connection that a pool keeps in reserve: answered with 101, and carried until it has ended.
  // NotFound: no such host was opened for that key.
  http::Task<Status> serve(fleet::HostId host, fleet::KeyId key, http::Responder& responder);

 private:
  using Feed = http::EventFeed<int>;  // the descriptor of what is to be carried
  struct Waiting {
    std::uint64_t number = 0;
    int fd = -1;
  };
  struct Desk {
    fleet::KeyId key;
    std::string path;
    std::stop_source stop;
    std::deque<std::shared_ptr<Feed>> idle;
    std::deque<Waiting> waiting;  // that found no connection yet
    std::uint64_t next_number = 0;
    std::set<int> carried;  // a second descriptor of each socket under way, to end it by
    bool is_cut = false;
    std::size_t connections = 0;
  };
  using DeskPtr = std::shared_ptr<Desk>;

  http::Task<void> listen(DeskPtr desk);
  void take(const DeskPtr& desk, int fd);
  http::Task<void> give_up_later(DeskPtr desk, std::uint64_t number);
  http::Task<void> carry(DeskPtr desk, int fd, http::Responder& responder);
  bool enter(const DeskPtr& desk, const std::shared_ptr<Feed>& feed);
  void leave(const DeskPtr& desk, const std::shared_ptr<Feed>& feed);
  void end(Desk& desk) LLORCH_REQUIRES(mutex_);
  void cut(Desk& desk) LLORCH_REQUIRES(mutex_);

  http::IoThreads& io_;
  const std::filesystem::path run_folder_;
  base::Mutex mutex_;
  bool is_closed_ LLORCH_GUARDED_BY(mutex_) = false;
  std::unordered_map<fleet::HostId, DeskPtr> desks_ LLORCH_GUARDED_BY(mutex_);
};

}  // namespace llorch::orchestrator
