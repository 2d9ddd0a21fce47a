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
  std::vector<std::string> obstacles;  // why no worker starts on it here; empty when one does
  std::string template_error;          // why its chat template is of no use; empty when it is
  std::vector<std::string> assumed;    // "key = value": the family's defaults for keys left out

  bool runs_here() const { return obstacles.empty(); }
};

Result<Inspection> inspect(const std::filesystem::path& path);

// One screen for people; with `tensors`, one more line for each tensor.
std::string report_text(const Inspection& inspection, bool tensors, bool color);

// The same facts and all tensors as one object; its keys are listed in the program's --help and
// stay.
json::Object report_json(const Inspection& inspection);

}  // namespace llorch::tools
