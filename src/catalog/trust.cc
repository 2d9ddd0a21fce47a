#include "catalog/trust.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "base/positioned_file.h"
#include "base/terminal.h"
#include "base/utf8.h"
#include "catalog/describe.h"
#include "catalog/model_catalog.h"
#include "catalog/verify.h"
#include "contract/model_entry.h"
#include "fetch/chunks.h"

namespace llorch::catalog {
namespace {

namespace fs = std::filesystem;
using contract::ModelEntry;
using contract::ModelFile;

constexpr std::int64_t kHashedAtOnceMax = std::int64_t{256} << 20;
constexpr std::int64_t kSampleBytesMax = std::int64_t{64} << 20;
constexpr std::size_t kSampleChunks = 4;  // beside the first

Error conflict(const ModelEntry& entry, const std::string& what) {
  return {ErrorCode::Conflict, fmt::format("model {} {}", base::quoted(entry.id), what)};
}

Error damaged(const ModelEntry& entry, const std::string& where) {
  return conflict(entry, fmt::format("is damaged ({}): run `llorch-pool models verify {} --repair`",
                                     where, entry.id));
}

bool has_every_hash(const ModelEntry& entry) {
  return !entry.files.empty() &&
         std::all_of(entry.files.begin(), entry.files.end(),
                     [](const ModelFile& file) { return !file.sha256.empty(); });
}

std::int64_t bytes_of(const ModelEntry& entry) {
  std::int64_t bytes = 0;
  for (const ModelFile& file : entry.files) bytes += file.size;
  return bytes;
}

// --- Unchanged files: a sample -------------------------------------------------------------------

struct Sampled {
  const fetch::FileChunks* file;
  std::size_t index;

