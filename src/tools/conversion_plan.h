// What a converted model consists of, decided before a weight is read: the metadata of the GGUF
// file to be, and for each of its tensors where the values come from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/weight_file.h"
#include "tools/weight_types.h"

namespace llorch::tools {

// One tensor of the new file. `shape` is as GGUF stores it, (out, in) for matrices.
struct PlannedTensor {
  std::string name;
  tensor::Shape shape;
  tensor::DType dtype = tensor::DType::F32;
  bool fell_back = false;
  const formats::WeightTensor* source = nullptr;  // null: `made` holds the values
  std::vector<float> made;
  bool transposed = false;           // the source is (in, out)
  std::int64_t paired_head_dim = 0;  // above 0: rows of each head are reordered (model::paired_row)
  bool plus_one = false;             // the source holds the values minus one
};

struct ConversionPlan {
  std::shared_ptr<const formats::WeightFile> source;
  // The file to be: its metadata, and its tensors with their shapes, types and no bytes.
  std::shared_ptr<const formats::WeightFile> target;
  std::vector<PlannedTensor> tensors;  // in the order of the file
  std::vector<std::string> notes;      // for the user: what is not quite as it was
};

struct PlanRequest {
  std::filesystem::path input;
  std::filesystem::path output;
  const WeightType* type = nullptr;
  bool without_tokenizer = false;
};

// Opens the input and plans its conversion. The plan has been checked: the target is a model with
// the same numbers as the source, as this program would read it. What GGUF cannot hold is
// Unsupported and says what.
Result<ConversionPlan> plan_conversion(const PlanRequest& request);

}  // namespace llorch::tools
