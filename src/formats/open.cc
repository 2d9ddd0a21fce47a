#include "formats/open.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/gguf_reader.h"
#include "formats/json_metadata.h"
#include "formats/pytorch_reader.h"
#include "formats/safetensors_reader.h"

namespace llorch::formats {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSafeTensorsIndex = "model.safetensors.index.json";
constexpr std::string_view kPyTorchIndex = "pytorch_model.bin.index.json";

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

// A SafeTensors file has no magic: a header length that fits the file, then '{'.
bool looks_like_safetensors(std::span<const std::byte> bytes) {
  std::uint64_t length = 0;
  if (bytes.size() <= sizeof length || bytes[sizeof length] != std::byte{'{'}) return false;
  std::memcpy(&length, bytes.data(), sizeof length);
  return length <= bytes.size() - sizeof length;
}

Result<FileFormat> sniff(const fs::path& path) {
  const Result<std::shared_ptr<const base::MappedFile>> file = base::MappedFile::open(path);
  if (!file.ok()) return file.error();
  const std::span<const std::byte> bytes = (*file)->bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with("GGUF")) return FileFormat::Gguf;
  // Before the others: its first eight bytes are a length, which may spell "PK" or a pickle's first
  // byte.
  if (looks_like_safetensors(bytes)) return FileFormat::SafeTensors;
  if (text.starts_with("PK")) return FileFormat::PyTorch;
  if (text.starts_with("\x80"))
    return FileFormat::PyTorch;  // the old pickle form; its reader says what to do
  if (text.starts_with("version https://git-lfs")) {
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("{} is a Git LFS pointer, not the weights; fetch them with `git lfs pull`",
                    path.string())};
  }
  // What is in it is not shown: it may be anybody's file.
  return Error{ErrorCode::Unsupported,
               fmt::format("{} ({} bytes) is none of the formats known here: GGUF, SafeTensors, "
                           "PyTorch zip",
                           path.string(), bytes.size())};
}

// "model-00002-of-00005.safetensors": one of several, useless without the others.
bool is_shard_name(std::string_view name) {
  const std::size_t of = name.rfind("-of-");
  if (of == std::string_view::npos) return false;
  const auto ends_in_digit = [](std::string_view text) {
    return !text.empty() && text.back() >= '0' && text.back() <= '9';
  };
  return ends_in_digit(name.substr(0, of)) && ends_in_digit(name.substr(0, name.rfind('.')));
}

Status add_configs(const fs::path& folder, WeightFile& weights) {
  for (const std::string_view prefix : {"config", "generation_config"}) {
    const fs::path path = folder / fmt::format("{}.json", prefix);
    if (!is_file(path)) continue;
    if (Status added = read_json_metadata(path, prefix, weights.mutable_metadata()); !added.ok())
      return added;
  }
  return ok_status();
}

using Read = Result<WeightFile> (*)(const fs::path& path);

Result<WeightFile> read_with_configs(Read read, const fs::path& path) {
  Result<WeightFile> weights = read(path);
  if (!weights.ok()) return weights;
  if (Status added = add_configs(path.parent_path(), *weights); !added.ok()) return added.error();
  return weights;
}

Result<WeightFile> open_file(const fs::path& path) {
  const Result<FileFormat> format = sniff(path);
  if (!format.ok()) return format.error();
  if (*format == FileFormat::Gguf) return read_gguf(path);
  const bool safetensors = *format == FileFormat::SafeTensors;
  const fs::path index = path.parent_path() / (safetensors ? kSafeTensorsIndex : kPyTorchIndex);
  if (is_shard_name(path.filename().string()) && is_file(index)) {
    return read_with_configs(safetensors ? read_safetensors_index : read_pytorch_index, index);
  }
  return read_with_configs(safetensors ? read_safetensors : read_pytorch, path);
}

// The files of `folder` with this extension, sorted.
std::vector<fs::path> list_files(const fs::path& folder, std::string_view extension) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (at->path().extension() == extension && is_file(at->path())) files.push_back(at->path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

Result<WeightFile> open_folder(const fs::path& folder) {
  if (is_file(folder / "model.safetensors")) return open_file(folder / "model.safetensors");
  if (is_file(folder / kSafeTensorsIndex))
    return read_with_configs(read_safetensors_index, folder / kSafeTensorsIndex);
  const std::vector<fs::path> safetensors = list_files(folder, ".safetensors");
  if (safetensors.size() == 1) return open_file(safetensors[0]);
  if (is_file(folder / "pytorch_model.bin")) return open_file(folder / "pytorch_model.bin");
  if (is_file(folder / kPyTorchIndex))
    return read_with_configs(read_pytorch_index, folder / kPyTorchIndex);
  const std::vector<fs::path> gguf = list_files(folder, ".gguf");
  // The parts of one split file count as one.
  const bool one_split =
      gguf.size() > 1 && std::all_of(gguf.begin(), gguf.end(), [&gguf](const fs::path& part) {
        const std::string name = part.filename().string();
        const std::string first = gguf[0].filename().string();
        return is_shard_name(name) && name.size() == first.size() &&
               name.substr(0, name.rfind("-of-") - 5) == first.substr(0, first.rfind("-of-") - 5);
      });
  if (gguf.size() == 1 || one_split) return open_file(gguf[0]);
  return Error{
      ErrorCode::NotFound,
      fmt::format(
          "{} holds no weights that can be chosen: looked for model.safetensors, {}, a single "
          ".safetensors (found {}), pytorch_model.bin, {}, a single .gguf (found {}); name the "
          "file",
          folder.string(), kSafeTensorsIndex, safetensors.size(), kPyTorchIndex, gguf.size())};
}

}  // namespace

Result<WeightFile> open_weights(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return open_folder(path);
  return open_file(path);
}

}  // namespace llorch::formats
