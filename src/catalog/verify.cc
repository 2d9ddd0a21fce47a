#include "catalog/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/enum_names.h"
#include "base/positioned_file.h"
#include "catalog/describe.h"
#include "catalog/model_catalog.h"
#include "catalog/repair.h"
#include "contract/model_entry.h"
#include "fetch/chunks.h"

namespace llorch::catalog {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

std::string_view kind_name(Damage::Kind kind) {
  static constexpr base::EnumNames<Damage::Kind::Rotted> kNames("missing", "wrong_size", "rotted");
  return kNames[kind];
}

// One model's verification, from the first file to the record of the hashes.
class Verification {
 public:
  Verification(const Downloader& downloader, const VerifyRequest& request,
               const OnDownloadEvent& on_event, std::stop_token stop)
      : downloader_(downloader),
        request_(request),
        on_event_(on_event),
        stop_(std::move(stop)),
        catalog_(downloader.home.catalog_file()) {
    report_.model = request.id;
  }

  Result<VerifyReport> run() {
    Result<contract::ModelEntry> entry = catalog_.find(request_.id);
    if (!entry.ok()) return entry.error();
    entry_ = entry.take();
    if (entry_.path == contract::kBuiltinModel) return report_;
    if (!has_files(entry_))
      return Error{ErrorCode::NotFound,
                   fmt::format("{} is not downloaded: run `llorch-pool models download {}`",
                               entry_.id, entry_.id)};
    folder_ = model_folder(entry_);
    if (const Status loaded = load_records(); !loaded.ok()) return loaded.error();
    for (const contract::ModelFile& file : entry_.files) bytes_total_ += file.size;
    for (const contract::ModelFile& file : entry_.files) {
      if (const Status checked = check(file); !checked.ok()) return checked.error();
    }
    const Status repaired = request_.repair && !report_.damages.empty() ? repair() : ok_status();
    // What was mended before a stop is kept too.
    const Status saved = save();
    if (!repaired.ok()) return repaired.error();
    if (!saved.ok()) return saved.error();
    return report_;
  }

 private:
  Status load_records() {
    Result<std::vector<fetch::FileChunks>> records =
        fetch::load_chunks(downloader_.home.chunks(), request_.id);
    if (records.ok()) {
      records_ = records.take();
    } else if (records.error().code == ErrorCode::Corrupt) {
      send(DownloadEvent::Kind::Note,
           "the hashes that were kept are damaged and are made again: " + records.error().message);
    } else if (records.error().code != ErrorCode::NotFound) {
      return records.error();
    }
    if (entry_.files.empty())
      for (const fetch::FileChunks& record : records_)
        entry_.files.push_back({.path = record.path, .size = record.size, .sha256 = record.sha256});
    if (!entry_.files.empty()) return ok_status();
    return Error{ErrorCode::Corrupt,
                 fmt::format("the catalog lists no files of {}: run `llorch-pool models update {}` "
                             "to read them again",
                             entry_.id, entry_.id)};
  }

  // The kept hashes of a file. Those of another one count as none: whoever replaces a file and has
  // it described again gets an entry without a hash.
  fetch::FileChunks* find_record(const contract::ModelFile& file) {
    for (fetch::FileChunks& record : records_)
      if (is_record_of(record, file)) return &record;
    return nullptr;
  }

  void keep_record(fetch::FileChunks record) {
    const auto found =
        std::find_if(records_.begin(), records_.end(),
                     [&](const fetch::FileChunks& other) { return other.path == record.path; });
    records_changed_ = true;
    if (found != records_.end())
      *found = std::move(record);
    else
      records_.push_back(std::move(record));
  }

  void add_damage(Damage::Kind kind, const contract::ModelFile& file, std::string reason) {
    report_.damages.push_back({.kind = kind,
                               .file = file.path,
                               .offset = 0,
                               .bytes = file.size,
                               .repaired = false,
                               .from = {},
                               .reason = std::move(reason)});
  }

  Status check(const contract::ModelFile& file) {
    ++report_.files_checked;
    current_file_ = file.path;
    const Result<std::shared_ptr<base::PositionedFile>> opened =
        base::PositionedFile::open(folder_ / file.path);
    if (!opened.ok()) {
      add_damage(Damage::Kind::Missing, file, opened.error().message);
      return ok_status();
    }
    const Result<base::FileStamp> stamp = (*opened)->stamp();
    if (!stamp.ok()) return stamp.error();
    if (stamp->size != file.size) {
      add_damage(Damage::Kind::WrongSize, file,
                 fmt::format("it has {} bytes, expected {}", stamp->size, file.size));
      return ok_status();
    }
    fetch::FileChunks* record = find_record(file);
    const std::int64_t bytes_before = report_.bytes_checked;
    const fetch::HashProgress progress = [&](std::int64_t bytes) {
      report_.bytes_checked = bytes_before + bytes;
      send(DownloadEvent::Kind::Progress, {});
      return !stop_.stop_requested();
    };
    return record != nullptr ? check_chunks(file, **opened, *record, *stamp, progress)
                             : check_whole(file, **opened, *stamp, progress);
  }

