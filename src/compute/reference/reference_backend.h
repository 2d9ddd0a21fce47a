// The oracle: every op as its definition reads, one value at a time, in double, products and
// attention with their input in any form that another backend declares. Far too slow to serve with.
#pragma once

#include <functional>
#include <memory>

#include "compute/backend.h"

namespace llorch::compute {

struct ReferenceForms {
  std::function<InputForm(tensor::DType weight)> products = [](auto) { return InputForm::F32; };
  std::function<WeightForm(tensor::DType weight)> weights = [](auto) { return WeightForm::Exact; };
  std::function<AttentionForm(tensor::DType cache)> attention = [](auto) {
    return AttentionForm();
  };
};

std::unique_ptr<Backend> make_reference_backend(ReferenceForms forms);

}  // namespace llorch::compute
