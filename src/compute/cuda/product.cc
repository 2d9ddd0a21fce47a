#include "base/check.h"
#include "compute/cuda/products.h"

namespace llorch::compute::cuda {

void launch_product(const ProductArgs& args, const Queue& queue) {
  const PackedForm form = args.parts[0].form;
  if (const PackedForm last = args.parts[args.num_parts - 1].form; last != form) {
    CHECK(are_mixed(form, last) && args.block_bits == 0);
    return form == PackedForm::Q4 ? launch_product_q4_and_q6(args, queue)
                                  : launch_product_q5_and_q6(args, queue);
  }
  switch (form) {
    case PackedForm::F16:
      return launch_product_f16(args, queue);
    case PackedForm::Q8:
      return launch_product_q8(args, queue);
    case PackedForm::Q4:
      return launch_product_q4(args, queue);
    case PackedForm::Q5:
      return launch_product_q5(args, queue);
    case PackedForm::Q6:
      return launch_product_q6(args, queue);
    case PackedForm::None:
      break;
  }
  CHECK(false, "a product of weights that are not packed");
}

}  // namespace llorch::compute::cuda
