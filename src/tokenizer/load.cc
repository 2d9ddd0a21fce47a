#include "tokenizer/load.h"

#include <fmt/format.h>

#include <array>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "formats/gguf_reader.h"

namespace llorch::tokenizer {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxTokenizerBytes = std::size_t{256} << 20;
constexpr std::size_t kMaxSideFileBytes = std::size_t{16} << 20;

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

// The files of one folder as text; those that are not there stay empty.
struct FolderFiles {
  std::string tokenizer_json, tokenizer_config, generation_config, config, chat_template;

  HuggingFaceFiles views() const {
    return {tokenizer_json, tokenizer_config, generation_config, config, chat_template};
  }
};

Status read_if_there(const fs::path& path, std::string& text) {
  if (!is_file(path)) return ok_status();
  Result<std::string> read = base::read_text_file(path, kMaxSideFileBytes);
  if (!read.ok()) return read.error();
  text = read.take();
  return ok_status();
}

Result<FolderFiles> read_side_files(const fs::path& folder) {
  FolderFiles files;
  const std::pair<std::string_view, std::string*> known[] = {
      {"tokenizer_config.json", &files.tokenizer_config},
      {"generation_config.json", &files.generation_config},
      {"config.json", &files.config},
      {"chat_template.jinja", &files.chat_template},
  };
  for (const auto& [name, text] : known) {
    if (Status status = read_if_there(folder / name, *text); !status.ok()) return status.error();
  }
  return files;
}

Result<Tokenizer> load_json(const fs::path& path) {
  Result<FolderFiles> files = read_side_files(path.parent_path());
  if (!files.ok()) return files.error();
  Result<std::string> text = base::read_text_file(path, kMaxTokenizerBytes);
  if (!text.ok()) return text.error();
  files->tokenizer_json = text.take();
  return from_tokenizer_json(files->views());
}

Result<Tokenizer> load_spm(const fs::path& path) {
  Result<FolderFiles> files = read_side_files(path.parent_path());
  if (!files.ok()) return files.error();
  Result<std::string> model = base::read_text_file(path, kMaxTokenizerBytes);
  if (!model.ok()) return model.error();
  return from_sentencepiece(model.value(), files->views());
}

Result<Tokenizer> load_gguf(const fs::path& path) {
  Result<formats::WeightFile> file = formats::read_gguf(path);
  if (!file.ok()) return file.error();
  return from_gguf(file->metadata());
}

Result<Tokenizer> with_path(Result<Tokenizer> result, const fs::path& path) {
  if (!result.ok()) return result.error().in(path.string());
  return result;
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

}  // namespace

Result<Tokenizer> load_tokenizer(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) {
    return Error{ErrorCode::NotFound, fmt::format("{} does not exist", path.string())};
  }
  const bool is_folder = fs::is_directory(status);
  if (!is_folder && is_gguf(path)) return with_path(load_gguf(path), path);
  if (!is_folder && path.extension() == ".json" &&
      path.filename().string().find("tokenizer") != std::string::npos) {
    return with_path(load_json(path), path);
  }
  if (!is_folder && path.extension() == ".model") return with_path(load_spm(path), path);

  const fs::path beside = is_folder ? path : fs::absolute(path).parent_path();
  std::string looked;
  for (const fs::path& folder : {beside, fs::absolute(beside / "..").lexically_normal()}) {
    for (const std::string_view name : {"tokenizer.json", "tokenizer.model"}) {
      const fs::path candidate = folder / name;
      looked += fmt::format("{}{}", looked.empty() ? "" : ", ", candidate.string());
      if (!is_file(candidate)) continue;
      return with_path(name == "tokenizer.json" ? load_json(candidate) : load_spm(candidate),
                       candidate);
    }
    if (!is_folder || folder != beside) continue;
    looked += fmt::format(", one .gguf file in {}", folder.string());
    if (const fs::path candidate = only_gguf(folder); !candidate.empty())
      return with_path(load_gguf(candidate), candidate);
  }
  return Error{
      ErrorCode::NotFound,
      fmt::format("no tokenizer for {}; looked for {}. Put the model's tokenizer.json beside it",
                  path.string(), looked)};
}

}  // namespace llorch::tokenizer
