// A job as its records tell it: for recovery, and for reading one that has ended.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "fleet/records.h"

namespace llorch::fleet {

struct FoldedJob {
  JobId id;
  SubmittedRecord facts;
  JobState state = JobState::Queued;
  std::uint32_t num_records = 0;
  std::uint32_t attempts = 0;
  std::string host;  // of the newest attempt
  std::string worker;
  std::string why;
  std::uint64_t exactness = 0;
  std::uint32_t prompt_tokens = 0;
  std::uint8_t kills = 0;
  std::uint8_t moves = 0;
  std::optional<StopCause> stop;
  std::optional<EndedRecord> end;
  Position stored;
  UnixMs started_ms = 0;  // of the first attempt
};

// Corrupt unless the first record is Submitted, no other is, and nothing follows Ended.
Result<FoldedJob> fold_job(const JobRecords& records);

}  // namespace llorch::fleet
