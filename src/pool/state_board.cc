#include "pool/state_board.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

namespace llorch::pool {
namespace {

using contract::PoolWorkerState;

constexpr double kProgressSteps = 20;

// What makes a revision of a worker.
void append_digest(std::string& out, const contract::PoolWorker& worker) {
  const PoolWorkerState state =
      worker.state == PoolWorkerState::Busy ? PoolWorkerState::Ready : worker.state;
  fmt::format_to(std::back_inserter(out), "{} {} {} {} {} {} {} {} {} {} {}\n", worker.id,
                 worker.start, contract::name(state), contract::name(worker.category), worker.uri,
                 worker.slots, worker.context, worker.model_hash, worker.build, worker.device_class,
                 static_cast<int>(worker.load_progress * kProgressSteps));
}

}  // namespace

StateBoard::StateBoard(std::uint64_t now_ms) : pool_start_(now_ms), revision_(now_ms) {}

std::uint64_t StateBoard::revision() const {
  const base::MutexLock lock(mutex_);
  return revision_;
}

void StateBoard::note_change() {
  ++revision_;
  for (auto& [number, waker] : watches_) waker.notify();
}

void StateBoard::take_workers(const std::vector<contract::PoolWorker>& workers) {
  std::string digest;
  std::map<std::string, contract::PoolWorker, std::less<>> by_id;
  for (const contract::PoolWorker& worker : workers) {
    append_digest(digest, worker);
    by_id.emplace(worker.id, worker);
  }
  const base::MutexLock lock(mutex_);
  workers_ = std::move(by_id);
  if (std::exchange(worker_digest_, digest) != digest) note_change();
}

void StateBoard::take_rest(std::string digest) {
  const base::MutexLock lock(mutex_);
  if (rest_digest_ == digest) return;
  rest_digest_ = std::move(digest);
  note_change();
}

std::optional<contract::PoolWorker> StateBoard::find(std::string_view id) const {
  const base::MutexLock lock(mutex_);
  const auto found = workers_.find(id);
  if (found == workers_.end()) return std::nullopt;
  return found->second;
}

StateBoard::Watch::Watch(StateBoard& board) : board_(board) {
  const base::MutexLock lock(board_.mutex_);
  number_ = board_.next_watch_++;
  board_.watches_.emplace(number_, waker_);
}

StateBoard::Watch::~Watch() {
  const base::MutexLock lock(board_.mutex_);
  board_.watches_.erase(number_);
}

}  // namespace llorch::pool
