// One GGUF file's bytes, parsed and checked. Private to formats/: gguf_reader.h is the way in.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/result.h"
#include "formats/metadata.h"
#include "formats/weight_file.h"

namespace llorch::formats {

struct GgufImage {
  Metadata metadata;
  std::vector<WeightTensor> tensors;  // in file order; a name may still appear twice
};

// Walks the header once. Arrays and tensors of the result are views of `image`; tensor bytes are
// not touched.
Result<GgufImage> parse_gguf_image(std::span<const std::byte> image);

}  // namespace llorch::formats
