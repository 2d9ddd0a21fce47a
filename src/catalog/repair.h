// Mending what verify found: right bytes from whoever has them. Private to catalog/.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/result.h"
#include "catalog/download.h"
#include "catalog/verify.h"
#include "contract/model_entry.h"
#include "fetch/chunks.h"

namespace llorch::catalog {

// The places that may have one model's bytes: each neighbour, then the source it came from. Each is
// asked what it has once, when it is first needed.
class Mender {
 public:
  Mender(const Downloader& downloader, const VerifyRequest& request,
         const contract::ModelEntry& entry, const OnDownloadEvent& on_event, std::stop_token stop);

  // One rotted chunk of a file that is there, whose hashes are known. Fills in repaired, from and
  // reason; only the caller's stop is an error.
  Status mend_chunk(const std::filesystem::path& target, const fetch::FileChunks& expected,
                    Damage& damage);

  // A whole file. `expected` says what is known of it: an empty sha256 takes what the source
  // publishes. What was fetched, where it is mended.
  Result<std::optional<fetch::FileChunks>> mend_file(const std::filesystem::path& target,
                                                     const fetch::FileChunks& expected,
                                                     Damage& damage);

 private:
  struct Source {
    std::string name;  // for people
    std::function<Result<fetch::ModelSource>()> resolve;
    std::optional<Result<fetch::ModelSource>> resolved;
  };
  // What a source has under that path, when it is the same file; an error says why not.
  Result<fetch::RemoteFile> find_file(Source& source, const fetch::FileChunks& expected);
  Status refuse_foreign(const std::filesystem::path& target) const;
  // Tries `take` with each source's file until one succeeds.
  Status try_sources(const std::filesystem::path& target, const fetch::FileChunks& expected,
                     Damage& damage,
                     const std::function<Status(const fetch::RemoteFile& file)>& take);
  void note(const std::string& text) const;

  const Downloader& downloader_;
  const std::string model_;
  const OnDownloadEvent& on_event_;
  const std::stop_token stop_;
  std::vector<Source> sources_;
};

}  // namespace llorch::catalog
