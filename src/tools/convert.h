// llorch-convert without its command line: a planned conversion carried out.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"
#include "tools/conversion_plan.h"

namespace llorch::tools {

// Called from the converting thread after each piece of work.
using ConvertProgress =
    std::function<void(std::int64_t done_values, std::int64_t all_values, std::string_view tensor)>;

// Writes the file that the plan describes: whole under its name, or not at all. Holds a few rows at
// a time, some 10 MB for each thread, and GPT-2's turned matrices one by one; the same bytes
// whatever the number of threads.
Status write_conversion(const ConversionPlan& plan, const std::filesystem::path& output,
                        int threads, const ConvertProgress& progress);

// Bytes of tensors, before and after, and what a weight takes now.
struct ConvertSummary {
  std::int64_t num_tensors = 0;
  std::int64_t num_values = 0;
  std::int64_t bytes_before = 0;
  std::int64_t bytes_after = 0;
  double bits_per_weight = 0;
};
ConvertSummary summarize(const ConversionPlan& plan);

std::string summary_text(const ConversionPlan& plan, bool color);
json::Object summary_json(const ConversionPlan& plan);

}  // namespace llorch::tools
