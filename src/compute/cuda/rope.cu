// Rotary positions, in place.
#include "compute/cuda/angles.cuh"
#include "compute/cuda/indexing.cuh"
#include "compute/cuda/kernels.h"
#include "compute/cuda/launch.cuh"

namespace llorch::compute::cuda {
namespace {

struct Rotation {
  float* x;  // (rows, heads, head_dim)
  std::int64_t x_stride;
  const float* angles;  // (rows, 2 * pairs)
  std::int64_t angle_stride;
  std::int64_t pairs;
  std::int64_t rows;
  std::int64_t heads;
  std::int64_t head_dim;
  RopeStyle style;
};

// One thread per row and frequency.
__global__ void rope_angles_kernel(Angles args) {
  after_previous();
  const std::int64_t index = global_thread();
  if (index >= args.rows * args.pairs) return;
  put_angle(args, index / args.pairs, index % args.pairs);
}

// One thread per row and pair turns that pair of every head.
__global__ void rope_kernel(Rotation args) {
  after_previous();
  const std::int64_t index = global_thread();
  if (index >= args.rows * args.pairs) return;
  const std::int64_t row = index / args.pairs;
  const std::int64_t i = index % args.pairs;
  const float cosine = args.angles[row * args.angle_stride + i];
  const float sine = args.angles[row * args.angle_stride + args.pairs + i];
  const RopePair pair = rope_pair(args.style, i, args.pairs);
  for (std::int64_t head = 0; head < args.heads; ++head) {
    float* x = args.x + row * args.x_stride + head * args.head_dim;
    const float a = x[pair.first];
    const float b = x[pair.second];
    x[pair.first] = a * cosine - b * sine;
    x[pair.second] = a * sine + b * cosine;
  }
}

}  // namespace

void launch_rope_angles(const RopeAnglesArgs& args, const Queue& queue) {
  const Angles angles = angles_of(args);
  launch("rope_angles", rope_angles_kernel, queue,
         ceil_div(angles.rows * angles.pairs, kBlockThreads), 1, kBlockThreads, angles);
}

void launch_rope(const RopeArgs& args, const Queue& queue) {
  const Rotation rotation{
      .x = static_cast<float*>(args.x.data),
      .x_stride = args.x.row_stride,
      .angles = static_cast<const float*>(args.angles.data),
      .angle_stride = args.angles.row_stride,
      .pairs = args.angles.dims[1] / 2,
      .rows = args.x.rows(),
      .heads = args.x.dims[1],
      .head_dim = args.x.dims[2],
      .style = args.style,
  };
  launch("rope", rope_kernel, queue, ceil_div(rotation.rows * rotation.pairs, kBlockThreads), 1,
         kBlockThreads, rotation);
}

}  // namespace llorch::compute::cuda
