#include "compute/cuda/split_product.cuh"

namespace llorch::compute::cuda {

void launch_product_f16(const ProductArgs& args, const Queue& queue) {
  launch_product_of<HalfTile>(args, queue);
}

}  // namespace llorch::compute::cuda
