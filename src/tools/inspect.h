// llorch-inspect: what a model file holds, and whether it would run here.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "formats/summary.h"
#include "formats/weight_file.h"

namespace llorch::tools {

// Everything the program knows about one model. Holds the mapped files: tensors are listed from
// there.
struct Inspection {
  std::filesystem::path path;  // as the user named it
  formats::WeightFile file;
  formats::FileSummary summary;
  std::vector<std::string> obstacles;  // why it does not run here; empty when it does

  bool runs_here() const { return obstacles.empty(); }
};

Result<Inspection> inspect(const std::filesystem::path& path);

// One screen for people; with `tensors`, one more line for each tensor.
std::string report_text(const Inspection& inspection, bool tensors, bool color);

// The same facts and all tensors as one object; its keys are listed in the program's --help and
// stay.
json::Object report_json(const Inspection& inspection);

}  // namespace llorch::tools
