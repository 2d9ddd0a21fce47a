// Which type each tensor of a GGUF file gets: the mixtures that people know by name, as pure
// decisions.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace llorch::tools {

// What --type names. Most are one type for all matrices; a mixture gives more bits to the tensors
// that need them.
struct WeightType {
  std::string_view name;  // "q4_k_m"
  tensor::DType dtype;
  bool is_mixture = false;
  std::uint32_t file_type = 0;  // general.file_type
};
std::span<const WeightType> weight_types();
const WeightType* find_weight_type(std::string_view name);  // null when there is none

// What the choice depends on besides the tensor itself.
struct ModelFacts {
  std::int32_t num_layers = 0;
  bool has_output = false;  // else the token embedding is the output matrix as well
};

struct TypeChoice {
  tensor::DType dtype = tensor::DType::F32;
  bool fell_back = false;  // the rows are not whole blocks of the type that it should have had
};

// `name` as GGUF spells it. Matrices get the wanted type, more bits or a fallback; vectors, norms,
// positions and rotary tables F32.
TypeChoice choose_type(const WeightType& wanted, std::string_view name, const tensor::Shape& shape,
                       const ModelFacts& facts);

}  // namespace llorch::tools
