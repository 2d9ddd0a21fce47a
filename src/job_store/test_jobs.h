// What the tests of stores share: small jobs, and a listener that can be waited for.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "job_store/store.h"

namespace llorch::job_store {

inline fleet::JobId job_id(std::uint64_t number) {
  return {0x0123456789abcdefU, number};
}

inline fleet::SubmittedRecord submitted(std::uint64_t key) {
  fleet::SubmittedRecord record;
  record.key = {key};
  record.model_name = "tiny";
  record.submitted_ms = 1000;
  return record;
}

inline fleet::EndedRecord ended(fleet::JobState state, std::int64_t at_ms = 1000) {
  fleet::EndedRecord record;
  record.state = state;
  record.at_ms = at_ms;
  return record;
}

inline fleet::AnswerGroup group(const fleet::JobId& job, std::uint32_t from,
                                std::vector<std::int32_t> ids, std::string events) {
  fleet::AnswerGroup made{{job, 1, 1}, {}, {}, std::move(events)};
  if (from > 0) made.from.told = {from};
  if (!ids.empty()) made.ids = {{0, std::move(ids)}};
  return made;
}

// Collects what a store says; any thread.
class Heard {
 public:
  void add(const Written& written) {
    const base::MutexLock lock(mutex_);
    for (const RecordWritten& record : written.records) records_.push_back(record);
    for (const AnswerWritten& answer : written.answers) answers_.push_back(answer);
    if (!written.failure.empty()) failure_ = written.failure;
    changed_.notify_all();
  }

  std::size_t num_records() const {
    const base::MutexLock lock(mutex_);
    return records_.size();
  }
  std::size_t num_answers() const {
    const base::MutexLock lock(mutex_);
    return answers_.size();
  }
  std::string failure() const {
    const base::MutexLock lock(mutex_);
    return failure_;
  }
  std::vector<RecordWritten> records() const {
    const base::MutexLock lock(mutex_);
    return records_;
  }

  // The outcome at that place, waiting for it; a test that waits in vain fails.
  fleet::WriteOutcome wait_for_record(std::size_t index) const {
    const base::MutexLock lock(mutex_);
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (records_.size() <= index && changed_.wait_until(mutex_, until)) {
    }
    EXPECT_GT(records_.size(), index);
    return records_.size() > index ? records_[index].outcome : fleet::WriteOutcome::Failed;
  }
  fleet::WriteOutcome wait_for_answer(std::size_t index) const {
    const base::MutexLock lock(mutex_);
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (answers_.size() <= index && changed_.wait_until(mutex_, until)) {
    }
    EXPECT_GT(answers_.size(), index);
    return answers_.size() > index ? answers_[index].outcome : fleet::WriteOutcome::Failed;
  }

 private:
  mutable base::Mutex mutex_;
  mutable base::CondVar changed_;
  std::vector<RecordWritten> records_ LLORCH_GUARDED_BY(mutex_);
  std::vector<AnswerWritten> answers_ LLORCH_GUARDED_BY(mutex_);
  std::string failure_ LLORCH_GUARDED_BY(mutex_);
};

}  // namespace llorch::job_store
