#include "compute/cuda/wide_product.cuh"

namespace llorch::compute::cuda {

void launch_product_bf16(const ProductArgs& args, const Queue& queue) {
  launch_product_of<PlainTile<MmaBF16>>(args, queue);
}

}  // namespace llorch::compute::cuda
