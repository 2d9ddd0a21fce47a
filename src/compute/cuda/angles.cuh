// The angles of rotation of a step's rows.
#pragma once

#include "compute/cuda/launch.cuh"
#include "compute/ops.h"

namespace llorch::compute::cuda {

struct Angles {
  const std::int32_t* positions;  // (rows)
  const float* frequencies;       // (pairs)
  float magnitude;
  std::int64_t rows;
  std::int64_t pairs;
  float* out;  // (rows, 2 * pairs)
  std::int64_t out_stride;
};

inline Angles angles_of(const RopeAnglesArgs& args) {
  return {
      .positions = static_cast<const std::int32_t*>(args.positions.data),
      .frequencies = static_cast<const float*>(args.frequencies.data),
      .magnitude = args.magnitude,
      .rows = args.out.rows(),
      .pairs = args.frequencies.dims[0],
      .out = static_cast<float*>(args.out.data),
      .out_stride = args.out.row_stride,
  };
}

// Frequency i of a row.
__device__ inline void put_angle(const Angles& args, std::int64_t row, std::int64_t i) {
  double sine = 0;
  double cosine = 0;
  sincos(static_cast<double>(args.positions[row]) * static_cast<double>(args.frequencies[i]), &sine,
         &cosine);
  float* out = args.out + row * args.out_stride + i;
  out[0] = static_cast<float>(cosine * static_cast<double>(args.magnitude));
  out[args.pairs] = static_cast<float>(sine * static_cast<double>(args.magnitude));
}

}  // namespace llorch::compute::cuda
