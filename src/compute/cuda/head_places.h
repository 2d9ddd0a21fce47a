// Where the outputs of a product go that are queries, keys and values: what place_heads does, done
// by the product itself.
#pragma once

#include <optional>

#include "compute/cuda/indexing.cuh"
#include "compute/ops.h"

namespace llorch::compute::cuda {

struct HeadPlaces {
  const std::int32_t* slots = nullptr;  // (rows); null: the outputs are no heads
  const float* angles = nullptr;        // (rows, 2 · pairs), or null: nothing turns
  std::int64_t angle_stride = 0;
  void* keys = nullptr;
  void* values = nullptr;
  bool has_halves = false;  // in the cache, else floats
  CacheShape key_shape;
  CacheShape value_shape;
  int q_outputs = 0;  // of all query heads; then come those of the keys, then the values
  int kv_outputs = 0;
  int head_dim = 0;
  int first_output = 0;       // of the product, among those
  bool turns_halves = false;  // value i with i + head_dim / 2, else with its neighbour
};

// Nothing where a kernel of its own has to do it: norms of heads, a rotation of a part of each
// head, a cache of blocks, heads that are no whole tiles.
std::optional<HeadPlaces> find_head_places(const ProjectHeadsArgs& args);

}  // namespace llorch::compute::cuda