  Status check_chunks(const contract::ModelFile& file, const base::PositionedFile& opened,
                      fetch::FileChunks& record, const base::FileStamp& stamp,
                      const fetch::HashProgress& progress) {
    const Result<std::vector<std::size_t>> rotted =
        fetch::find_rotted_chunks(opened, record, progress);
    if (!rotted.ok()) return rotted.error();
    for (const std::size_t index : *rotted) {
      const std::int64_t offset = static_cast<std::int64_t>(index) * record.chunk_bytes;
      report_.damages.push_back({.kind = Damage::Kind::Rotted,
                                 .file = file.path,
                                 .offset = offset,
                                 .bytes = std::min(record.chunk_bytes, record.size - offset),
                                 .repaired = false,
                                 .from = {},
                                 .reason = {}});
    }
    if (!rotted->empty()) return ok_status();
    stamps_[file.path] = stamp;
    if (record.modified_ns == stamp.modified_ns) return ok_status();
    record.modified_ns = stamp.modified_ns;  // somebody touched it, and it is still right
    records_changed_ = true;
    return ok_status();
  }

  Status check_whole(const contract::ModelFile& file, const base::PositionedFile& opened,
                     const base::FileStamp& stamp, const fetch::HashProgress& progress) {
    Result<fetch::FileChunks> hashed = fetch::hash_file(opened, file.path, progress);
    if (!hashed.ok()) return hashed.error();
    if (!file.sha256.empty() && hashed->sha256 != file.sha256) {
      add_damage(Damage::Kind::Rotted, file,
                 fmt::format("its SHA-256 is {}, expected {}", hashed->sha256, file.sha256));
      return ok_status();
    }
    if (file.sha256.empty()) report_.hashed_first_time = true;
    stamps_[file.path] = stamp;
    keep_record(hashed.take());
    return ok_status();
  }

  Status repair() {
    Mender mender(downloader_, request_, entry_, on_event_, stop_);
    for (Damage& damage : report_.damages) {
      const auto file =
          std::find_if(entry_.files.begin(), entry_.files.end(),
                       [&](const contract::ModelFile& other) { return other.path == damage.file; });
      fetch::FileChunks* record = find_record(*file);
      const fs::path target = folder_ / damage.file;
      const Status mended = damage.kind == Damage::Kind::Rotted && record != nullptr
                                ? mender.mend_chunk(target, *record, damage)
                                : mend_whole(mender, target, *file, record, damage);
      if (!mended.ok()) return mended;
    }
    return note_times();
  }

  Status mend_whole(Mender& mender, const fs::path& target, const contract::ModelFile& file,
                    const fetch::FileChunks* record, Damage& damage) {
    fetch::FileChunks expected;
    expected.path = file.path;
    expected.size = file.size;
    expected.sha256 = file.sha256;
    if (record != nullptr) expected = *record;
    Result<std::optional<fetch::FileChunks>> fetched = mender.mend_file(target, expected, damage);
    if (!fetched.ok()) return fetched.error();
    if (fetched->has_value()) {
      fetch::FileChunks chunks = std::move(**fetched);
      chunks.path = file.path;
      keep_record(std::move(chunks));
    }
    return ok_status();
  }

  // A file whose every damage is mended has a new time of change, which is now the verified one.
  Status note_times() {
    for (fetch::FileChunks& record : records_) {
      const auto is_of_record = [&](const Damage& damage) { return damage.file == record.path; };
      if (std::none_of(report_.damages.begin(), report_.damages.end(), is_of_record) ||
          is_damaged(record.path))
        continue;
      const auto opened = base::PositionedFile::open(folder_ / record.path);
      if (!opened.ok()) return opened.error();
      const Result<base::FileStamp> stamp = (*opened)->stamp();
      if (!stamp.ok()) return stamp.error();
      record.modified_ns = stamp->modified_ns;
      stamps_[record.path] = *stamp;
      records_changed_ = true;
    }
    return ok_status();
  }

  // Whether the catalog would say anything else of its files.
  bool notes_changed() const {
    std::vector<contract::ModelFile> files = entry_.files;
    for (contract::ModelFile& file : files) note_verified(file);
    return files != entry_.files;
  }

