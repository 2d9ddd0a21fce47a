// The instructions that products and attention are made of: tensor cores, bulk copies and their
// barriers, and the edges between kernels. Which device has what: mma.sync and asynchronous copies
// sm_80, wgmma and bulk copies sm_90a alone.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define LLORCH_HAS_WGMMA 1
#endif

namespace llorch::compute::cuda {

// d (16 x 8) += a (16 x 16) · b (16 x 8). A lane (g = lane / 4, t = lane % 4) holds of a: rows g,
// g + 8 in turn at columns 2t, 2t + 1, then both again at 2t + 8, 2t + 9; of b: column g at the
// same k; of d: rows g, g, g + 8, g + 8 at columns 2t, 2t + 1.
__device__ inline void mma16816(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                std::uint32_t b1) {
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  __trap();
#endif
}

#ifdef LLORCH_HAS_WGMMA
#define LLORCH_WGMMA_N64                                                                           \
  asm volatile(                                                                                    \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"                                                 \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16"                                         \
      " {"                                                                                         \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "      \
      "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"                            \
      "}, {%32, %33, %34, %35}, %36, p, 1, 1, 0;\n}\n"                                             \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),        \
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),    \
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), \
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), \
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])                                         \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add))

#define LLORCH_WGMMA_N128                                                                          \
  asm volatile(                                                                                    \
      "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"                                                 \
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16"                                        \
      " {"                                                                                         \
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "      \
      "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "      \
      "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, "      \
      "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"                                      \
      "}, {%64, %65, %66, %67}, %68, p, 1, 1, 0;\n}\n"                                             \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),        \
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),    \
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), \
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), \
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), \
        "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), \
        "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), \
        "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), \
        "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), \
        "+f"(d[63])                                                                                \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add))

// d (64 x N) = a (64 x 16) · b (16 x N), plus d where `add` is not zero. Each of a warpgroup's four
// warps holds 16 rows, as in mma16816; b is a descriptor of shared memory.
template <int N>
__device__ inline void wgmma(float (&d)[N / 2], const std::uint32_t (&a)[4], std::uint64_t b,
                             int add) {
  static_assert(N == 64 || N == 128);
  if constexpr (N == 64) LLORCH_WGMMA_N64;
  if constexpr (N == 128) LLORCH_WGMMA_N128;
}
#undef LLORCH_WGMMA_N64
#undef LLORCH_WGMMA_N128

__device__ inline void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
// Keeps the compiler from moving reads of accumulators above a wait.
template <int Count>
__device__ inline void wgmma_touch(float (&d)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
#endif  // LLORCH_HAS_WGMMA

__device__ inline std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

#ifdef LLORCH_HAS_WGMMA
// Describes an operand without swizzle: pieces of 8 rows x 16 bytes, 128 contiguous bytes each.
// `k_step` bytes lie between pieces that are neighbours along k, `row_step` along rows.
__device__ inline std::uint64_t operand(const void* shared, int k_step, int row_step) {
  const auto field = [](std::uint32_t bytes) {
    return static_cast<std::uint64_t>((bytes >> 4) & 0x3FFF);
  };
  return field(shared_address(shared)) | (field(static_cast<std::uint32_t>(k_step)) << 16) |
         (field(static_cast<std::uint32_t>(row_step)) << 32);
}

// A barrier in shared memory that counts arrivals and the bytes of bulk copies.
__device__ inline void barrier_init(std::uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals));
}
__device__ inline void barrier_expect(std::uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
}
__device__ inline void barrier_arrive(std::uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
// A warp's arrival for what all of its lanes have read, which the arrival of one orders only when
// they have met.
__device__ inline void barrier_arrive_warp(std::uint64_t* barrier, int lane) {
  __syncwarp();
  if (lane == 0) barrier_arrive(barrier);
}
__device__ inline void barrier_wait(std::uint64_t* barrier, int parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\n"
      "mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
      "@!done bra again;\n}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}
__device__ inline void bulk_copy(void* shared, const void* global, int bytes,
                                 std::uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}
#endif  // LLORCH_HAS_WGMMA

// A float of block `rank`'s shared memory, at the place it has in this block's.
__device__ inline float load_remote(const float* shared, int rank) {
#if __CUDA_ARCH__ >= 900
  float value;
  asm volatile(
      "{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %1, %2;\n"
      "ld.shared::cluster.f32 %0, [remote];\n}\n"
      : "=f"(value)
      : "r"(shared_address(shared)), "r"(rank));
  return value;
#else
  __trap();
  return 0;
#endif
}
// All threads of the cluster. Its instructions want whole warps, which a loop before it may have
// parted: half a warp that arrives alone counts as all of it.
__device__ inline void cluster_sync() {
#if __CUDA_ARCH__ >= 900
  __syncwarp();
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
#endif
}

__device__ inline void copy_async16(void* shared, const void* global) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(shared)),
               "l"(global)
               : "memory");
#else
  *static_cast<uint4*>(shared) = *static_cast<const uint4*>(global);
#endif
}
__device__ inline void copy_async_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
template <int Pending>
__device__ inline void copy_async_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
#endif
}

// Four 8 x 8 matrices of 16-bit values, transposed: lane l names row l % 8 of matrix l / 8.
__device__ inline void load_transposed(std::uint32_t (&r)[4], const void* shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(shared)));
}

// (a & b) | c as one instruction.
__device__ inline std::uint32_t and_or(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  std::uint32_t r;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}

// 16 bytes that are read once: no place in the first cache.
__device__ inline uint4 load_once(const void* global) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(global));
  return v;
}

// Four neighbours: one load where they lie well.
__device__ inline float4 load_four(const float* at) {
  if (reinterpret_cast<std::uintptr_t>(at) % sizeof(float4) == 0)
    return *reinterpret_cast<const float4*>(at);
  return make_float4(at[0], at[1], at[2], at[3]);
}

// A float as 16 bits, rounded to nearest; finite values beyond the range of halves become the
// largest of them.
__device__ inline std::uint16_t half_bits(float v) {
  constexpr unsigned kInfinity = 0x7C00;  // the largest is one less
  const unsigned half = __half_as_ushort(__float2half_rn(v));
  const bool is_beyond = (half & 0x7FFFU) == kInfinity && fabsf(v) < INFINITY;
  return static_cast<std::uint16_t>(is_beyond ? half - 1 : half);
}
}  // namespace llorch::compute::cuda
