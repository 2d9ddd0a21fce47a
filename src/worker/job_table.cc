#include "worker/job_table.h"

#include "base/utf8.h"

namespace llorch::worker {

Result<JobTable::Use> JobTable::begin(const std::string& job_id) {
  const base::MutexLock lock(mutex_);
  if (use_by_id_.contains(job_id)) {
    return Error{ErrorCode::Conflict, "the job id " + base::quoted(job_id) +
                                          " is in use; wait for its end or choose another"};
  }
  const Use use = next_use_++;
  use_by_id_.emplace(job_id, use);
  active_.emplace(use, Entry{job_id, {}, false});
  return use;
}

bool JobTable::bind(Use use, std::uint64_t generation) {
  const base::MutexLock lock(mutex_);
  const auto entry = active_.find(use);
  if (entry == active_.end()) return false;  // it has ended already
  entry->second.generation = generation;
  return entry->second.cancel_wanted;
}

void JobTable::withdraw(Use use) {
  const base::MutexLock lock(mutex_);
  const auto entry = active_.find(use);
  if (entry == active_.end()) return;
  use_by_id_.erase(entry->second.job_id);
  active_.erase(entry);
}

void JobTable::end(Use use) {
  const base::MutexLock lock(mutex_);
  const auto entry = active_.find(use);
  if (entry == active_.end()) return;
  std::string job_id = std::move(entry->second.job_id);
  use_by_id_.erase(job_id);
  active_.erase(entry);
  ++ended_[job_id];
  ended_order_.push_back(std::move(job_id));
  if (ended_order_.size() <= max_ended_) return;
  const auto oldest = ended_.find(ended_order_.front());
  if (--oldest->second == 0) ended_.erase(oldest);
  ended_order_.pop_front();
}

Result<std::optional<std::uint64_t>> JobTable::cancel(std::string_view job_id) {
  const base::MutexLock lock(mutex_);
  const std::string key(job_id);
  if (const auto use = use_by_id_.find(key); use != use_by_id_.end()) {
    Entry& entry = active_.at(use->second);
    entry.cancel_wanted = true;
    return entry.generation;
  }
  if (ended_.contains(key)) return std::optional<std::uint64_t>();
  return Error{ErrorCode::NotFound, "no job " + base::quoted(job_id) + " ever ran here"};
}

std::size_t JobTable::num_active() const {
  const base::MutexLock lock(mutex_);
  return active_.size();
}

}  // namespace llorch::worker
