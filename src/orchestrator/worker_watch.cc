#include "orchestrator/worker_watch.h"

#include <utility>

namespace llorch::orchestrator {
namespace {

using contract::PoolWorkerState;

bool has_ended(PoolWorkerState state) {
  return state == PoolWorkerState::Stopped || state == PoolWorkerState::Failed;
}

}  // namespace

void WorkerWatch::note_own_start(const std::string& worker, std::uint32_t start) {
  known_[worker] = {start, {}, PoolWorkerState::Ready};
}

std::vector<WorkerAct> WorkerWatch::take(std::uint64_t pool_start,
                                         const std::vector<contract::PoolWorker>& workers) {
  const bool is_first = std::exchange(pool_start_, pool_start) != pool_start;
  if (is_first) is_ending_ = false;
  const bool tells = !is_first && !is_ending_;
  std::vector<WorkerAct> acts;
  std::map<std::string, Known> now;
  for (const contract::PoolWorker& worker : workers) {
    now[worker.id] = {worker.start, worker.model, worker.state};
    const auto before = known_.find(worker.id);
    const bool is_new = before == known_.end() || before->second.start != worker.start;
    if (is_new) own_stops_.erase(worker.id);
    if (is_new && !has_ended(worker.state))
      acts.push_back({"worker.start", worker.id, worker.model});
    if (is_new || has_ended(before->second.state) || own_stops_.contains(worker.id)) continue;
    if (worker.state == PoolWorkerState::Draining &&
        before->second.state != PoolWorkerState::Draining)
      acts.push_back({"worker.drain", worker.id, worker.model});
    if (worker.state == PoolWorkerState::Stopped)
      acts.push_back({"worker.stop", worker.id, worker.model});
  }
  for (const auto& [id, before] : known_) {
    if (now.contains(id)) continue;
    if (!has_ended(before.state) && !own_stops_.contains(id))
      acts.push_back({"worker.stop", id, before.model});
    own_stops_.erase(id);
  }
  known_ = std::move(now);
  if (!tells) acts.clear();
  return acts;
}

}  // namespace llorch::orchestrator
