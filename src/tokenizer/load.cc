#include "tokenizer/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "formats/gguf_reader.h"
#include "tokenizer/load_parts.h"

namespace llorch::tokenizer {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxTokenizerBytes = std::size_t{256} << 20;
constexpr std::size_t kMaxSideFileBytes = std::size_t{16} << 20;

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

Status read_if_there(const fs::path& path, std::string& text) {
  if (!is_file(path)) return ok_status();
  Result<std::string> read = base::read_text_file(path, kMaxSideFileBytes);
  if (!read.ok()) return read.error();
  text = read.take();
  return ok_status();
}

Result<Tokenizer> load_gguf(const fs::path& path) {
  Result<formats::WeightFile> file = formats::read_gguf(path);
  if (!file.ok()) return file.error();
  return from_gguf(file->metadata());
}

bool is_gguf(const fs::path& path) {
  Result<std::shared_ptr<const base::MappedFile>> file = base::MappedFile::open(path);
  if (!file.ok()) return false;
  const std::span<const std::byte> bytes = file.value()->bytes();
  constexpr std::array<std::byte, 4> kMagic = {std::byte{'G'}, std::byte{'G'}, std::byte{'U'},
                                               std::byte{'F'}};
  return bytes.size() >= kMagic.size() && std::equal(kMagic.begin(), kMagic.end(), bytes.begin());
}

// The only GGUF file of a folder, if there is exactly one.
fs::path only_gguf(const fs::path& folder) {
  fs::path found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() != ".gguf") continue;
    if (!found.empty()) return {};
    found = entry->path();
  }
  return found;
}

// Which file of a folder, or of the folder above, is the tokenizer; `looked` collects what was
// looked for.
std::optional<fs::path> look_around(const fs::path& path, bool is_folder, std::string& looked) {
  const fs::path beside = is_folder ? path : fs::absolute(path).parent_path();
  for (const fs::path& folder : {beside, fs::absolute(beside / "..").lexically_normal()}) {
    for (const std::string_view name : {"tokenizer.json", "tokenizer.model"}) {
      const fs::path candidate = folder / name;
      looked += fmt::format("{}{}", looked.empty() ? "" : ", ", candidate.string());
      if (is_file(candidate)) return candidate;
    }
    if (!is_folder || folder != beside) continue;
    looked += fmt::format(", one .gguf file in {}", folder.string());
    if (fs::path candidate = only_gguf(folder); !candidate.empty()) return candidate;
  }
  return std::nullopt;
}

Result<Tokenizer> load_file(const fs::path& file) {
  if (is_gguf(file)) return load_gguf(file);
  Result<FolderFiles> files = read_folder_files(file);
  if (!files.ok()) return files.error();
  if (file.extension() == ".model") return from_sentencepiece(files->sentencepiece, files->views());
  return from_tokenizer_json(files->views());
}

}  // namespace

Result<FolderFiles> read_folder_files(const fs::path& tokenizer_file) {
  FolderFiles files;
  const std::pair<std::string_view, std::string*> known[] = {
      {"tokenizer_config.json", &files.tokenizer_config},
      {"generation_config.json", &files.generation_config},
      {"config.json", &files.config},
      {"chat_template.jinja", &files.chat_template},
  };
  for (const auto& [name, text] : known) {
    Status status = read_if_there(tokenizer_file.parent_path() / name, *text);
    if (!status.ok()) return status.error();
  }
  Result<std::string> text = base::read_text_file(tokenizer_file, kMaxTokenizerBytes);
  if (!text.ok()) return text.error();
  (tokenizer_file.extension() == ".model" ? files.sentencepiece : files.tokenizer_json) =
      text.take();
  return files;
}

Result<fs::path> find_tokenizer_file(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    return Error{ErrorCode::NotFound, fmt::format("{} does not exist", path.string())};
  }
  const bool is_folder = fs::is_directory(status);
  const bool is_tokenizer =
      !is_folder && (path.extension() == ".model" ||
                     (path.extension() == ".json" &&
                      path.filename().string().find("tokenizer") != std::string::npos) ||
                     is_gguf(path));
  if (is_tokenizer) return path;
  std::string looked;
  if (std::optional<fs::path> found = look_around(path, is_folder, looked)) return *found;
  return Error{
      ErrorCode::NotFound,
      fmt::format("no tokenizer for {}; looked for {}. Put the model's tokenizer.json beside it",
                  path.string(), looked)};
}

Result<Tokenizer> load_tokenizer(const fs::path& path) {
  Result<fs::path> file = find_tokenizer_file(path);
  if (!file.ok()) return file.error();
  Result<Tokenizer> loaded = load_file(file.value());
  if (!loaded.ok()) return loaded.error().in(file->string());
  return loaded;
}

}  // namespace llorch::tokenizer
