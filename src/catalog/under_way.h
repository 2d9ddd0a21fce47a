// What is being downloaded into a model's folder, and how far it is: a small file beside the parts,
// for other processes that want the same model, and for whoever finds what a killed one left.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace llorch::catalog {

// Held while a download is at a model's folder; what it wrote there goes with it when it ends well.
inline constexpr std::string_view kDownloadLockName = "download.lock";
inline constexpr std::string_view kUnderWayName = "download.json";

struct UnderWay {
  std::string ref;  // where from; empty: a neighbour
  std::int64_t pid = 0;
  std::int64_t files_done = 0;
  std::int64_t files_total = 0;
  std::int64_t bytes_done = 0;
  std::int64_t bytes_total = 0;

  friend bool operator==(const UnderWay&, const UnderWay&) = default;
};

Result<UnderWay> parse_under_way(std::string_view text);
// Nothing when there is no such file, or none that can be read.
std::optional<UnderWay> load_under_way(const std::filesystem::path& model_folder);
// By the holder of the folder's lock only. Readers see the old or the new.
Status save_under_way(const std::filesystem::path& model_folder, const UnderWay& under_way);
// What is, or was, being downloaded into the folders below `models`, by their names.
struct ModelUnderWay {
  std::string model;
  UnderWay now;
  bool is_running = false;  // else it was cut off
};
std::vector<ModelUnderWay> list_under_way(const std::filesystem::path& models);

// What a folder holds, in the order of the names; nothing where it cannot be read. Never throws.
std::vector<std::filesystem::path> children_of(const std::filesystem::path& folder);

void remove_under_way(const std::filesystem::path& model_folder);

}  // namespace llorch::catalog
