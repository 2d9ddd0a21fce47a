#include "compute/cuda/product_plan.h"

#include <algorithm>

#include "base/check.h"

namespace llorch::compute::cuda {
namespace {

// Whether target `next` can be in one launch with those before it: of the same form, or behind
// them as the second form of a mixture.
bool goes_along(std::span<const LinearTarget> targets, std::size_t next, std::int64_t rows,
                const TensorCores& cores) {
  const PackedForm first = form_of(targets.front(), cores);
  const PackedForm before = form_of(targets[next - 1], cores);
  const PackedForm form = form_of(targets[next], cores);
  if (form == first) return before == first;
  if (!are_mixed(first, form) || (before != first && before != form)) return false;
  return block_bits_for(rows, cores.wgmma) == 0 &&
         std::ranges::all_of(targets.first(next + 1), [](const LinearTarget& target) {
           return target.weight->rows % kMixedOutputs == 0;
         });
}

}  // namespace

PackedForm form_of(const LinearTarget& target, const TensorCores& cores) {
  const Weight& weight = *target.weight;
  return place_weight(weight.dtype, weight.use, weight.rows, weight.cols, cores.mma).form;
}

bool norms_inside(const NormLinearArgs& args, const TensorCores& cores) {
  std::int64_t tiles = 0;
  for (const LinearTarget& target : args.targets) {
    if (form_of(target, cores) == PackedForm::None) return false;
    tiles += target.weight->rows / kTileOutputs;
  }
  return args.norm.kind == NormKind::RmsNorm && norms_inside(args.x.rows(), args.x.dims[1], tiles);
}

bool gates_inside(const MlpInArgs& args, const TensorCores& cores) {
  const std::span<const LinearTarget> targets = args.product.targets;
  return args.gated && targets.size() == 2 && form_of(targets[0], cores) != PackedForm::None &&
         form_of(targets[0], cores) == form_of(targets[1], cores) &&
         targets[0].weight->rows == targets[1].weight->rows &&
         block_bits_for(args.out.rows(), cores.wgmma) == 0 && args.out.rows() > 0;
}

std::optional<HeadPlaces> find_places(const ProjectHeadsArgs& args, const TensorCores& cores) {
  const std::int64_t rows = args.heads.q.rows();
  if (rows == 0 || block_bits_for(rows, cores.wgmma) != 0) return std::nullopt;
  for (const LinearTarget& target : args.product.targets) {
    if (form_of(target, cores) == PackedForm::None) return std::nullopt;
  }
  return find_head_places(args);
}

std::size_t count_together(std::span<const LinearTarget> targets, std::int64_t rows,
                           const TensorCores& cores) {
  std::size_t count = 1;
  while (count < targets.size() && count < kProductPartsMax &&
         goes_along(targets, count, rows, cores))
    ++count;
  return count;
}

ProductArgs plan_outputs(std::span<const LinearTarget> targets, const TensorCores& cores) {
  ProductArgs args;
  for (const LinearTarget& target : targets) {
    CHECK(target.weight->use != WeightUse::LookUp);
    args.parts[args.num_parts++] = {.form = form_of(target, cores),
                                    .weight = static_cast<const std::uint8_t*>(target.weight->data),
                                    .bias = static_cast<const float*>(target.bias.data),
                                    .out = static_cast<float*>(target.out.data),
                                    .out_stride = target.out.row_stride,
                                    .outputs = static_cast<int>(target.weight->rows),
                                    .first_tile = args.output_tiles,
                                    .first_group = args.groups,
                                    .accumulate = target.accumulate};
    args.output_tiles += static_cast<int>((target.weight->rows + kTileOutputs - 1) / kTileOutputs);
    args.groups += static_cast<int>((target.weight->rows + kGroupOutputs - 1) / kGroupOutputs);
  }
  return args;
}

}  // namespace llorch::compute::cuda
