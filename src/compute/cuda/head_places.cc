#include "compute/cuda/head_places.h"

#include "compute/cuda/packed_layout.h"

namespace llorch::compute::cuda {

std::optional<HeadPlaces> find_head_places(const ProjectHeadsArgs& args) {
  const PlaceHeadsArgs& heads = args.heads;
  const std::int64_t head_dim = heads.q.dims[2];
  const tensor::DType cache = heads.cache.keys.dtype;
  if (heads.q_norm || heads.k_norm || head_dim % (2 * kTileOutputs) != 0) return std::nullopt;
  if (heads.angles && heads.angles.dims[1] != head_dim) return std::nullopt;
  if (cache != tensor::DType::F16 && cache != tensor::DType::F32) return std::nullopt;
  for (const LinearTarget& target : args.product.targets) {
    if (target.accumulate || target.weight->rows % head_dim != 0) return std::nullopt;
  }
  return HeadPlaces{
      .slots = static_cast<const std::int32_t*>(heads.slots.data),
      .angles = static_cast<const float*>(heads.angles.data),
      .angle_stride = heads.angles.row_stride,
      .keys = heads.cache.keys.data,
      .values = heads.cache.values.data,
      .has_halves = cache == tensor::DType::F16,
      .key_shape = cache_shape(heads.cache.keys),
      .value_shape = cache_shape(heads.cache.values),
      .q_outputs = static_cast<int>(heads.q.row_elements()),
      .kv_outputs = static_cast<int>(heads.k.row_elements()),
      .head_dim = static_cast<int>(head_dim),
      .turns_halves = heads.angles && heads.style == RopeStyle::Half,
  };
}

}  // namespace llorch::compute::cuda
