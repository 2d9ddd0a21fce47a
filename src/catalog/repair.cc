#include "catalog/repair.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>
#include <system_error>
#include <utility>

#include "base/digest.h"
#include "base/positioned_file.h"
#include "base/utf8.h"
#include "catalog/registry.h"
#include "fetch/model_ref.h"
#include "fetch/neighbour.h"
#include "fetch/source.h"
#include "fetch/transfer.h"

namespace llorch::catalog {
namespace {

namespace fs = std::filesystem;

// The source as the model was fetched from it: the same revision, not the newest.
Result<fetch::ModelSource> resolve_origin(const contract::ModelEntry& entry,
                                          const fetch::SourceOptions& options,
                                          std::stop_token stop) {
  if (entry.repo.empty())
    return Error{ErrorCode::NotFound, "the catalog does not say where the model came from"};
  Result<fetch::ModelRef> ref = fetch::parse_model_ref(entry.repo);
  if (!ref.ok()) return ref.error();
  if (ref->provider == fetch::Provider::HuggingFace || ref->provider == fetch::Provider::Npm)
    ref->revision = entry.revision;
  return fetch::resolve_source(*ref, options, std::move(stop));
}

// The workers' mappings of the file see the write: it restores what they had mapped in the first
// place, so writing in place is right, and a new file would leave them with the rot. A kill midway
// leaves the chunk rotted, which the next verify finds.
Status write_in_place(const fs::path& target, std::int64_t offset, std::string_view bytes) {
  Result<std::shared_ptr<base::PositionedFile>> file =
      base::PositionedFile::open(target, base::PositionedFile::Mode::ReadWrite);
  if (!file.ok()) return file.error();
  const Status written = (*file)->write_at(offset, std::as_bytes(std::span(bytes)));
  if (!written.ok()) return written;
  return (*file)->sync();
}

}  // namespace

Mender::Mender(const Downloader& downloader, const VerifyRequest& request,
               const contract::ModelEntry& entry, const OnDownloadEvent& on_event,
               std::stop_token stop)
    : downloader_(downloader), model_(entry.id), on_event_(on_event), stop_(std::move(stop)) {
  for (const fetch::Neighbour& neighbour : request.neighbours) {
    sources_.push_back({neighbour.url,
                        [this, neighbour] {
                          return fetch::resolve_neighbour(neighbour, model_, downloader_.source,
                                                          stop_);
                        },
                        std::nullopt});
  }
  sources_.push_back({entry.repo.empty() ? "the model's own source" : entry.repo,
                      [this, entry] { return resolve_origin(entry, downloader_.source, stop_); },
                      std::nullopt});
}

void Mender::note(const std::string& text) const {
  if (!on_event_) return;
  DownloadEvent event;
  event.kind = DownloadEvent::Kind::Note;
  event.model = model_;
  event.text = text;
  on_event_(event);
}

Result<fetch::RemoteFile> Mender::find_file(Source& source, const fetch::FileChunks& expected) {
  if (!source.resolved) source.resolved = source.resolve();
  if (!source.resolved->ok()) return source.resolved->error();
  const fetch::ModelSource& model = source.resolved->value();
  if (model.is_tarball)
    return Error{ErrorCode::Unsupported,
                 fmt::format("it is an archive: `llorch-pool models rm {}` and `llorch-pool models "
                             "download {}` fetch the model again",
                             model_, model_)};
  const auto found =
      std::find_if(model.files.begin(), model.files.end(),
                   [&](const fetch::RemoteFile& file) { return file.path == expected.path; });
  if (found == model.files.end())
    return Error{ErrorCode::NotFound,
                 fmt::format("it has no file {}", base::quoted(expected.path))};
  const bool same_hash =
      expected.sha256.empty() || found->sha256.empty() || found->sha256 == expected.sha256;
  if (found->size.value_or(expected.size) != expected.size || !same_hash)
    return Error{ErrorCode::Conflict,
                 fmt::format("it has another version of {}", base::quoted(expected.path))};
  return *found;
}

Status Mender::refuse_foreign(const fs::path& target) const {
  if (is_inside(target, downloader_.home.models())) return ok_status();
  return Error{ErrorCode::Forbidden,
               fmt::format("{} is not in the pool's own folder {}, so it is never written: put a "
                           "good copy there yourself, or fetch one with `llorch-pool models "
                           "download` under another id",
                           target.string(), downloader_.home.models().string())};
}

Status Mender::try_sources(const fs::path& target, const fetch::FileChunks& expected,
                           Damage& damage,
                           const std::function<Status(const fetch::RemoteFile& file)>& take) {
  if (const Status ours = refuse_foreign(target); !ours.ok()) {
    damage.reason = ours.error().message;
    return ok_status();
  }
  std::string reasons;
  for (Source& source : sources_) {
    const Result<fetch::RemoteFile> file = find_file(source, expected);
    const Status taken = file.ok() ? take(*file) : Status(file.error());
    if (stop_.stop_requested()) return Error{ErrorCode::Cancelled, "the repair was cancelled"};
    if (taken.ok()) {
      damage.repaired = true;
      damage.from = source.name;
      damage.reason.clear();
      note(fmt::format("{}: {} bytes at {} repaired from {}", damage.file, damage.bytes,
                       damage.offset, source.name));
      return ok_status();
    }
    const std::string why = fmt::format("{}: {}", source.name, taken.error().message);
    note(fmt::format("{} cannot be repaired from {}", damage.file, why));
    reasons += (reasons.empty() ? "" : "; ") + why;
  }
  damage.reason = reasons;
  return ok_status();
}

Status Mender::mend_chunk(const fs::path& target, const fetch::FileChunks& expected,
                          Damage& damage) {
  const auto index = static_cast<std::size_t>(damage.offset / expected.chunk_bytes);
  return try_sources(target, expected, damage, [&](const fetch::RemoteFile& file) -> Status {
    const Result<std::string> bytes =
        fetch::fetch_range(file, damage.offset, damage.bytes, downloader_.transfer, stop_);
    if (!bytes.ok()) return bytes.error();
    if (base::sha256_hex(*bytes) != expected.chunks[index])
      return Error{ErrorCode::Corrupt,
                   fmt::format("it sent {} bytes at {} that do not have the right hash",
                               bytes->size(), damage.offset)};
    return write_in_place(target, damage.offset, *bytes);
  });
}

Result<std::optional<fetch::FileChunks>> Mender::mend_file(const fs::path& target,
                                                           const fetch::FileChunks& expected,
                                                           Damage& damage) {
  std::optional<fetch::FileChunks> fetched;
  const Status tried =
      try_sources(target, expected, damage, [&](const fetch::RemoteFile& offered) -> Status {
        fetch::RemoteFile file = offered;
        file.size = expected.size;
        if (!expected.sha256.empty()) file.sha256 = expected.sha256;
        if (file.chunk_sha256.empty() && !expected.chunks.empty()) {
          file.chunk_sha256 = expected.chunks;
          file.chunk_bytes = expected.chunk_bytes;
        }
        std::error_code error;
        fs::create_directories(target.parent_path(), error);
        if (error)
          return Error{
              ErrorCode::Unavailable,
              fmt::format("cannot make {}: {}", target.parent_path().string(), error.message())};
        Result<fetch::FileChunks> chunks =
            fetch::transfer_file(file, target, downloader_.transfer, {}, stop_);
        if (!chunks.ok()) return chunks.error();
        fetched = chunks.take();
        return ok_status();
      });
  if (!tried.ok()) return tried.error();
  return fetched;
}

}  // namespace llorch::catalog
