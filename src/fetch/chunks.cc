#include "fetch/chunks.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <system_error>
#include <thread>

#include "base/digest.h"
#include "base/file.h"
#include "base/job_border.h"
#include "base/json_fields.h"
#include "base/mutex.h"
#include "base/positioned_file.h"
#include "base/thread.h"
#include "base/utf8.h"
#include "contract/model_entry.h"

namespace llorch::fetch {
namespace {

constexpr std::int64_t kFileBytesMax = std::int64_t{1} << 50;  // far above any model
constexpr std::int64_t kChunkBytesMin = 1024;
constexpr std::int64_t kChunkBytesMax = std::int64_t{64} << 20;
constexpr std::size_t kChunksMax = std::size_t{1} << 20;
constexpr std::size_t kFilesMax = 10'000;
constexpr std::size_t kChunksFileBytesMax = std::size_t{64} << 20;
constexpr std::string_view kChunksFileVersion = "1.0";

Result<std::filesystem::path> chunks_file(const std::filesystem::path& folder,
                                          std::string_view model_id) {
  if (!contract::is_model_id(model_id))
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} is not a model id: expected 1 to 128 of [A-Za-z0-9._-], a letter "
                             "or digit first",
                             base::quoted(model_id))};
  return folder / fmt::format("{}.json", model_id);
}

std::string sha256_of(std::span<const std::byte> bytes) {
  base::Digest digest;
  digest.add(bytes);
  return digest.finish_hex();
}

// Adds the bytes to `whole` on another thread while the caller is at the same bytes itself.
class AddedAside {
 public:
  AddedAside(base::Digest& whole, std::span<const std::byte> bytes)
      : thread_(base::start_thread("file-hash", [this, &whole, bytes] {
          done_ = base::run_guarded("while hashing", [&] { whole.add(bytes); });
        })) {}

  AddedAside(const AddedAside&) = delete;
  AddedAside& operator=(const AddedAside&) = delete;

  // Waits until they are; once.
  Status finish() {
    thread_.join();
    return done_;
  }

 private:
  Status done_ = ok_status();
  std::jthread thread_;  // last: it uses the rest
};

// Checks the chunks of one file on threads of its own.
class RotSearch {
 public:
  RotSearch(const base::PositionedFile& file, const FileChunks& expected)
      : file_(file), expected_(expected) {}

  Result<std::vector<std::size_t>> run(const HashProgress& progress) {
    const unsigned num_threads = std::clamp(std::thread::hardware_concurrency(), 1U, kThreadsMax);
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < num_threads; ++i) {
      threads.push_back(base::start_thread("chunk-hash", [this] {
        const Status done = base::run_guarded("while hashing", [this] { work(); });
        const base::MutexLock lock(mutex_);
        if (!done.ok()) failure_ = done.error();
        ++ended_;
        changed_.notify_all();
      }));
    }
    bool wanted = true;
    for (bool is_done = false; !is_done;) {
      std::int64_t bytes = 0;
      {
        const auto report_at = std::chrono::steady_clock::now() + kReportInterval;
        const base::MutexLock lock(mutex_);
        while (ended_ < num_threads && changed_.wait_until(mutex_, report_at)) {
        }
        is_done = ended_ == num_threads;
        bytes = bytes_;
      }
      wanted = wanted && (!progress || progress(bytes));
      if (!wanted) stop_ = true;
    }
    threads.clear();
    if (!wanted)
      return Error{ErrorCode::Cancelled,
                   fmt::format("checking {} was cancelled", file_.path().string())};
    const base::MutexLock lock(mutex_);
    if (failure_) return *failure_;
    std::sort(rotted_.begin(), rotted_.end());
    return rotted_;
  }

 private:
  static constexpr unsigned kThreadsMax = 4;
  static constexpr std::chrono::milliseconds kReportInterval{100};

  void work() {
    std::vector<std::byte> buffer(
        static_cast<std::size_t>(std::min(expected_.chunk_bytes, expected_.size)));
    std::size_t index = 0;
    while (!stop_ && (index = next_++) < expected_.chunks.size()) {
      const std::int64_t offset = static_cast<std::int64_t>(index) * expected_.chunk_bytes;
      const std::span<std::byte> chunk = std::span(buffer).first(
          static_cast<std::size_t>(std::min(expected_.chunk_bytes, expected_.size - offset)));
      const Result<std::size_t> count = file_.read_at(offset, chunk);
      // A part of the disk that cannot be read is as lost as one that reads wrong.
      const bool is_right =
          count.ok() && *count == chunk.size() && sha256_of(chunk) == expected_.chunks[index];
      const base::MutexLock lock(mutex_);
      if (!is_right) rotted_.push_back(index);
      bytes_ += static_cast<std::int64_t>(chunk.size());
    }
  }

  const base::PositionedFile& file_;
  const FileChunks& expected_;
  std::atomic<std::size_t> next_ = 0;
  std::atomic<bool> stop_ = false;
  base::Mutex mutex_;
  base::CondVar changed_;
  unsigned ended_ LLORCH_GUARDED_BY(mutex_) = 0;
  std::int64_t bytes_ LLORCH_GUARDED_BY(mutex_) = 0;
  std::vector<std::size_t> rotted_ LLORCH_GUARDED_BY(mutex_);
  std::optional<Error> failure_ LLORCH_GUARDED_BY(mutex_);
};

