#include "fleet/job_fold.h"

#include <algorithm>

namespace llorch::fleet {
namespace {

struct Folder {
  FoldedJob& job;

  void operator()(const SubmittedRecord& record) const {
    job.facts = record;
    job.prompt_tokens = record.prompt_tokens;
  }
  void operator()(const DispatchedRecord& record) const {
    job.state = JobState::Dispatched;
    ++job.attempts;
    job.host = record.host;
    job.worker = record.worker;
    job.why = record.why;
    job.exactness = record.exactness;
  }
  void operator()(const StartedRecord& record) const {
    job.state = JobState::Running;
    if (record.prompt_tokens > 0) job.prompt_tokens = record.prompt_tokens;
    if (job.started_ms == 0) job.started_ms = record.at_ms;
  }
  void operator()(const LostRecord& record) const {
    job.state = JobState::Running;  // as clients see it: it moves
    job.kills = record.kills;
    job.moves = record.moves;
  }
  void operator()(const StopRecord& record) const { job.stop = record.cause; }
  void operator()(const EndedRecord& record) const {
    job.state = record.state;
    job.end = record;
  }
};

Error corrupt(const JobId& id, std::size_t number, const char* what) {
  return {ErrorCode::Corrupt,
          "stored job " + text(id) + ", record " + std::to_string(number) + ": " + what};
}

}  // namespace

Result<FoldedJob> fold_job(const JobRecords& records) {
  FoldedJob job;
  job.id = records.job;
  job.stored = records.stored;
  for (std::size_t i = 0; i < records.records.size(); ++i) {
    const Record& record = records.records[i];
    const bool is_first = std::holds_alternative<SubmittedRecord>(record);
    if (is_first != (i == 0))
      return corrupt(records.job, i, "expected the submission first, and once");
    if (job.end) return corrupt(records.job, i, "expected nothing after the end");
    std::visit(Folder{job}, record);
  }
  if (records.records.empty()) return corrupt(records.job, 0, "there is none");
  job.num_records = static_cast<std::uint32_t>(records.records.size());
  return job;
}

}  // namespace llorch::fleet
