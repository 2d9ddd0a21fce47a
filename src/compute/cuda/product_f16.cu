#include "compute/cuda/wide_product.cuh"

namespace llorch::compute::cuda {

void launch_product_f16(const ProductArgs& args, const Queue& queue) {
  launch_product_of<PlainTile<MmaF16>>(args, queue);
}

}  // namespace llorch::compute::cuda
