// Any bytes as a whole file: an error, or tensors whose every byte can be read.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "formats/pytorch_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace llorch;
  constexpr std::int64_t kGatherElementsMax = 1 << 16;
  const Result<formats::WeightFile> weights =
      formats::parse_pytorch(std::as_bytes(std::span(data, size)));
  if (!weights.ok()) {
    CHECK(!weights.error().message.empty());
    return 0;
  }
  for (const formats::WeightTensor& tensor : weights->tensors()) {
    if (tensor.shape.elements() > kGatherElementsMax) continue;
    const auto bytes = tensor::storage_bytes(tensor.dtype, tensor.shape.elements());
    CHECK(bytes && formats::gather_contiguous(tensor).size() == static_cast<std::size_t>(*bytes));
  }
  return 0;
}
