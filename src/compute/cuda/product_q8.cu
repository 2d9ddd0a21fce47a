#include "compute/cuda/split_product.cuh"

namespace llorch::compute::cuda {

void launch_product_q8(const ProductArgs& args, const Queue& queue) {
  launch_product_of<Q8Tile>(args, queue);
}

}  // namespace llorch::compute::cuda
