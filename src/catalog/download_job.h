// One model being downloaded: which one (download_target.cc), where it goes (download.cc), its
// files (download_files.cc). Private to catalog/.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/file_lock.h"
#include "base/result.h"
#include "catalog/download.h"
#include "catalog/download_progress.h"
#include "catalog/model_names.h"
#include "fetch/chunks.h"
#include "fetch/offers.h"

namespace llorch::catalog {

Error system_error(const std::filesystem::path& path, const std::error_code& error);

struct DownloadTarget {
  std::string id;
  fetch::ModelRef ref;         // where from; a neighbour's model may have none
  contract::ModelEntry entry;  // as the catalog or the list of known models has it
};
// See settle_download.
Result<DownloadTarget> find_target(const base::Home& home, const DownloadRequest& request,
                                   const FindOccupant& also);
// A model that is here is never replaced by one from elsewhere: Conflict.
Status check_source(const CatalogContent& content, const std::string& id,
                    const fetch::ModelRef& ref);

// Belongs to the thread that asked.
class Download {
 public:
  Download(const Downloader& downloader, const DownloadRequest& request,
           const OnDownloadEvent& on_event, std::stop_token stop);
  Download(const Download&) = delete;
  Download& operator=(const Download&) = delete;

  Result<contract::ModelEntry> run();

 private:
  using Kind = DownloadProgress::Kind;

  Status find_model();
  Status claim();
  Status wait_for_other();
  void leave_nothing_empty();
  Result<contract::ModelEntry> register_in_place();
  Result<contract::ModelEntry> take_from_all();
  Status pin_hash(fetch::OfferedModel& model) const;
  Result<contract::ModelEntry> take(const fetch::ModelSource& source);
  bool is_here(const fetch::ModelSource& source, const std::filesystem::path& folder) const;
  Status check_whole_room(const fetch::ModelSource& source,
                          const std::filesystem::path& folder) const;
  Result<contract::ModelEntry> finish(const fetch::ModelSource& source,
                                      const std::filesystem::path& folder,
                                      const std::vector<fetch::FileChunks>& files);
  void remove_old(const std::filesystem::path& folder) const;

  Result<std::vector<fetch::FileChunks>> fetch_files(const fetch::ModelSource& source,
                                                     const std::filesystem::path& folder);
  Result<std::vector<fetch::FileChunks>> fetch_tarball(const fetch::ModelSource& source,
                                                       const std::filesystem::path& folder);
  Status unpack(const fetch::ModelSource& source, const std::filesystem::path& archive,
                const std::filesystem::path& folder);
  Result<std::optional<fetch::FileChunks>> reuse(const fetch::RemoteFile& file,
                                                 const std::filesystem::path& target);
  Result<std::optional<fetch::FileChunks>> check_existing(const fetch::RemoteFile& file,
                                                          const std::filesystem::path& path);
  Result<fetch::FileChunks> transfer(const fetch::RemoteFile& file,
                                     const std::filesystem::path& target);
  Result<fetch::FileChunks> hash(const std::filesystem::path& path, const std::string& relative);
  void tell_unchecked(const fetch::RemoteFile& file, const fetch::FileChunks& found);

  const Downloader& downloader_;
  const DownloadRequest& request_;
  const std::stop_token stop_;
  const ModelCatalog catalog_;
  fetch::SourceOptions source_options_;
  DownloadProgress progress_;

  std::string id_;
  fetch::ModelRef ref_;         // where from
  contract::ModelEntry entry_;  // as the catalog or the list of known models has it
  std::filesystem::path model_folder_;
  std::unique_ptr<base::FileLock> lock_;
  std::map<std::string, std::vector<fetch::Offer>> offers_;  // of each file of the source
};

}  // namespace llorch::catalog
