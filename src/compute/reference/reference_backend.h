// The oracle: every op as its definition reads, one value at a time, in double. Far too slow to
// serve with.
#pragma once

#include <memory>

#include "compute/backend.h"

namespace llorch::compute {

std::unique_ptr<Backend> make_reference_backend();

}  // namespace llorch::compute
