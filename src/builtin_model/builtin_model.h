// The model that is part of a worker: a small story teller (models/builtin), as a GGUF image in
// the read-only data of the executable. The pages that are used are read from disk when touched,
// as with a mapped file.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"
#include "formats/weight_file.h"

namespace llorch::builtin_model {

std::span<const std::byte> gguf();

// The same opened, tensors being views of the image.
Result<formats::WeightFile> open();

}  // namespace llorch::builtin_model
