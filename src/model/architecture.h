// The architectures we run, as one explicit table: how a family is recognised, where its numbers
// are, what its tensors are called. The only place that detects architectures.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "formats/weight_file.h"
#include "model/config.h"
#include "model/tensor_map.h"
#include "model/tensor_names.h"

namespace llorch::model {

// What the caller decides before a model is read.
struct PlanOptions {
  // The longest sequence that will be run; 0 or more than the model's own: the model's own. Besides
  // limiting ModelConfig::context_length it chooses between LongRoPE's two sets of factors.
  std::int32_t context_length = 0;
};

using ReadConfig = Result<ModelConfig>(const formats::WeightFile& file, const PlanOptions& options);

struct Architecture {
  std::string_view name;
  // What the family calls itself in GGUF's general.architecture and config.json's model_type,
  // beside its name.
  std::string_view other_name;
  // general.architecture of the files that llama.cpp's converter writes; also begins their keys.
  std::string_view gguf_name;
  ReadConfig* read_config;
  std::span<const TensorRow> tensors;
  GgufForm gguf_form;
  // Tensors that such files carry and that no layer reads: masks saved as buffers, rotary tables
  // (which read_config has turned into numbers).
  bool (*is_ignored)(std::string_view tensor_name);
};

std::span<const Architecture> architectures();

// The word by which the file names its family; an error when it names none.
Result<std::string> declared_architecture(const formats::WeightFile& file);

// The table's row for this file; an unknown family is an error that lists those known.
Result<const Architecture*> find_architecture(const formats::WeightFile& file);

// The tensors that this file must have to be the model `config` describes, as it spells and stores
// them.
std::vector<TensorSpec> list_tensors(const Architecture& architecture, const ModelConfig& config,
                                     const formats::WeightFile& file);

// Everything before the weights are touched: row, validated numbers, tensors in their places.
struct ModelPlan {
  ModelConfig config;
  std::vector<MappedTensor> tensors;
};
Result<ModelPlan> plan_model(const formats::WeightFile& file, const PlanOptions& options = {});

// Leaves out the rows of a padded vocabulary: those from `num_ids` on stand for no token. They are
// not loaded, so they are never chosen, whatever is in them.
void cut_vocabulary(ModelPlan& plan, std::int32_t num_ids);

// Parameters of the whole model: elements of every mapped tensor, a tied output counted once.
std::int64_t count_parameters(const ModelPlan& plan);

}  // namespace llorch::model
