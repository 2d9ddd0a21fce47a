// One model being downloaded: which one (download_target.cc), where it goes (download.cc), its
// files (download_files.cc). Private to catalog/.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file_lock.h"
#include "base/result.h"
#include "catalog/chunks.h"
#include "catalog/download.h"
#include "catalog/model_names.h"
#include "catalog/offers.h"
#include "catalog/rate_meter.h"
#include "catalog/under_way.h"

namespace llorch::catalog {

Error system_error(const std::filesystem::path& path, const std::error_code& error);

struct DownloadTarget {
  std::string id;
  ModelRef ref;                // where from; a neighbour's model may have none
  contract::ModelEntry entry;  // as the catalog or the list of known models has it
};
// See settle_download.
Result<DownloadTarget> find_target(const base::Home& home, const DownloadRequest& request,
                                   const FindOccupant& also);
// A model that is here is never replaced by one from elsewhere: Conflict.
Status check_source(const CatalogContent& content, const std::string& id, const ModelRef& ref);

// Belongs to the thread that asked.
class Download {
 public:
  Download(const Downloader& downloader, const DownloadRequest& request,
           const OnDownloadEvent& on_event, std::stop_token stop);
  Download(const Download&) = delete;
  Download& operator=(const Download&) = delete;

  Result<contract::ModelEntry> run();

 private:
  using Kind = DownloadEvent::Kind;

  Status find_model();
  Status claim();
  Status wait_for_other();
  void leave_nothing_empty();
  Result<contract::ModelEntry> register_in_place();
  Result<contract::ModelEntry> take_from_all();
  Status pin_hash(OfferedModel& model) const;
  Result<contract::ModelEntry> take(const ModelSource& source);
  bool is_here(const ModelSource& source, const std::filesystem::path& folder) const;
  Status check_whole_room(const ModelSource& source, const std::filesystem::path& folder) const;
  Result<contract::ModelEntry> finish(const ModelSource& source,
                                      const std::filesystem::path& folder,
                                      std::vector<FileChunks> files);
  void remove_old(const std::filesystem::path& folder) const;

  Result<std::vector<FileChunks>> fetch_files(const ModelSource& source,
                                              const std::filesystem::path& folder);
  Result<std::vector<FileChunks>> fetch_tarball(const ModelSource& source,
                                                const std::filesystem::path& folder);
  Status unpack(const ModelSource& source, const std::filesystem::path& archive,
                const std::filesystem::path& folder);
  Result<std::optional<FileChunks>> reuse(const RemoteFile& file,
                                          const std::filesystem::path& target);
  Result<std::optional<FileChunks>> check_existing(const RemoteFile& file,
                                                   const std::filesystem::path& path);
  Result<FileChunks> fetch(const RemoteFile& file, const std::filesystem::path& target);
  Result<FileChunks> hash(const std::filesystem::path& path, const std::string& relative);
  void tell_unchecked(const RemoteFile& file, const FileChunks& found);

  void send(Kind kind, std::string_view file = {}, std::string text = {});
  void progress(std::string_view file, const TransferProgress& now);
  void wait(const std::string& host, std::chrono::milliseconds waited);
  void note_under_way();

  const Downloader& downloader_;
  const DownloadRequest& request_;
  const OnDownloadEvent& on_event_;
  const std::stop_token stop_;
  const ModelCatalog catalog_;
  SourceOptions source_options_;

  std::string id_;
  ModelRef ref_;                // where from
  contract::ModelEntry entry_;  // as the catalog or the list of known models has it
  std::filesystem::path model_folder_;
  std::unique_ptr<base::FileLock> lock_;
  std::map<std::string, std::vector<Offer>> offers_;  // of each file of the source

  std::int64_t files_done_ = 0;
  std::int64_t files_total_ = 0;
  std::int64_t bytes_before_ = 0;  // of the files that are done
  std::int64_t bytes_done_ = 0;
  std::int64_t bytes_total_ = 0;
  RateMeter rate_;
  std::optional<std::int64_t> waiting_seconds_;
  std::string waiting_for_;
  std::chrono::steady_clock::time_point next_under_way_{};
};

}  // namespace llorch::catalog