  Status save() {
    if (!records_changed_ && !notes_changed()) return ok_status();
    // Hashes of files that the catalog no longer has would outlive their model.
    std::erase_if(records_, [&](const fetch::FileChunks& record) {
      return std::none_of(
          entry_.files.begin(), entry_.files.end(),
          [&](const contract::ModelFile& file) { return file.path == record.path; });
    });
    return catalog_.update([&](CatalogContent& content) -> Status {
      contract::ModelEntry* entry = content.find(entry_.id);
      if (entry == nullptr)
        return Error{ErrorCode::NotFound,
                     fmt::format("{} was removed from the catalog meanwhile", entry_.id)};
      for (contract::ModelFile& file : entry->files) note_verified(file);
      if (!records_changed_) return ok_status();
      return fetch::save_chunks(downloader_.home.chunks(), entry_.id, records_);
    });
  }

  // What is whole is ready to run, whatever its times were before; what is not is known to be.
  void note_verified(contract::ModelFile& file) const {
    if (is_damaged(file.path)) {
      file.damaged = true;
      if (const auto now = base::stamp_of(folder_ / file.path)) note_stamp(*now, file);
      return;
    }
    const auto stamp = stamps_.find(file.path);
    for (const fetch::FileChunks& record : records_) {
      const bool has_other_hash = !file.sha256.empty() && file.sha256 != record.sha256;
      if (record.path != file.path || record.size != file.size || has_other_hash ||
          stamp == stamps_.end())
        continue;
      file.sha256 = record.sha256;
      file.damaged = false;
      note_stamp(stamp->second, file);
    }
  }

  bool is_damaged(std::string_view path) const {
    return std::any_of(report_.damages.begin(), report_.damages.end(), [&](const Damage& damage) {
      return damage.file == path && !damage.repaired;
    });
  }

  void send(DownloadEvent::Kind kind, std::string text) {
    if (!on_event_) return;
    DownloadEvent event;
    event.kind = kind;
    event.model = request_.id;
    event.file = current_file_;
    event.files_done = std::max<std::int64_t>(report_.files_checked - 1, 0);
    event.files_total = static_cast<std::int64_t>(entry_.files.size());
    event.bytes_done = report_.bytes_checked;
    event.bytes_total = bytes_total_;
    event.text = std::move(text);
    const std::chrono::duration<double> elapsed = Clock::now() - since_;
    if (elapsed.count() > 0)
      event.bytes_per_second = static_cast<double>(event.bytes_done) / elapsed.count();
    if (event.bytes_per_second > 0)
      event.seconds_left =
          static_cast<double>(event.bytes_total - event.bytes_done) / event.bytes_per_second;
    on_event_(event);
  }

  const Downloader& downloader_;
  const VerifyRequest& request_;
  const OnDownloadEvent& on_event_;
  const std::stop_token stop_;
  const ModelCatalog catalog_;
  const Clock::time_point since_ = Clock::now();
  contract::ModelEntry entry_;
  fs::path folder_;
  std::vector<fetch::FileChunks> records_;
  bool records_changed_ = false;
  std::map<std::string, base::FileStamp, std::less<>> stamps_;  // of files that are right
  VerifyReport report_;
  std::string current_file_;
  std::int64_t bytes_total_ = 0;
};

}  // namespace

bool VerifyReport::is_whole() const {
  return std::all_of(damages.begin(), damages.end(),
                     [](const Damage& damage) { return damage.repaired; });
}

json::Object to_json(const VerifyReport& report) {
  json::Array damages;
  for (const Damage& damage : report.damages) {
    json::Object one{{"kind", kind_name(damage.kind)},
                     {"file", damage.file},
                     {"offset", damage.offset},
                     {"bytes", damage.bytes},
                     {"repaired", damage.repaired}};
    if (!damage.from.empty()) one["from"] = damage.from;
    if (!damage.reason.empty()) one["reason"] = damage.reason;
    damages.push_back(std::move(one));
  }
  return {{"model", report.model},
          {"whole", report.is_whole()},
          {"files_checked", report.files_checked},
          {"bytes_checked", report.bytes_checked},
          {"hashed_first_time", report.hashed_first_time},
          {"damages", std::move(damages)}};
}

Result<VerifyReport> verify_model(const Downloader& downloader, const VerifyRequest& request,
                                  const OnDownloadEvent& on_event, std::stop_token stop) {
  return Verification(downloader, request, on_event, std::move(stop)).run();
}

bool has_files(const contract::ModelEntry& entry) {
  return entry.downloaded && !entry.path.empty() && entry.path != contract::kBuiltinModel;
}

bool is_record_of(const fetch::FileChunks& record, const contract::ModelFile& file) {
  return record.path == file.path && record.size == file.size && record.sha256 == file.sha256;
}

}  // namespace llorch::catalog
