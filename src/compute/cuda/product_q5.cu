#include "compute/cuda/split_product.cuh"

namespace llorch::compute::cuda {

void launch_product_q5(const ProductArgs& args, const Queue& queue) {
  launch_product_of<AffineTile<5>>(args, queue);
}

}  // namespace llorch::compute::cuda
