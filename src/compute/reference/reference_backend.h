// The oracle: every op as its definition reads, one value at a time, in double, products with their
// input in any form that another backend declares. Far too slow to serve with.
#pragma once

#include <functional>
#include <memory>

#include "compute/backend.h"

namespace llorch::compute {

using InputForms = std::function<InputForm(tensor::DType weight)>;

std::unique_ptr<Backend> make_reference_backend(InputForms forms);

}  // namespace llorch::compute
