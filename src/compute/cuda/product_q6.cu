#include "compute/cuda/split_product.cuh"

namespace llorch::compute::cuda {

void launch_product_q6(const ProductArgs& args, const Queue& queue) {
  launch_product_of<Q6Tile>(args, queue);
}

}  // namespace llorch::compute::cuda
