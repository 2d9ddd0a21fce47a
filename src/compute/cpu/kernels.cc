// Compiles the kernels once per instruction set and lists the tables. Each set's code lives in a
// namespace and under a target attribute of its own, so nothing compiled for one can be linked into
// another.
#include "compute/cpu/kernels.h"

#include <cstddef>
#include <vector>

#include "compute/cpu/packed.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compute/cpu/kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "compute/cpu/linear_inl.h"
#include "compute/cpu/rows_inl.h"

HWY_BEFORE_NAMESPACE();
namespace llorch::compute {
namespace HWY_NAMESPACE {

void attend(const AttendTile& tile);  // attention.cc
void join_parts(const JoinParts& parts);

constexpr Kernels kKernels = {
    .decode_row = decode_row,
    .to_halves = to_halves,
    .linear = linear,
    .layer_norm = layer_norm,
    .rms_norm = rms_norm,
    .activation = activation,
    .rotate = rotate,
    .attend = attend,
    .join_parts = join_parts,
    .softcap = softcap,
    .softmax = softmax,
    .argmax = argmax,
};

}  // namespace HWY_NAMESPACE
}  // namespace llorch::compute
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace llorch::compute {
namespace {

std::vector<Isa> list_isas() {
  std::vector<Isa> isas;
  const std::int64_t supported = hwy::SupportedTargets();
  const auto add = [&](std::int64_t target, const Isa& isa) {
    if ((supported & target) != 0) isas.push_back(isa);
  };
  const auto first_of = [](const PackedKernels* best, const PackedKernels* other) {
    return best != nullptr ? best : other;
  };
  [[maybe_unused]] const PackedKernels* avx2 = first_of(packed_avx2(), &kPackedPlain);
#if HWY_TARGETS & HWY_AVX3
  if (const PackedKernels* amx = packed_amx())
    add(HWY_AVX3, {"amx", "AVX-512 and AMX", "avx512", &N_AVX3::kKernels, amx});
  if (const PackedKernels* bf16 = packed_avx512bf16())
    add(HWY_AVX3, {"avx512bf16", "AVX-512 and BF16", "avx512", &N_AVX3::kKernels, bf16});
  add(HWY_AVX3,
      {"avx512", "AVX-512", "avx512", &N_AVX3::kKernels, first_of(packed_avx512(), avx2)});
#endif
#if HWY_TARGETS & HWY_AVX2
  if (const PackedKernels* dots = packed_avxvnni())
    add(HWY_AVX2, {"avxvnni", "AVX2 and VNNI", "avx2", &N_AVX2::kKernels, dots});
  add(HWY_AVX2, {"avx2", "AVX2", "avx2", &N_AVX2::kKernels, avx2});
#endif
#if HWY_TARGETS & HWY_SSE4
  add(HWY_SSE4, {"sse4", "SSE4", "sse4", &N_SSE4::kKernels, &kPackedPlain});
#endif
#if HWY_TARGETS & HWY_NEON
  if (const PackedKernels* neon = packed_neon())
    add(HWY_NEON, {"dotprod", "NEON with dotprod", "neon", &N_NEON::kKernels, neon});
  add(HWY_NEON, {"neon", "NEON", "neon", &N_NEON::kKernels, &kPackedPlain});
#endif
#if HWY_TARGETS & HWY_EMU128
  isas.push_back({"scalar", "no SIMD", "scalar", &N_EMU128::kKernels, &kPackedPlain});
#endif
#if HWY_TARGETS & HWY_SCALAR
  isas.push_back({"scalar", "no SIMD", "scalar", &N_SCALAR::kKernels, &kPackedPlain});
#endif
  return isas;
}

}  // namespace

std::span<const Isa> available_isas() {
  static const std::vector<Isa> isas = list_isas();
  return isas;
}

}  // namespace llorch::compute
#endif  // HWY_ONCE
