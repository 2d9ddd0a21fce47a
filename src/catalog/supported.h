// What our workers can run, for programs that may not link them: two small tables. The workers' own
// tables are in model/architecture.cc and compute/dequantize.cc; tests/catalog fails when these
// here differ.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/summary.h"
#include "formats/weight_file.h"

namespace llorch::catalog {

// As files spell them: general.architecture of GGUF, model_type of config.json.
std::span<const std::string_view> supported_architectures();

// Element types that no worker decodes. The CUDA backend decodes exactly what the CPU backend does.
std::span<const std::string_view> unsupported_types();

// The word by which the file names its family; empty when it names none.
std::string architecture_of(const formats::WeightFile& file, const formats::FileSummary& summary);

struct Support {
  std::vector<std::string> backends;  // "cpu", "cuda"
  std::string reason;                 // why there are none
};
Support find_support(std::string_view architecture, const formats::FileSummary& summary);

}  // namespace llorch::catalog