  std::int64_t offset() const { return static_cast<std::int64_t>(index) * file->chunk_bytes; }
  std::int64_t bytes() const { return std::min(file->chunk_bytes, file->size - offset()); }
};

// The first chunk of the first file, where a header is, and a few others as they are drawn.
std::vector<Sampled> draw_sample(const std::vector<fetch::FileChunks>& files) {
  std::vector<Sampled> all;
  for (const fetch::FileChunks& file : files) {
    for (std::size_t i = 0; i < file.chunks.size(); ++i) all.push_back({&file, i});
  }
  if (all.empty()) return all;
  std::mt19937_64 random(std::random_device{}());
  std::shuffle(all.begin() + 1, all.end(), random);
  std::vector<Sampled> sample;
  std::int64_t bytes = 0;
  for (const Sampled& chunk : all) {
    bytes += chunk.bytes();
    if (sample.size() > kSampleChunks || (!sample.empty() && bytes > kSampleBytesMax)) break;
    sample.push_back(chunk);
  }
  return sample;
}

bool is_right(const fs::path& folder, const Sampled& chunk) {
  const auto file = base::PositionedFile::open(folder / chunk.file->path);
  if (!file.ok()) return false;
  std::vector<std::byte> bytes(static_cast<std::size_t>(chunk.bytes()));
  const Result<std::size_t> count = (*file)->read_at(chunk.offset(), bytes);
  if (!count.ok() || *count != bytes.size()) return false;
  base::Digest digest;
  digest.add(bytes);
  return digest.finish_hex() == chunk.file->chunks[chunk.index];
}

void note_damage(const base::Home& home, const ModelEntry& entry, const std::string& path) {
  // Whoever starts it next is told at once; when that cannot be written, it is found again.
  std::ignore = ModelCatalog(home.catalog_file()).update([&](CatalogContent& content) {
    if (ModelEntry* now = content.find(entry.id)) {
      for (ModelFile& file : now->files) file.damaged |= file.path == path;
    }
    return ok_status();
  });
}

Result<std::string> trust_unchanged(const base::Home& home, const ModelEntry& entry) {
  if (!has_every_hash(entry)) {
    return fmt::format(
        "the size and the times of its files alone: they were never hashed here (`llorch-pool "
        "models verify {}` does)",
        entry.id);
  }
  const Result<std::vector<fetch::FileChunks>> records =
      fetch::load_chunks(home.chunks(), entry.id);
  std::vector<fetch::FileChunks> known;
  std::size_t num_chunks = 0;
  for (const ModelFile& file : entry.files) {
    if (!records.ok()) break;
    for (const fetch::FileChunks& record : *records) {
      if (!is_record_of(record, file)) continue;
      known.push_back(record);
      num_chunks += record.chunks.size();
    }
  }
  if (known.size() != entry.files.size()) {
    return fmt::format(
        "the size and the times of its files alone: the hashes of their chunks are not here "
        "(`llorch-pool models verify {}` makes them)",
        entry.id);
  }
  const std::vector<Sampled> sample = draw_sample(known);
  for (const Sampled& chunk : sample) {
    if (is_right(model_folder(entry), chunk)) continue;
    note_damage(home, entry, chunk.file->path);
    return damaged(entry, fmt::format("{} at byte {}", chunk.file->path, chunk.offset()));
  }
  return fmt::format(
      "its hashes, seen right, with files unchanged since (size, times, inode); the first chunk "
      "and {} others of {} were hashed again now",
      sample.empty() ? 0 : sample.size() - 1, num_chunks);
}

// --- Changed files -------------------------------------------------------------------------------

// A file of another size cannot be right.
Status check_sizes(const ModelEntry& entry) {
  for (const ModelFile& file : entry.files) {
    std::error_code error;
    const auto size =
        static_cast<std::int64_t>(fs::file_size(model_folder(entry) / file.path, error));
    if (error || size == file.size) continue;
    return conflict(
        entry, fmt::format("is not what it was: {} has {} bytes, expected {}; run `llorch-pool "
                           "models verify {} --repair`, or, if the file was replaced on purpose, "
                           "`llorch-pool models update {} --downloaded true`",
                           file.path, size, file.size, entry.id, entry.id));
  }
  return ok_status();
}

Result<std::string> trust_changed(const base::Home& home, const ModelEntry& entry,
                                  std::stop_token stop) {
  if (Status sizes = check_sizes(entry); !sizes.ok()) return sizes.error();
  if (!has_every_hash(entry)) {
    return conflict(entry,
                    fmt::format("changed since it was registered, and was never hashed: run "
                                "`llorch-pool models update {} --downloaded true` to read it again",
                                entry.id));
  }
  if (bytes_of(entry) > kHashedAtOnceMax) {
    return conflict(entry, fmt::format("changed since it was verified, and has {}: run "
                                       "`llorch-pool models verify {}` first",
                                       base::human_bytes(bytes_of(entry)), entry.id));
  }
  Downloader downloader;
  downloader.home = home;
  VerifyRequest request;
  request.id = entry.id;
  const Result<VerifyReport> report = verify_model(downloader, request, {}, std::move(stop));
  if (!report.ok()) return report.error();
  if (!report->is_whole()) {
    const Damage& first = report->damages.front();
    return damaged(entry, fmt::format("{} at byte {}", first.file, first.offset));
  }
  return fmt::format(
      "its hashes: all {} were hashed now, because files had changed since they were "
      "last verified",
      base::human_bytes(report->bytes_checked));
}

}  // namespace

Result<std::string> trust_model(const base::Home& home, const ModelEntry& entry,
                                std::stop_token stop) {
  if (entry.path == contract::kBuiltinModel) return std::string("it is part of the program");
  switch (check_files(entry)) {
    case FilesState::NotDownloaded:
      return conflict(
          entry, fmt::format("is not here: run `llorch-pool models download {}` first", entry.id));
    case FilesState::Missing:
      return Error{ErrorCode::NotFound,
                   fmt::format("model {}: not all of its files are at {}; run `llorch-pool models "
                               "verify {} --repair`, or register it again",
                               base::quoted(entry.id), entry.path, entry.id)};
    case FilesState::Damaged:
      return damaged(entry, "as the last check found");
    case FilesState::Changed:
      return trust_changed(home, entry, std::move(stop));
    case FilesState::Ready:
      break;
  }
  return trust_unchanged(home, entry);
}

}  // namespace llorch::catalog
