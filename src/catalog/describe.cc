#include "catalog/describe.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/terminal.h"
#include "base/utf8.h"
#include "builtin_model/builtin_model.h"
#include "catalog/model_names.h"
#include "catalog/supported.h"
#include "formats/open.h"
#include "formats/summary.h"

namespace llorch::catalog {
namespace {

namespace fs = std::filesystem;
using contract::ModelEntry;
using contract::ModelFile;

constexpr std::size_t kTextBytesMax = 200;

// What lies beside weights in Hugging Face layout and is part of the model.
constexpr std::array<std::string_view, 11> kSideFiles = {"config.json",
                                                         "generation_config.json",
                                                         "tokenizer.json",
                                                         "tokenizer.model",
                                                         "tokenizer_config.json",
                                                         "special_tokens_map.json",
                                                         "added_tokens.json",
                                                         "vocab.json",
                                                         "merges.txt",
                                                         "chat_template.jinja",
                                                         "chat_template.json"};
constexpr std::array<std::string_view, 2> kIndexFiles = {"model.safetensors.index.json",
                                                         "pytorch_model.bin.index.json"};

struct FileFacts {
  std::int64_t size = 0;
  std::int64_t modified_ms = 0;
};

std::optional<FileFacts> stat_file(const fs::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return std::nullopt;
  return FileFacts{info.st_size, info.st_mtim.tv_sec * 1000 + info.st_mtim.tv_nsec / 1'000'000};
}

// A file's own words: text that can go anywhere, of a length that can too.
std::string clean(std::string_view text) {
  std::string result = base::printable(text);
  if (result.size() <= kTextBytesMax) return result;
  result.resize(kTextBytesMax);
  while (!result.empty() && !base::is_valid_utf8(result)) result.pop_back();
  return result;
}

std::string_view format_word(formats::FileFormat format) {
  switch (format) {
    case formats::FileFormat::Gguf:
      return "gguf";
    case formats::FileFormat::SafeTensors:
      return "safetensors";
    case formats::FileFormat::PyTorch:
      return "pytorch";
  }
  return "";
}

Result<ModelFile> describe_file(const fs::path& folder, const fs::path& path,
                                const ModelEntry& before) {
  const std::optional<FileFacts> facts = stat_file(path);
  const std::string relative = path.lexically_relative(folder).generic_string();
  if (!facts) {
    return Error{ErrorCode::NotFound, fmt::format("{} went away while it was read", path.string())};
  }
  if (!contract::is_relative_file_path(relative)) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} has a name that a catalog cannot hold: rename it",
                             base::quoted(path.string()))};
  }
  ModelFile file{relative, facts->size, {}, facts->modified_ms};
  for (const ModelFile& old : before.files) {
    const bool same =
        old.path == relative && old.size == facts->size && old.modified_ms == facts->modified_ms;
    if (same) file.sha256 = old.sha256;
  }
  return file;
}

// The weights' own files first, as they are mapped, then what lies beside them.
std::vector<fs::path> list_paths(const formats::WeightFile& weights, const fs::path& folder) {
  std::vector<fs::path> paths;
  for (const auto& file : weights.files()) paths.push_back(file->path());
  if (weights.format() == formats::FileFormat::Gguf) return paths;
  const bool is_sharded =
      !paths.empty() && paths.front().filename().string().find("-of-") != std::string::npos;
  const auto add_if_there = [&](std::string_view name) {
    if (stat_file(folder / name)) paths.push_back(folder / name);
  };
  if (is_sharded) std::for_each(kIndexFiles.begin(), kIndexFiles.end(), add_if_there);
  std::for_each(kSideFiles.begin(), kSideFiles.end(), add_if_there);
  return paths;
}

}  // namespace

void describe_weights(const formats::WeightFile& weights, ModelEntry& entry) {
  const formats::FileSummary summary = formats::summarize(weights);
  entry.format = format_word(weights.format());
  entry.architecture = clean(architecture_of(weights, summary));
  entry.quantization = clean(summary.quantization);
  entry.context_length = summary.context_length;
  entry.vocab_size = summary.vocab_size;
  entry.parameters = summary.parameters > 0 ? std::optional(summary.parameters) : std::nullopt;
  // A name that is a path is one of the machine where the file was made.
  if (entry.name.empty() && !summary.name.starts_with('/')) entry.name = clean(summary.name);
  if (entry.license.empty()) {
    const Result<std::string_view> license = weights.metadata().text("general.license");
    if (license.ok()) entry.license = clean(*license);
  }
  Support support = find_support(entry.architecture, summary);
  entry.backends = std::move(support.backends);
  entry.unsupported = std::move(support.reason);
}

Status describe_files(const fs::path& path, ModelEntry& entry) {
  std::error_code error;
  fs::path whole = fs::absolute(path, error).lexically_normal();
  if (error)
    return Error{ErrorCode::NotFound, fmt::format("{}: {}", path.string(), error.message())};
  if (!whole.has_filename()) whole = whole.parent_path();  // "folder/"
  if (!base::is_valid_utf8(whole.string())) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} is not UTF-8, which a catalog needs: rename it",
                             base::quoted(whole.string()))};
  }
  const Result<formats::WeightFile> weights = formats::open_weights(whole);
  if (!weights.ok()) return weights.error();
  ModelEntry described = entry;
  described.path = whole.string();
  const fs::path folder = fs::is_directory(whole, error) ? whole : whole.parent_path();
  described.files.clear();
  described.size_bytes = 0;
  for (const fs::path& one : list_paths(*weights, folder)) {
    Result<ModelFile> file = describe_file(folder, one, entry);
    if (!file.ok()) return file.error();
    described.size_bytes += file->size;
    described.files.push_back(file.take());
  }
  describe_weights(*weights, described);
  // Weights in a folder of their own are called "model" everywhere.
  if (described.name.empty())
    described.name = clean(described.format == "gguf" && folder != whole ? whole.stem().string()
                                                                         : telling_part(folder));
  described.downloaded = true;
  entry = std::move(described);
  return ok_status();
}

fs::path model_folder(const ModelEntry& entry) {
  const fs::path path = entry.path;
  std::error_code error;
  if (fs::is_directory(path, error)) return path;
  if (fs::exists(path, error)) return path.parent_path();
  // Nothing is there: a path that ends like one of the files was that file.
  for (const ModelFile& file : entry.files) {
    if (entry.path.ends_with("/" + file.path))
      return entry.path.substr(0, entry.path.size() - file.path.size() - 1);
  }
  return path;
}

std::string_view name(FilesState state) {
  switch (state) {
    case FilesState::NotDownloaded:
      return "not_downloaded";
    case FilesState::Ready:
      return "ready";
    case FilesState::Changed:
      return "changed";
    case FilesState::Missing:
      return "missing";
  }
  return "";
}

FilesState check_files(const ModelEntry& entry) {
  if (!entry.downloaded) return FilesState::NotDownloaded;
  if (entry.path == builtin_model::kName) return FilesState::Ready;
  std::error_code error;
  if (entry.files.empty())  // another program's entry
    return fs::exists(entry.path, error) ? FilesState::Ready : FilesState::Missing;
  const fs::path folder = model_folder(entry);
  FilesState state = FilesState::Ready;
  for (const ModelFile& file : entry.files) {
    const std::optional<FileFacts> facts = stat_file(folder / file.path);
    if (!facts) return FilesState::Missing;
    const bool is_older = file.modified_ms != 0 && file.modified_ms != facts->modified_ms;
    if (facts->size != file.size || is_older) state = FilesState::Changed;
  }
  return state;
}

}  // namespace llorch::catalog
