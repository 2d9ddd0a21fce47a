// Tiles with AVX2 and the dot products of bytes that came to it later (AVX-VNNI: processors without
// AVX-512 since 2021). Plain numbers as with AVX2. Compiled for that set; it holds nothing that
// another file could be given by the linker.
#include "compute/cpu/packed.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

#include "compute/cpu/packed_avx2_inl.h"

namespace llorch::compute {
namespace {

bool has_dots() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  constexpr unsigned kAvxVnni = 1U << 4;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & kAvxVnni) != 0;
}

std::int64_t spin_int8(std::int64_t rounds) {
  const __m256i ones = _mm256_set1_epi8(1);
  const auto add = [ones](__m256i sum) __attribute__((always_inline)) {
    return _mm256_dpbusd_avx_epi32(sum, ones, ones);
  };
  return spin<12>(rounds, _mm256_setzero_si256(), add) * 32 * 2;
}

PackedKernels make_kernels(const PackedKernels& avx2) {
  PackedKernels kernels = avx2;
  TileTables<HalfTiles<true>, HalfTileRows>::fill_quants(kernels);
  kernels.loops.int8 = spin_int8;
  return kernels;
}

}  // namespace

const PackedKernels* packed_avxvnni() {
  const PackedKernels* avx2 = packed_avx2();
  if (avx2 == nullptr || !has_dots()) return nullptr;
  static const PackedKernels kernels = make_kernels(*avx2);
  return &kernels;
}

}  // namespace llorch::compute

#else

namespace llorch::compute {
const PackedKernels* packed_avxvnni() {
  return nullptr;
}
}  // namespace llorch::compute

#endif
