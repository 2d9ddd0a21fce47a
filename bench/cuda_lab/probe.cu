// Do mma.sync and wgmma give the same bits for the same order of sums? And what do a read, a launch
// inside a graph and a product cost on this card? Prints one line per question.
#include <cstring>

#include "compute/cuda/tensor_core.cuh"
#include "lab.cuh"

namespace lab {
namespace {

using namespace llorch::compute::cuda;  // the instructions as the backend uses them

constexpr int kOutputs = 64;  // one warpgroup
constexpr int kDepth = 256;   // sixteen k16 steps, one slice

// a (64 x 256) row by row, b (N x 256) row by row, c (64 x N).
__device__ void load_a(std::uint32_t (&r)[4], const __half* a, int step) {
  const int lane = threadIdx.x % 32;
  const int g = lane / 4;
  const int t = lane % 4;
  const auto* rows = a + (threadIdx.x / 32 * 16) * kDepth + step * 16;
  for (int i = 0; i < 4; ++i)
    std::memcpy(&r[i], rows + (g + i % 2 * 8) * kDepth + 2 * t + i / 2 * 8, 4);
}

__global__ void by_mma(const __half* a, const __half* b, float* c, int n, int steps) {
  const int lane = threadIdx.x % 32;
  const int g = lane / 4;
  const int t = lane % 4;
  for (int column = 0; column < n; column += 8) {
    float d[4] = {};
    for (int step = 0; step < steps; ++step) {
      std::uint32_t fragment[4];
      load_a(fragment, a, step);
      std::uint32_t low = 0;
      std::uint32_t high = 0;
      const auto* row = b + (column + g) * kDepth + step * 16 + 2 * t;
      std::memcpy(&low, row, 4);
      std::memcpy(&high, row + 8, 4);
      mma16816(d, fragment, low, high);
    }
    for (int i = 0; i < 4; ++i)
      c[(threadIdx.x / 32 * 16 + g + i / 2 * 8) * n + column + 2 * t + i % 2] = d[i];
  }
}

// The roles exchanged: rows of b are the wide operand.
__global__ void by_mma_swapped(const __half* a, const __half* b, float* c, int n, int steps) {
  const int lane = threadIdx.x % 32;
  const int g = lane / 4;
  const int t = lane % 4;
  for (int block = threadIdx.x / 32 * 16; block < n; block += 64) {
    for (int column = 0; column < kOutputs; column += 8) {
      float d[4] = {};
      for (int step = 0; step < steps; ++step) {
        std::uint32_t fragment[4];
        for (int i = 0; i < 4; ++i)
          std::memcpy(&fragment[i],
                      b + (block + g + i % 2 * 8) * kDepth + step * 16 + 2 * t + i / 2 * 8, 4);
        std::uint32_t low = 0;
        std::uint32_t high = 0;
        const auto* row = a + (column + g) * kDepth + step * 16 + 2 * t;
        std::memcpy(&low, row, 4);
        std::memcpy(&high, row + 8, 4);
        mma16816(d, fragment, low, high);
      }
      for (int i = 0; i < 4; ++i) c[(column + 2 * t + i % 2) * n + block + g + i / 2 * 8] = d[i];
    }
  }
}

template <int N>
__global__ void by_wgmma(const __half* a, const __half* b, float* c, int steps, int exchange) {
#ifdef LLORCH_HAS_WGMMA
  extern __shared__ __align__(128) unsigned char memory[];
  auto* tile = reinterpret_cast<__half*>(memory);
  for (int i = threadIdx.x; i < N * kDepth; i += blockDim.x) {
    const int row = i / kDepth;
    const int k = i % kDepth;
    tile[(k / 8 * N + row) * 8 + k % 8] = b[i];
  }
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  float d[N / 2];
  for (int step = 0; step < steps; ++step) {
    std::uint32_t fragment[4];
    load_a(fragment, a, step);
    const void* at = tile + step * 2 * N * 8;
    const std::uint64_t b_tile =
        exchange != 0 ? operand(at, 128, N * 16) : operand(at, N * 16, 128);
    wgmma_fence();
    wgmma<N>(d, fragment, b_tile, step > 0 ? 1 : 0);
    wgmma_commit();
    wgmma_wait();
    wgmma_touch(d);
  }
  const int lane = threadIdx.x % 32;
  for (int i = 0; i < N / 2; ++i) {
    const int row = threadIdx.x / 32 * 16 + lane / 4 + i % 4 / 2 * 8;
    c[row * N + i / 4 * 8 + lane % 4 * 2 + i % 2] = d[i];
  }
#endif
}

// Values that make roundings show: kinds 0 plain, 1 exponents all over, 2 cancelling pairs,
// 3 subnormal and tiny, 4 zeros of both signs among plain ones.
float draw(Random& random, int kind, int k, float& last) {
  switch (kind) {
    case 1:
      return std::ldexp(random.normal(), static_cast<int>(random.bits() % 17) - 10);
    case 2:
      last = k % 2 == 0 ? random.normal() * 8 : -last + random.normal() * 1e-2F;
      return last;
    case 3:
      return random.normal() * (random.bits() % 2 == 0 ? 3e-7F : 2e-5F);
    case 4:
      return random.bits() % 3 == 0 ? (random.bits() % 2 == 0 ? 0.0F : -0.0F) : random.normal();
    default:
      return random.normal();
  }
}

std::vector<__half> draw_all(int rows, int kind, std::uint64_t seed) {
  Random random(seed);
  float last = 0;
  std::vector<__half> out;
  for (int i = 0; i < rows * kDepth; ++i)
    out.push_back(static_cast<__half>(draw(random, kind, i, last)));
  return out;
}

int differing(const std::vector<float>& x, const std::vector<float>& y) {
  int count = 0;
  for (std::size_t i = 0; i < x.size(); ++i) count += std::memcmp(&x[i], &y[i], 4) != 0 ? 1 : 0;
  return count;
}

int g_exchange = 0;

template <int N>
std::vector<float> run_wgmma(const Array<__half>& a, const Array<__half>& b, int steps) {
  Array<float> c(kOutputs * N);
  c.poison();
  LAB_CHECK(cudaFuncSetAttribute(by_wgmma<N>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 N * kDepth * 2));
  by_wgmma<N><<<1, 128, N * kDepth * 2>>>(a.data(), b.data(), c.data(), steps, g_exchange);
  LAB_CHECK(cudaDeviceSynchronize());
  return c.host();
}

template <int N>
void compare() {
  for (int kind = 0; kind < 5; ++kind) {
    for (const int steps : {1, 2, 16}) {
      int by_form = 0;
      int by_role = 0;
      int by_order = 0;
      int total = 0;
      double worst = 0;
      for (int round = 0; round < 16; ++round) {
        const auto a = draw_all(kOutputs, kind, 100 * kind + round + 1);
        const auto b = draw_all(N, kind, 7777 + 100 * kind + round);
        const Array<__half> da(a);
        const Array<__half> db(b);
        Array<float> c(kOutputs * N);
        c.poison();
        by_mma<<<1, 128>>>(da.data(), db.data(), c.data(), N, steps);
        LAB_CHECK(cudaDeviceSynchronize());
        const std::vector<float> plain = c.host();
        by_form += differing(plain, run_wgmma<N>(da, db, steps));
        c.poison();
        by_mma_swapped<<<1, 128>>>(da.data(), db.data(), c.data(), N, steps);
        LAB_CHECK(cudaDeviceSynchronize());
        by_role += differing(plain, c.host());
        // k in another order within each group of 16.
        const auto shuffled = [](const std::vector<__half>& x) {
          std::vector<__half> y(x.size());
          for (std::size_t i = 0; i < x.size(); ++i) y[i / 16 * 16 + (i % 16 * 7 + 3) % 16] = x[i];
          return y;
        };
        const Array<__half> sa(shuffled(a));
        const Array<__half> sb(shuffled(b));
        c.poison();
        by_mma<<<1, 128>>>(sa.data(), sb.data(), c.data(), N, steps);
        LAB_CHECK(cudaDeviceSynchronize());
        by_order += differing(plain, c.host());
        total += kOutputs * N;
        for (int o = 0; o < kOutputs; ++o) {
          double largest = 0;
          double error = 0;
          for (int n = 0; n < N; ++n) {
            double sum = 0;
            for (int k = 0; k < steps * 16; ++k)
              sum += static_cast<double>(static_cast<float>(a[o * kDepth + k])) *
                     static_cast<double>(static_cast<float>(b[n * kDepth + k]));
            largest = std::max(largest, std::abs(sum));
            error = std::max(error, std::abs(sum - plain[o * N + n]));
          }
          if (largest > 0) worst = std::max(worst, error / largest);
        }
      }
      std::printf(
          "bits n%-3d kind %d steps %2d: of %d, wgmma differs %d, roles exchanged %d, order "
          "in "
          "k16 %d; error %.1e\n",
          N, kind, steps, total, by_form, by_role, by_order, worst);
    }
  }
}

// One row of b in every column of every width: the same bits everywhere?
void columns() {
  const auto a = draw_all(kOutputs, 1, 5);
  const auto one = draw_all(1, 1, 6);
  auto b = draw_all(128, 1, 7);
  int differ = 0;
  int looked = 0;
  std::vector<float> expected;
  for (int column = 0; column < 128; ++column) {
    auto placed = b;
    std::copy(one.begin(), one.end(), placed.begin() + column * kDepth);
    const Array<__half> da(a);
    const Array<__half> db(placed);
    const auto check = [&](const std::vector<float>& c, int n, int at) {
      std::vector<float> found;
      for (int o = 0; o < kOutputs; ++o) found.push_back(c[o * n + at]);
      if (expected.empty()) expected = found;
      differ += differing(expected, found);
      looked += kOutputs;
    };
    check(run_wgmma<128>(da, db, 16), 128, column);
    if (column < 64) check(run_wgmma<64>(da, db, 16), 64, column);
    Array<float> c(kOutputs * 128);
    by_mma<<<1, 128>>>(da.data(), db.data(), c.data(), 128, 16);
    check(c.host(), 128, column);
  }
  std::printf("columns: %d of %d differ over all columns of n64, n128 and mma.sync\n", differ,
              looked);
}

// Which of a descriptor's two strides runs along k: small whole numbers are exact, so the right one
// agrees with mma.sync.
void find_descriptor() {
  std::vector<__half> a(kOutputs * kDepth);
  std::vector<__half> b(64 * kDepth);
  Random random(1);
  for (auto& v : a) v = static_cast<float>(random.bits() % 9) - 4;
  for (auto& v : b) v = static_cast<float>(random.bits() % 9) - 4;
  const Array<__half> da(a);
  const Array<__half> db(b);
  Array<float> c(kOutputs * 64);
  by_mma<<<1, 128>>>(da.data(), db.data(), c.data(), 64, 16);
  const std::vector<float> expected = c.host();
  for (g_exchange = 0; g_exchange < 2; ++g_exchange) {
    const int wrong = differing(expected, run_wgmma<64>(da, db, 16));
    std::printf("descriptor with strides %s: %d of 4096 differ\n",
                g_exchange != 0 ? "exchanged" : "k first", wrong);
    if (wrong == 0) return;
  }
  g_exchange = 0;
}

__global__ void read_kernel(const uint4* data, std::size_t count, std::uint32_t* out) {
  std::uint32_t sum = 0;
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  std::size_t i = blockIdx.x * static_cast<std::size_t>(blockDim.x) + threadIdx.x;
  for (; i + 7 * step < count; i += 8 * step) {
    uint4 v[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] = load_once(data + i + j * step);
#pragma unroll
    for (int j = 0; j < 8; ++j) sum ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
  }
  if (sum == 0x12345678U) *out = sum;
}

__global__ void chain_kernel(float* x) {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  if (threadIdx.x == 0) x[blockIdx.x] += 1.0F;
}

template <int N>
__global__ void wgmma_rate(float* out, int rounds) {
#ifdef LLORCH_HAS_WGMMA
  extern __shared__ __align__(128) unsigned char memory[];
  for (int i = threadIdx.x; i < N * 64; i += blockDim.x)
    reinterpret_cast<std::uint32_t*>(memory)[i % (N * 32)] = i * 2654435761U & 0x2BFF2BFFU;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  float d[N / 2] = {};
  std::uint32_t fragment[4];
  for (int i = 0; i < 4; ++i) fragment[i] = (threadIdx.x * 40503U * (i + 3)) & 0x2BFF2BFFU;
  for (int r = 0; r < rounds; ++r) {
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i)
      wgmma<N>(d, fragment, operand(memory + i * 2 * N * 16, N * 16, 128), 1);
    wgmma_commit();
    wgmma_wait();
    wgmma_touch(d);
  }
  float sum = 0;
  for (int i = 0; i < N / 2; ++i) sum += d[i];
  if (sum == 1.2345F) *out = sum;
#endif
}

__global__ void mma_rate(float* out, int rounds) {
  float d[16][4] = {};
  std::uint32_t a[4];
  for (int i = 0; i < 4; ++i) a[i] = (threadIdx.x * 40503U * (i + 3)) & 0x2BFF2BFFU;
  for (int r = 0; r < rounds; ++r) {
#pragma unroll
    for (int i = 0; i < 16; ++i) mma16816(d[i], a, a[0] + i, a[1] ^ i);
  }
  float sum = 0;
  for (const auto& row : d)
    for (const float v : row) sum += v;
  if (sum == 1.2345F) *out = sum;
}

void rates() {
  constexpr std::size_t kBytes = std::size_t{4} << 30;
  Array<std::uint32_t> from(kBytes / 4);
  Array<std::uint32_t> to(kBytes / 4);
  scramble(from.data(), kBytes, 3);
  const double copy = time_graph([&](cudaStream_t stream) {
    LAB_CHECK(cudaMemcpyAsync(to.data(), from.data(), kBytes, cudaMemcpyDeviceToDevice, stream));
  });
  std::printf("copy: %.2f TB/s read and written\n", 2.0 * kBytes / copy * 1e-12);
  for (const int blocks : {132 * 4, 132 * 8}) {
    const double read = time_graph([&](cudaStream_t stream) {
      read_kernel<<<blocks, 256, 0, stream>>>(reinterpret_cast<uint4*>(from.data()), kBytes / 16,
                                              to.data());
    });
    std::printf("read, %d blocks: %.2f TB/s\n", blocks, kBytes / read * 1e-12);
  }
  Array<float> x(1024);
  for (const int blocks : {1, 132, 528}) {
    for (const bool dependent : {false, true}) {
      constexpr int kKernels = 200;
      const double time = time_graph([&](cudaStream_t stream) {
        for (int i = 0; i < kKernels; ++i)
          launch(chain_kernel, dim3(blocks), 256, stream, dependent, x.data());
      });
      std::printf("a kernel of %d blocks in a graph%s: %.2f us\n", blocks,
                  dependent ? ", programmatic edge" : "", time / kKernels * 1e6);
    }
  }
  constexpr int kRounds = 2000;
  const auto rate = [&](const char* name, double flops, const auto& enqueue) {
    std::printf("%s: %.0f TFLOP/s\n", name, flops / time_graph(enqueue, 5) * 1e-12);
  };
  LAB_CHECK(cudaFuncSetAttribute(wgmma_rate<128>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 64 * 1024));
  rate("wgmma m64n128k16, a in registers, 2 warpgroups",
       132.0 * 2 * kRounds * 4 * 2 * 64 * 128 * 16, [&](cudaStream_t stream) {
         wgmma_rate<128><<<132, 256, 64 * 1024, stream>>>(x.data(), kRounds);
       });
  rate("wgmma m64n64k16, a in registers, 2 warpgroups", 132.0 * 2 * kRounds * 4 * 2 * 64 * 64 * 16,
       [&](cudaStream_t stream) {
         wgmma_rate<64><<<132, 256, 32 * 1024, stream>>>(x.data(), kRounds);
       });
  rate("mma.sync m16n8k16, 8 warps", 132.0 * 8 * kRounds * 16 * 2 * 16 * 8 * 16,
       [&](cudaStream_t stream) { mma_rate<<<132, 256, 0, stream>>>(x.data(), kRounds); });
  rate("mma.sync m16n8k16, 16 warps", 132.0 * 16 * kRounds * 16 * 2 * 16 * 8 * 16,
       [&](cudaStream_t stream) { mma_rate<<<132, 512, 0, stream>>>(x.data(), kRounds); });
}

}  // namespace
}  // namespace lab

int main() {
  lab::find_descriptor();
  lab::compare<64>();
  lab::compare<128>();
  lab::columns();
  lab::rates();
  return 0;
}
