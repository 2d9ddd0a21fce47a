// How far a download is: counted, told to its caller, and noted for other processes. Private to
// catalog/.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "catalog/rate_meter.h"
#include "catalog/under_way.h"
#include "contract/download_event.h"
#include "fetch/transfer.h"

namespace llorch::catalog {

// One thread.
class DownloadProgress {
 public:
  using Kind = contract::DownloadEvent::Kind;

  explicit DownloadProgress(const contract::OnDownloadEvent& on_event) : on_event_(on_event) {}

  void set_model(std::string id) { model_ = std::move(id); }
  // From now on it is noted in the model's folder, whose lock we hold, about once a second.
  void note_in(std::filesystem::path folder, std::string ref);

  void begin(std::int64_t files_total, std::int64_t bytes_total);
  // How far another process is with the same model.
  void show(const UnderWay& other);

  // What has happened to one file; each tells the caller.
  void transferred(std::string_view file, const fetch::TransferProgress& now);
  void hashed(std::string_view file, std::int64_t bytes);
  void file_done(std::string_view file, std::int64_t bytes);
  void wait(const std::string& host, std::chrono::milliseconds waited);

  void end_files();  // all of them are here
  void note(std::string text, std::string_view file = {}) {
    tell(Kind::Note, file, std::move(text));
  }
  void tell(Kind kind, std::string_view file = {}, std::string text = {});

 private:
  void save_if_due();
  void set_waiting(const std::string& host, std::chrono::milliseconds waited);

  const contract::OnDownloadEvent& on_event_;
  std::string model_;
  std::filesystem::path folder_;  // empty: nothing is noted
  std::string ref_;
  std::int64_t files_done_ = 0;
  std::int64_t files_total_ = 0;
  std::int64_t bytes_before_ = 0;  // of the files that are done
  std::int64_t bytes_done_ = 0;
  std::int64_t bytes_total_ = 0;
  RateMeter rate_;
  std::optional<std::int64_t> waiting_seconds_;  // until the next event has said so
  std::string waiting_for_;
  std::chrono::steady_clock::time_point next_save_{};
};

}  // namespace llorch::catalog
