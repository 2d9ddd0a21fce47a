// Layer norm, RMS norm, softmax and argmax: one block per row, which passes over it up to three
// times.
#include "compute/cuda/kernels.h"
#include "compute/cuda/reduce.cuh"

namespace llorch::compute::cuda {
namespace {

// Where a thread writes values, it alone reads them after the last reduction, so out may be x.
struct Rows {
  const float* x;
  std::int64_t x_stride;
  float* out;
  std::int64_t out_stride;
  std::int64_t dim;
};

Rows rows_of(const TensorView& x, const TensorView& out) {
  return {static_cast<const float*>(x.data), x.row_stride, static_cast<float*>(out.data),
          out.row_stride, x.dims[1]};
}

__global__ void layer_norm_kernel(Rows rows, const float* weight, const float* bias,
                                  float epsilon) {
  const float* x = rows.x + blockIdx.x * rows.x_stride;
  float* out = rows.out + blockIdx.x * rows.out_stride;
  const auto dim = static_cast<float>(rows.dim);
  float sum = 0;
  for (std::int64_t i = threadIdx.x; i < rows.dim; i += kBlockThreads) sum += x[i];
  const float mean = block_sum<kBlockThreads>(sum) / dim;
  float squares = 0;
  for (std::int64_t i = threadIdx.x; i < rows.dim; i += kBlockThreads) {
    const float centred = x[i] - mean;
    squares = fmaf(centred, centred, squares);
  }
  const float variance = block_sum<kBlockThreads>(squares) / dim;
  const float root = sqrtf(variance + epsilon);
  for (std::int64_t i = threadIdx.x; i < rows.dim; i += kBlockThreads) {
    out[i] = fmaf((x[i] - mean) / root, weight[i], bias != nullptr ? bias[i] : 0.0F);
  }
}

// One block per head of a row; without heads, per row.
__global__ void rms_norm_kernel(Rows rows, const float* weight, float epsilon, bool accumulate) {
  const float* x = rows.x + blockIdx.x * rows.x_stride + blockIdx.y * rows.dim;
  float* out = rows.out + blockIdx.x * rows.out_stride + blockIdx.y * rows.dim;
  float squares = 0;
  for (std::int64_t i = threadIdx.x; i < rows.dim; i += kBlockThreads) {
    squares = fmaf(x[i], x[i], squares);
  }
  const float mean = block_sum<kBlockThreads>(squares) / static_cast<float>(rows.dim);
  const float root = sqrtf(mean + epsilon);
  for (std::int64_t i = threadIdx.x; i < rows.dim; i += kBlockThreads) {
    const float value = x[i] / root * weight[i];
    out[i] = accumulate ? out[i] + value : value;
  }
}

__global__ void softmax_kernel(Rows rows) {
  const float* x = rows.x + blockIdx.x * rows.x_stride;
  float* out = rows.out + blockIdx.x * rows.out_stride;
  float largest = -INFINITY;
  for (std::int64_t i = threadIdx.x; i < rows.dim; i += kBlockThreads) {
    largest = fmaxf(largest, x[i]);
  }
  largest = block_max<kBlockThreads>(largest);
  float sum = 0;
  for (std::int64_t i = threadIdx.x; i < rows.dim; i += kBlockThreads) sum += expf(x[i] - largest);
  sum = block_sum<kBlockThreads>(sum);
  for (std::int64_t i = threadIdx.x; i < rows.dim; i += kBlockThreads) {
    out[i] = expf(x[i] - largest) / sum;
  }
}

// Whether (value, place) a comes before b: the larger value, the lower place among equals.
__device__ bool is_better(float a, std::int64_t a_place, float b, std::int64_t b_place) {
  return a > b || (a == b && a_place < b_place);
}

__global__ void argmax_kernel(Rows rows, std::int32_t* out) {
  __shared__ float values[kBlockThreads];
  __shared__ std::int64_t places[kBlockThreads];
  const float* x = rows.x + blockIdx.x * rows.x_stride;
  const auto thread = static_cast<int>(threadIdx.x);
  float largest = -INFINITY;
  std::int64_t place = rows.dim;
  int is_bad = 0;
  for (std::int64_t i = thread; i < rows.dim; i += kBlockThreads) {
    is_bad |= x[i] < INFINITY ? 0 : 1;
    if (x[i] > largest) {
      largest = x[i];
      place = i;
    }
  }
  values[thread] = largest;
  places[thread] = place;
  is_bad = __syncthreads_or(is_bad);
  for (int half = kBlockThreads / 2; half > 0; half /= 2) {
    if (thread < half &&
        is_better(values[thread + half], places[thread + half], values[thread], places[thread])) {
      values[thread] = values[thread + half];
      places[thread] = places[thread + half];
    }
    __syncthreads();
  }
  if (thread != 0) return;
  out[blockIdx.x] =
      is_bad != 0 || values[0] == -INFINITY ? -1 : static_cast<std::int32_t>(places[0]);
}

}  // namespace

void launch_layer_norm(const LayerNormArgs& args, cudaStream_t stream) {
  launch("layer_norm", layer_norm_kernel, stream, args.x.rows(), 1, kBlockThreads,
         rows_of(args.x, args.out), static_cast<const float*>(args.weight.data),
         static_cast<const float*>(args.bias.data), args.epsilon);
}

void launch_rms_norm(const RmsNormArgs& args, cudaStream_t stream) {
  Rows rows = rows_of(args.x, args.out);
  rows.dim = args.x.dims[args.x.rank - 1];
  launch("rms_norm", rms_norm_kernel, stream, args.x.rows(), args.x.row_elements() / rows.dim,
         kBlockThreads, rows, static_cast<const float*>(args.weight.data), args.epsilon,
         args.accumulate);
}

void launch_softmax(const SoftmaxArgs& args, cudaStream_t stream) {
  launch("softmax", softmax_kernel, stream, args.x.rows(), 1, kBlockThreads,
         rows_of(args.x, args.out));
}

void launch_argmax(const ArgmaxArgs& args, cudaStream_t stream) {
  launch("argmax", argmax_kernel, stream, args.x.rows(), 1, kBlockThreads, rows_of(args.x, args.x),
         static_cast<std::int32_t*>(args.out.data));
}

cudaError_t probe_kernels() {
  cudaFuncAttributes ignored{};
  return cudaFuncGetAttributes(&ignored, reinterpret_cast<const void*>(rms_norm_kernel));
}

}  // namespace llorch::compute::cuda
