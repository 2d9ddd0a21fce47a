#include "compute/cuda/split_product.cuh"

namespace llorch::compute::cuda {

void launch_product_q4(const ProductArgs& args, const Queue& queue) {
  launch_product_of<AffineTile<4>>(args, queue);
}

}  // namespace llorch::compute::cuda
