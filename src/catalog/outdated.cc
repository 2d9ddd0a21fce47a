#include "catalog/outdated.h"

#include <algorithm>
#include <atomic>
#include <string_view>
#include <thread>
#include <utility>

#include "base/job_border.h"
#include "base/thread.h"
#include "catalog/verify.h"
#include "fetch/model_ref.h"

namespace llorch::catalog {
namespace {

constexpr std::size_t kRequestsMax = 8;  // at a time

void check(RevisionCheck& model, const fetch::SourceOptions& options, const std::stop_token& stop) {
  const auto untracked = [&](std::string_view why) {
    model.state = RevisionCheck::State::Untracked;
    model.note = why;
  };
  if (model.ref.empty()) return untracked("registered in place, without a source");
  const Result<fetch::ModelRef> ref = fetch::parse_model_ref(model.ref);
  if (!ref.ok()) return untracked(ref.error().message);
  if (ref->provider == fetch::Provider::File || ref->provider == fetch::Provider::CatalogId)
    return untracked("its source is not one that has revisions");
  if (model.have.empty()) return untracked("the revision that is here is not known");
  Result<std::string> newest = fetch::newest_revision(*ref, options, stop);
  if (!newest.ok()) {
    model.state = RevisionCheck::State::Failed;
    model.note = newest.error().message;
    return;
  }
  model.newest = newest.take();
  model.state =
      model.newest == model.have ? RevisionCheck::State::Current : RevisionCheck::State::Outdated;
}

}  // namespace

std::vector<RevisionCheck> check_revisions(const std::vector<contract::ModelEntry>& models,
                                           const fetch::SourceOptions& options,
                                           std::stop_token stop) {
  std::vector<RevisionCheck> checks;
  for (const contract::ModelEntry& model : models) {
    if (!has_files(model)) continue;
    RevisionCheck check;
    check.id = model.id;
    check.ref = model.repo;
    check.have = model.revision;
    checks.push_back(std::move(check));
  }
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    std::size_t i = 0;
    while (!stop.stop_requested() && (i = next++) < checks.size()) {
      const Status asked =
          base::run_guarded("while asking", [&] { check(checks[i], options, stop); });
      if (!asked.ok()) checks[i].note = asked.error().message;
    }
  };
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < std::min(kRequestsMax, checks.size()); ++i)
    threads.push_back(base::start_thread("revisions", work));
  threads.clear();  // joins
  return checks;
}

}  // namespace llorch::catalog
