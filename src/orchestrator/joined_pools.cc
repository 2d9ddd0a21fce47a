#include "orchestrator/joined_pools.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/digest.h"
#include "base/log.h"
#include "contract/join_api.h"
#include "http/pipe.h"
#include "http/url.h"

namespace llorch::orchestrator {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kConnectionsMax = 1024;  // of one host
constexpr std::size_t kWaitingMax = 256;
constexpr std::chrono::milliseconds kPatience{3'000};  // for a connection of the pool to be free
constexpr std::chrono::hours kLook{1};
constexpr int kBindTries = 50;
constexpr std::chrono::milliseconds kBindPause{100};

const base::Logger& logger() {
  static const base::Logger instance("orchestrator");
  return instance;
}

http::Task<void> pause_for(std::chrono::milliseconds time) {
  http::Waker waker;
  const auto until = Clock::now() + time;
  while (Clock::now() < until) co_await waker.wait_until(until);
}

}  // namespace

JoinedPools::JoinedPools(http::IoThreads& io, std::filesystem::path run_folder)
    : io_(io), run_folder_(std::move(run_folder)) {}

JoinedPools::~JoinedPools() {
  close_all();
}

PoolAddress JoinedPools::open(const fleet::HostId& host, fleet::KeyId key) {
  const base::MutexLock lock(mutex_);
  DeskPtr& desk = desks_[host];
  if (!desk || desk->stop.stop_requested()) {
    desk = std::make_shared<Desk>();
    // A name that fits into a socket's, whatever the host is called.
    desk->path =
        (run_folder_ / ("join-" + base::sha256_hex(host).substr(0, 16) + ".sock")).string();
    io_.spawn([this, desk = desk] { return listen(desk); });
  }
  desk->key = key;
  return {http::unix_url(desk->path), ""};
}

// What is carried goes on.
void JoinedPools::end(Desk& desk) {
  desk.stop.request_stop();
  for (const std::shared_ptr<Feed>& feed : desk.idle) feed->close();
  for (const Waiting& one : std::exchange(desk.waiting, {})) ::close(one.fd);
}

void JoinedPools::cut(Desk& desk) {
  end(desk);
  desk.is_cut = true;
  for (const int fd : desk.carried) ::shutdown(fd, SHUT_RDWR);
}

bool JoinedPools::close(const fleet::HostId& host) {
  const base::MutexLock lock(mutex_);
  const auto found = desks_.find(host);
  if (found == desks_.end()) return false;
  cut(*found->second);
  desks_.erase(found);
  return true;
}

void JoinedPools::close_of_key(fleet::KeyId key) {
  const base::MutexLock lock(mutex_);
  for (auto& [host, desk] : desks_) {
    if (desk->key == key) cut(*desk);
  }
}

void JoinedPools::close_all() {
  const base::MutexLock lock(mutex_);
  is_closed_ = true;
  for (auto& [host, desk] : desks_) end(*desk);
}

http::Task<void> JoinedPools::listen(DeskPtr desk) {
  std::function<void(int)> on_connection = [this, desk](int fd) { take(desk, fd); };
  // One that has just ended may still have the socket of that name.
  Status ended = Error{ErrorCode::Conflict, "not tried"};
  for (int i = 0; i < kBindTries && !ended.ok() && ended.error().code == ErrorCode::Conflict; ++i) {
    if (i > 0) co_await pause_for(kBindPause);
    ended = co_await http::accept_pipes(desk->path, on_connection, desk->stop.get_token());
  }
  if (!ended.ok())
    logger().error("a joined pool cannot be reached", {{"why", ended.error().message}});
}

// Something here wants to speak with the pool.
void JoinedPools::take(const DeskPtr& desk, int fd) {
  std::uint64_t number = 0;
  {
    const base::MutexLock lock(mutex_);
    while (!desk->idle.empty()) {
      const std::shared_ptr<Feed> feed = desk->idle.front();
      desk->idle.pop_front();
      if (feed->try_push(fd)) return;
    }
    if (desk->waiting.size() >= kWaitingMax || desk->stop.stop_requested()) {
      ::close(fd);
      return;
    }
    number = desk->next_number++;
    desk->waiting.push_back({number, fd});
  }
  io_.spawn([this, desk, number] { return give_up_later(desk, number); });
}

http::Task<void> JoinedPools::give_up_later(DeskPtr desk, std::uint64_t number) {
  co_await pause_for(kPatience);
  const base::MutexLock lock(mutex_);
  const auto found = std::find_if(desk->waiting.begin(), desk->waiting.end(),
                                  [number](const Waiting& one) { return one.number == number; });
  if (found == desk->waiting.end()) co_return;
  ::close(found->fd);
  desk->waiting.erase(found);
}

// False: it is not wanted.
bool JoinedPools::enter(const DeskPtr& desk, const std::shared_ptr<Feed>& feed) {
  const base::MutexLock lock(mutex_);
  if (is_closed_ || desk->stop.stop_requested() || desk->connections >= kConnectionsMax)
    return false;
  ++desk->connections;
  if (desk->waiting.empty()) {
    desk->idle.push_back(feed);
    return true;
  }
  const int fd = desk->waiting.front().fd;
  desk->waiting.pop_front();
  if (!feed->try_push(fd)) ::close(fd);
  return true;
}

void JoinedPools::leave(const DeskPtr& desk, const std::shared_ptr<Feed>& feed) {
  const base::MutexLock lock(mutex_);
  --desk->connections;
  std::erase(desk->idle, feed);
}

http::Task<void> JoinedPools::carry(DeskPtr desk, int fd, http::Responder& responder) {
  const int handle = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  {
    const base::MutexLock lock(mutex_);
    if (handle >= 0) desk->carried.insert(handle);
    if (desk->is_cut) ::shutdown(fd, SHUT_RDWR);
  }
  http::Pipe far = http::Pipe::take_over(responder);
  Result<http::Pipe> near = co_await http::Pipe::adopt(fd);
  if (near.ok()) co_await http::join_pipes(near.take(), std::move(far));
  const base::MutexLock lock(mutex_);
  desk->carried.erase(handle);
  if (handle >= 0) ::close(handle);
}

http::Task<Status> JoinedPools::serve(fleet::HostId host, fleet::KeyId key,
                                      http::Responder& responder) {
  DeskPtr desk;
  {
    const base::MutexLock lock(mutex_);
    const auto found = desks_.find(host);
    if (found != desks_.end() && found->second->key == key) desk = found->second;
  }
  if (!desk) {
    co_return Error{ErrorCode::NotFound,
                    "host '" + host + "' has not joined with this key; `llorch-pool join` does"};
  }
  const auto feed = std::make_shared<Feed>(1);
  responder.on_disconnect([feed] { feed->close(); });
  Status told = co_await http::send_upgrade(responder, contract::kPoolProtocol);
  if (!told.ok()) co_return told;
  if (!enter(desk, feed)) co_return ok_status();  // the connection ends
  std::optional<int> fd;
  bool is_open = true;
  while (is_open && !fd) {
    const Feed::Next next = co_await feed->next(kLook);
    fd = next.item;
    is_open = !next.ended;
  }
  feed->close();
  if (fd && responder.is_closed()) {
    ::close(*fd);
  } else if (fd) {
    co_await carry(desk, *fd, responder);
  }
  leave(desk, feed);
  co_return ok_status();
}

}  // namespace llorch::orchestrator
