// The oracle: every op as its definition reads, one value at a time, in double, products and
// attention with their input in any form that another backend declares. Products use all cores,
// each sum in its order, as models of billions of weights are held against it. Far too slow to
// serve with.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "compute/backend.h"

namespace llorch::compute {

struct ReferenceForms {
  std::function<InputForm(tensor::DType weight)> products = [](auto) { return InputForm::F32; };
  std::function<WeightForm(tensor::DType weight)> weights = [](auto) { return WeightForm::Exact; };
  std::function<AttentionForm(tensor::DType cache)> attention = [](auto) {
    return AttentionForm();
  };
  // A row of x as a product takes it, before it is rounded to its form. For comparisons: what
  // another backend had there, where both may be right and are rounded to two sides.
  std::function<std::vector<float>(InputForm form, const TensorView& x, std::int64_t row)> taken =
      [](InputForm, const TensorView& x, std::int64_t row) {
        return std::vector<float>(x.row<float>(row), x.row<float>(row) + x.dims[1]);
      };
};

std::unique_ptr<Backend> make_reference_backend(ReferenceForms forms);

}  // namespace llorch::compute
