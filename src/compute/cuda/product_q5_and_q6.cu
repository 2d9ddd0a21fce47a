#include "compute/cuda/narrow_product.cuh"

namespace llorch::compute::cuda {

void launch_product_q5_and_q6(const ProductArgs& args, const Queue& queue) {
  launch_narrow_chosen<Mixed<AffineTile<5>, Q6Tile>>(args, queue);
}

}  // namespace llorch::compute::cuda
