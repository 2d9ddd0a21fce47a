#include "catalog/describe.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/enum_names.h"
#include "base/terminal.h"
#include "base/utf8.h"
#include "catalog/look.h"
#include "catalog/model_names.h"
#include "catalog/supported.h"
#include "contract/model_entry.h"
#include "formats/open.h"
#include "formats/summary.h"

namespace llorch::catalog {
namespace {

namespace fs = std::filesystem;
using contract::ModelEntry;
using contract::ModelFile;

constexpr std::size_t kTextBytesMax = 200;

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

// A file's own words: text that can go anywhere, of a length that can too.
std::string clean(std::string_view text) {
  std::string result = base::printable(text);
  if (result.size() <= kTextBytesMax) return result;
  result.resize(kTextBytesMax);
  while (!result.empty() && !base::is_valid_utf8(result)) result.pop_back();
  return result;
}

std::string_view format_word(formats::FileFormat format) {
  static constexpr base::EnumNames<formats::FileFormat::PyTorch> kNames("gguf", "safetensors",
                                                                        "pytorch");
  return kNames[format];
}

Result<ModelFile> describe_file(const fs::path& folder, const std::string& relative,
                                const ModelEntry& before) {
  const std::optional<base::FileStamp> stamp = base::stamp_of(folder / relative);
  if (!stamp) {
    return Error{ErrorCode::Conflict,
                 fmt::format("{} went away while it was read", (folder / relative).string())};
  }
  ModelFile file;
  file.path = relative;
  file.size = stamp->size;
  note_stamp(*stamp, file);
  for (const ModelFile& old : before.files) {
    if (old.path != relative || !is_as_noted(old, *stamp)) continue;
    file.sha256 = old.sha256;
    file.damaged = old.damaged;
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
    if (base::stamp_of(folder / name)) paths.push_back(folder / name);
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

Result<ModelEntry> read_facts(const fs::path& path) {
  const Result<formats::WeightFile> weights = formats::open_weights(path);
  if (!weights.ok()) return weights.error();
  std::error_code error;
  const fs::path folder = fs::is_directory(path, error) ? path : path.parent_path();
  ModelEntry facts;
  facts.id = "facts";  // an entry has one
  for (const fs::path& one : list_paths(*weights, folder)) {
    const std::string relative = one.lexically_relative(folder).generic_string();
    if (!contract::is_relative_file_path(relative)) {
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("{} has a name that a catalog cannot hold: rename it",
                               base::quoted(one.string()))};
    }
    facts.files.push_back({.path = relative});
  }
  describe_weights(*weights, facts);
  // Weights in a folder of their own are called "model" everywhere.
  if (facts.name.empty())
    facts.name = clean(facts.format == "gguf" && folder != path ? path.stem().string()
                                                                : telling_part(folder));
  return facts;
}

std::vector<std::string_view> side_file_names() {
  std::vector<std::string_view> names(kSideFiles.begin(), kSideFiles.end());
  names.insert(names.end(), kIndexFiles.begin(), kIndexFiles.end());
  return names;
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
  Result<ModelEntry> facts = look_into(whole);
  if (!facts.ok()) return facts.error();
  ModelEntry described = entry;
  described.path = whole.string();
  const fs::path folder = fs::is_directory(whole, error) ? whole : whole.parent_path();
  described.files.clear();
  described.size_bytes = 0;
  for (const ModelFile& one : facts->files) {
    Result<ModelFile> file = describe_file(folder, one.path, entry);
    if (!file.ok()) return file.error();
    described.size_bytes += file->size;
    described.files.push_back(file.take());
  }
  described.format = facts->format;
  described.architecture = facts->architecture;
  described.quantization = facts->quantization;
  described.context_length = facts->context_length;
  described.vocab_size = facts->vocab_size;
  described.parameters = facts->parameters;
  described.backends = std::move(facts->backends);
  described.unsupported = std::move(facts->unsupported);
  if (described.name.empty()) described.name = facts->name;
  if (described.license.empty()) described.license = facts->license;
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
  return kModelStates[static_cast<std::size_t>(state)];
}

bool is_as_noted(const ModelFile& file, const base::FileStamp& stamp) {
  const auto is_same = [](std::int64_t noted, std::int64_t now) {
    return noted == 0 || noted == now;
  };
  return file.size == stamp.size && is_same(file.modified_ms, stamp.modified_ns / 1'000'000) &&
         is_same(file.changed_ns, stamp.changed_ns) && is_same(file.inode, stamp.inode);
}

void note_stamp(const base::FileStamp& stamp, ModelFile& file) {
  file.modified_ms = stamp.modified_ns / 1'000'000;
  file.changed_ns = stamp.changed_ns;
  file.inode = stamp.inode;
}

std::string_view state_of(const ModelEntry& entry) {
  const FilesState state = check_files(entry);
  if (state == FilesState::Ready && entry.backends.empty() && !entry.unsupported.empty())
    return "unsupported";
  return name(state);
}

FilesState check_files(const ModelEntry& entry) {
  if (!entry.downloaded) return FilesState::NotDownloaded;
  if (entry.path == contract::kBuiltinModel) return FilesState::Ready;
  std::error_code error;
  if (entry.files.empty())  // another program's entry
    return fs::exists(entry.path, error) ? FilesState::Ready : FilesState::Missing;
  const fs::path folder = model_folder(entry);
  FilesState state = FilesState::Ready;
  for (const ModelFile& file : entry.files) {
    const std::optional<base::FileStamp> stamp = base::stamp_of(folder / file.path);
    if (!stamp) return FilesState::Missing;
    // One that changed since may have been mended.
    if (!is_as_noted(file, *stamp))
      state = FilesState::Changed;
    else if (file.damaged && state == FilesState::Ready)
      state = FilesState::Damaged;
  }
  return state;
}

}  // namespace llorch::catalog