Error changed_while_read(const std::filesystem::path& file) {
  return {ErrorCode::Conflict,
          fmt::format("{} changed while it was read: run this again when nothing writes to it",
                      file.string())};
}

}  // namespace

bool is_sha256_hex(std::string_view text) {
  return text.size() == 64 && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::int64_t count_chunks(std::int64_t size, std::int64_t chunk_bytes) {
  return size / chunk_bytes + (size % chunk_bytes != 0 ? 1 : 0);
}

Result<FileChunks> parse_file_chunks(const json::Value& value) {
  if (!value.is_object())
    return Error{
        ErrorCode::Corrupt,
        fmt::format("expected an object with a file's hashes, found {}", json::kind_name(value))};
  json::FieldReader reader(value.get_object());
  FileChunks file;
  file.path = reader.required_string("path");
  file.size = reader.required_integer("size", 0, kFileBytesMax);
  file.sha256 = reader.required_string("sha256");
  file.modified_ns =
      reader.optional_integer("modified_ns", 0, std::numeric_limits<std::int64_t>::max())
          .value_or(0);
  file.chunk_bytes =
      reader.optional_integer("chunk_bytes", kChunkBytesMin, kChunkBytesMax).value_or(kChunkBytes);
  file.chunks = reader.optional_strings("chunks", kChunksMax).value_or(std::vector<std::string>());
  // A newer program may say more.
  for (const auto& field : value.get_object()) reader.ignore(json::view(field.key()));
  if (const auto errors = reader.finish(); !errors.empty())
    return Error{ErrorCode::Corrupt,
                 fmt::format("a file's hashes: {} {}", errors[0].field, errors[0].message)};
  if (!contract::is_relative_file_path(file.path))
    return Error{ErrorCode::Corrupt, fmt::format("{} is not a relative path of a model's file",
                                                 base::quoted(file.path))};
  if (!is_sha256_hex(file.sha256) ||
      !std::all_of(file.chunks.begin(), file.chunks.end(), is_sha256_hex))
    return Error{ErrorCode::Corrupt,
                 fmt::format("the hashes of {} are not all 64 lower-case hex digits",
                             base::quoted(file.path))};
  const std::int64_t expected = count_chunks(file.size, file.chunk_bytes);
  if (std::cmp_not_equal(file.chunks.size(), expected))
    return Error{ErrorCode::Corrupt,
                 fmt::format("{} of {} bytes has {} chunk hashes, expected {} (one for each {} "
                             "bytes)",
                             base::quoted(file.path), file.size, file.chunks.size(), expected,
                             file.chunk_bytes)};
  return file;
}

Result<std::vector<FileChunks>> parse_chunk_list(const json::Value& value, std::string_view what) {
  if (!value.is_array() || value.get_array().size() > kFilesMax)
    return Error{ErrorCode::Corrupt,
                 fmt::format("{}: expected an array of at most {} files' hashes", what, kFilesMax)};
  std::vector<FileChunks> files;
  std::set<std::string_view> paths;
  files.reserve(value.get_array().size());  // so that the views of the paths stay valid
  for (const json::Value& item : value.get_array()) {
    Result<FileChunks> file = parse_file_chunks(item);
    if (!file.ok()) return file.error().in(what);
    files.push_back(file.take());
    if (!paths.insert(files.back().path).second)
      return Error{ErrorCode::Corrupt,
                   fmt::format("{}: {} is there twice", what, base::quoted(files.back().path))};
  }
  return files;
}

Result<FileChunks> hash_file(const std::filesystem::path& file, std::string relative_path,
                             const HashProgress& progress, std::int64_t chunk_bytes) {
  const Result<std::shared_ptr<base::PositionedFile>> opened = base::PositionedFile::open(file);
  if (!opened.ok()) return opened.error();
  return hash_file(**opened, std::move(relative_path), progress, chunk_bytes);
}

Result<FileChunks> hash_file(const base::PositionedFile& source, std::string relative_path,
                             const HashProgress& progress, std::int64_t chunk_bytes) {
  const std::filesystem::path& file = source.path();
  const Result<base::FileStamp> before = source.stamp();
  if (!before.ok()) return before.error();
  source.expect_sequential_reading();

  FileChunks result{.path = std::move(relative_path),
                    .size = before->size,
                    .sha256 = {},
                    .modified_ns = before->modified_ns,
                    .chunk_bytes = chunk_bytes,
                    .chunks = {}};
  base::Digest whole;
  std::vector<std::byte> buffer(static_cast<std::size_t>(std::min(chunk_bytes, result.size)));
  for (std::int64_t offset = 0; offset < result.size;) {
    const std::size_t wanted =
        static_cast<std::size_t>(std::min(chunk_bytes, result.size - offset));
    const std::span<std::byte> chunk = std::span(buffer).first(wanted);
    const Result<std::size_t> count = source.read_at(offset, chunk);
    if (!count.ok()) return count.error();
    if (*count != wanted) return changed_while_read(file);
    AddedAside aside(whole, chunk);
    result.chunks.push_back(sha256_of(chunk));
    if (Status added = aside.finish(); !added.ok()) return added.error();
    offset += static_cast<std::int64_t>(wanted);
    if (progress && !progress(offset))
      return Error{ErrorCode::Cancelled, fmt::format("hashing {} was cancelled", file.string())};
  }
  result.sha256 = whole.finish_hex();
  const Result<base::FileStamp> after = source.stamp();
  if (!after.ok()) return after.error();
  if (!(*after == *before)) return changed_while_read(file);
  return result;
}

Result<std::vector<std::size_t>> find_rotted_chunks(const base::PositionedFile& file,
                                                    const FileChunks& expected,
                                                    const HashProgress& progress) {
  const Result<base::FileStamp> before = file.stamp();
  if (!before.ok()) return before.error();
  file.expect_sequential_reading();
  Result<std::vector<std::size_t>> rotted = RotSearch(file, expected).run(progress);
  if (!rotted.ok()) return rotted;
  const Result<base::FileStamp> after = file.stamp();
  if (!after.ok()) return after.error();
  if (before->size != expected.size || !(*after == *before)) return changed_while_read(file.path());
  return rotted;
}

Result<std::vector<FileChunks>> load_chunks(const std::filesystem::path& folder,
                                            std::string_view model_id) {
  const Result<std::filesystem::path> file = chunks_file(folder, model_id);
  if (!file.ok()) return file.error();
  const Result<std::string> text = base::read_text_file(*file, kChunksFileBytesMax);
  if (!text.ok()) return text.error();
  const auto corrupt = [&](std::string_view why) {
    return Error{ErrorCode::Corrupt,
                 fmt::format("{}: {}; remove it and run `llorch-pool models verify {}` to make it "
                             "again",
                             file->string(), why, model_id)};
  };
  const Result<json::Value> parsed = json::parse(*text, {.max_bytes = kChunksFileBytesMax});
  if (!parsed.ok()) return corrupt(parsed.error().message);
  const json::Object* object = parsed->if_object();
  const json::Value* files = object != nullptr ? object->if_contains("files") : nullptr;
  if (files == nullptr) return corrupt("expected an object with \"files\"");
  Result<std::vector<FileChunks>> list = parse_chunk_list(*files, "files");
  if (!list.ok()) return corrupt(list.error().message);
  return list;
}

Status save_chunks(const std::filesystem::path& folder, std::string_view model_id,
                   const std::vector<FileChunks>& files) {
  const Result<std::filesystem::path> file = chunks_file(folder, model_id);
  if (!file.ok()) return file.error();
  if (Status made = base::make_private_folder(folder); !made.ok()) return made;
  json::Array list;
  for (const FileChunks& one : files) list.push_back(contract::write_fields(one));
  const json::Object document{{"version", kChunksFileVersion}, {"files", std::move(list)}};
  return base::write_file_atomically(*file, json::serialize(document) + "\n");
}

void remove_chunks(const std::filesystem::path& folder, std::string_view model_id) {
  const Result<std::filesystem::path> file = chunks_file(folder, model_id);
  std::error_code ignored;  // what cannot be removed is found again by load_chunks
  if (file.ok()) std::filesystem::remove(*file, ignored);
}

}  // namespace llorch::fetch
