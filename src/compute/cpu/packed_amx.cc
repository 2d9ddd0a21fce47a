// Opened tiles with AMX: 16 rows of x meet 16 rows of weights and 32 k in one instruction. Sums of
// whole numbers are exact, and what scales them comes in the order of all sets. Compiled for that
// set; it holds nothing that another file could be given by the linker.
#include "compute/cpu/packed_codes.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "compute/cpu/packed_inl.h"

namespace llorch::compute {
namespace {

// What the tile registers hold: 0 to 3 sums, 4 and 5 rows of x, 6 and 7 numbers.
struct alignas(64) TileShapes {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};

  constexpr explicit TileShapes(int k) {
    const auto set = [&](int tile, int num_rows, int bytes) {
      rows[tile] = static_cast<std::uint8_t>(num_rows);
      row_bytes[tile] = static_cast<std::uint16_t>(bytes);
    };
    for (int tile = 0; tile < 4; ++tile) set(tile, 16, 64);
    for (int tile = 4; tile < 6; ++tile) set(tile, 16, k);
    for (int tile = 6; tile < 8; ++tile) set(tile, k / 4, 64);
  }
};
static_assert(sizeof(TileShapes) == 64);

constexpr TileShapes kWhole(32);
constexpr TileShapes kHalves(16);
constexpr TileShapes kPeak(64);

// Sums of whole numbers on their way from the tile registers to the vector ones.
using Sums = std::int32_t[kWideRows * kTileRows];

LLORCH_INLINE __m512 load_floats(const std::uint8_t* p) {
  return _mm512_load_ps(reinterpret_cast<const float*>(p));
}
LLORCH_INLINE __m512 load_whole(const std::int32_t* sums, int row) {
  return _mm512_cvtepi32_ps(_mm512_load_si512(sums + row * kTileRows));
}

// Tile numbers are part of the instruction.
#define LLORCH_MULTIPLY(sums, rows, numbers, x, vectors, out) \
  do {                                                        \
    _tile_loadd(rows, x, sizeof(InputBlock));                 \
    _tile_loadd(numbers, vectors, kVectorBytes);              \
    _tile_zero(sums);                                         \
    _tile_dpbssd(sums, rows, numbers);                        \
    _tile_stored(sums, out, kVectorBytes);                    \
  } while (false)

// 32 k with one step.
template <bool has_min>
struct Whole {
  static constexpr OpenedLayout kLayout = {.has_min = has_min, .halves = false};
  static constexpr int kPlaces = 4;  // for sums of groups that are under way

  template <int at>
  static LLORCH_INLINE void multiply(const std::uint8_t* group, const InputBlock* x, Sums* whole) {
    const std::uint8_t* vectors = group + kLayout.scale_bytes();
    if constexpr (at == 0) LLORCH_MULTIPLY(0, 4, 6, x->quants, vectors, whole[0]);
    if constexpr (at == 1) LLORCH_MULTIPLY(1, 5, 7, x->quants, vectors, whole[1]);
    if constexpr (at == 2) LLORCH_MULTIPLY(2, 4, 6, x->quants, vectors, whole[2]);
    if constexpr (at == 3) LLORCH_MULTIPLY(3, 5, 7, x->quants, vectors, whole[3]);
  }
  template <int at>
  static LLORCH_INLINE void add(const std::uint8_t* group, const InputBlock* x, const Sums* whole,
                                __m512* sums) {
    const __m512 step = load_floats(group);
    __m512 min = step;
    if constexpr (has_min) min = load_floats(group + kLayout.step_bytes());
#pragma GCC unroll 16
    for (int r = 0; r < kWideRows; ++r) {
      const __m512 scale = _mm512_mul_ps(step, _mm512_set1_ps(x[r].scale));
      sums[r] = _mm512_fmadd_ps(load_whole(whole[at], r), scale, sums[r]);
      if constexpr (has_min)
        sums[r] = _mm512_fmadd_ps(min, _mm512_set1_ps(x[r].scaled_sum), sums[r]);
    }
  }
};

// Twice 16 k with a step each.
template <bool has_min>
struct Halves {
  static constexpr OpenedLayout kLayout = {.has_min = has_min, .halves = true};
  static constexpr int kPlaces = 2;

  template <int at>
  static LLORCH_INLINE void multiply(const std::uint8_t* group, const InputBlock* x, Sums* whole) {
    const std::uint8_t* low = group + kLayout.scale_bytes();
    const std::uint8_t* high = low + 4 * kVectorBytes;
    if constexpr (at == 0) {
      LLORCH_MULTIPLY(0, 4, 6, x->quants, low, whole[0]);
      LLORCH_MULTIPLY(1, 5, 7, x->quants + 16, high, whole[1]);
    } else {
      LLORCH_MULTIPLY(2, 4, 6, x->quants, low, whole[2]);
      LLORCH_MULTIPLY(3, 5, 7, x->quants + 16, high, whole[3]);
    }
  }
  template <int at>
  static LLORCH_INLINE void add(const std::uint8_t* group, const InputBlock* x, const Sums* whole,
                                __m512* sums) {
    const __m512 low = load_floats(group);
    const __m512 high = load_floats(group + kVectorBytes);
    __m512 low_min = low;
    __m512 high_min = high;
    if constexpr (has_min) {
      low_min = load_floats(group + 2 * kVectorBytes);
      high_min = load_floats(group + 3 * kVectorBytes);
    }
#pragma GCC unroll 16
    for (int r = 0; r < kWideRows; ++r) {
      __m512 t = _mm512_fmadd_ps(load_whole(whole[2 * at + 1], r), high,
                                 _mm512_mul_ps(load_whole(whole[2 * at], r), low));
      if constexpr (has_min) {
        const auto start = [&](int half) __attribute__((always_inline)) {
          return _mm512_cvtepi32_ps(_mm512_set1_epi32(x[r].starts[3 + half]));
        };
        t = _mm512_fmadd_ps(start(0), low_min, t);
        t = _mm512_fmadd_ps(start(1), high_min, t);
      }
      sums[r] = _mm512_fmadd_ps(t, _mm512_set1_ps(x[r].scale), sums[r]);
    }
  }
};

// Group b, if there is one, into the tile registers of place `at`.
template <class Form, int at>
LLORCH_INLINE void begin(const std::uint8_t* groups, const InputBlock* x, std::int64_t blocks,
                         std::int64_t b, Sums* whole) {
  if (b < blocks)
    Form::template multiply<at>(groups + b * Form::kLayout.group_bytes(), x + b * kWideRows, whole);
}

// Group b from place `at` to the sums, and the one that is half the places ahead on its way: the
// tile registers take their time.
template <class Form, int at>
LLORCH_INLINE bool finish(const std::uint8_t* groups, const InputBlock* x, std::int64_t blocks,
                          std::int64_t b, Sums* whole, __m512* sums) {
  constexpr int kAhead = Form::kPlaces / 2;
  begin<Form, (at + kAhead) % Form::kPlaces>(groups, x, blocks, b + kAhead, whole);
  Form::template add<at>(groups + b * Form::kLayout.group_bytes(), x + b * kWideRows, whole, sums);
  return b + 1 < blocks;
}

template <class Form>
void opened(const std::uint8_t* groups, const InputBlock* x, std::int64_t blocks, float* out) {
  alignas(64) Sums whole[4];
  __m512 sums[kWideRows];
#pragma GCC unroll 16
  for (int r = 0; r < kWideRows; ++r) sums[r] = _mm512_loadu_ps(out + r * kTileRows);
  begin<Form, 0>(groups, x, blocks, 0, whole);
  if constexpr (Form::kPlaces > 2) begin<Form, 1>(groups, x, blocks, 1, whole);
  for (std::int64_t b = 0;; b += Form::kPlaces) {
    if (!finish<Form, 0>(groups, x, blocks, b, whole, sums)) break;
    if (!finish<Form, 1>(groups, x, blocks, b + 1, whole, sums)) break;
    if constexpr (Form::kPlaces > 2) {
      if (!finish<Form, 2>(groups, x, blocks, b + 2, whole, sums)) break;
      if (!finish<Form, 3>(groups, x, blocks, b + 3, whole, sums)) break;
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kWideRows; ++r) _mm512_storeu_ps(out + r * kTileRows, sums[r]);
}

void begin_opened(OpenedLayout layout) {
  _tile_loadconfig(layout.halves ? &kHalves : &kWhole);
}
// A core that goes to sleep, or to another thread, then has no tiles to keep.
void end_opened() {
  _tile_release();
}

std::int64_t spin_int8(std::int64_t rounds) {
  _tile_loadconfig(&kPeak);
  _tile_zero(4);
  _tile_zero(6);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (std::int64_t round = 0; round < rounds; ++round) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 6);
    _tile_dpbssd(2, 4, 6);
    _tile_dpbssd(3, 4, 6);
  }
  _tile_release();
  return rounds * 4 * 2 * kWideRows * kTileRows * 64;
}

// Fewer rows are multiplied sooner as they are: 16 cost as many as 9 here, and opening a tile as
// two or three.
constexpr std::int64_t kOpenedFrom = 25;

// Codes are opened into the same records, but for the bias of their numbers.
template <tensor::DType T, const CodeKernels& codes>
void open_codes(const std::uint8_t* tile, std::int64_t blocks, std::uint8_t* out) {
  constexpr OpenedLayout kLayout = opened_layout(quant_layout(T));
  static_assert(kLayout.group_bytes() == quant_layout(T).record_bytes());
  codes.open[static_cast<std::size_t>(T)](tile, blocks, out);
  for (std::int64_t b = 0; b < blocks; ++b, out += kLayout.group_bytes()) {
#pragma GCC unroll 8
    for (int s = 0; s < 8; ++s) {
      std::uint8_t* vector = out + kLayout.scale_bytes() + s * kVectorBytes;
      _mm512_store_si512(vector,
                         _mm512_xor_si512(_mm512_load_si512(vector), _mm512_set1_epi8(-128)));
    }
  }
}

template <const CodeKernels& codes>
void open_all_codes(PackedKernels& kernels) {
  with_each_code_type([&](auto type) {
    kernels.open[static_cast<std::size_t>(type())] = open_codes<type(), codes>;
  });
}

PackedKernels make_kernels(const PackedKernels& avx512) {
  PackedKernels kernels = avx512;
  kernels.opened_from = kOpenedFrom;
  with_each_quant_type(
      [&](auto type) { kernels.open[static_cast<std::size_t>(type())] = open_avx512(type()); });
  if (kernels.codes == &kCodesAvx512) {
    open_all_codes<kCodesAvx512>(kernels);
  } else {
    open_all_codes<kCodesAvx2>(kernels);
  }
  kernels.opened[0] = opened<Whole<false>>;
  kernels.opened[1] = opened<Whole<true>>;
  kernels.opened[2] = opened<Halves<false>>;
  kernels.opened[3] = opened<Halves<true>>;
  kernels.begin_opened = begin_opened;
  kernels.end_opened = end_opened;
  kernels.loops.int8 = spin_int8;
  return kernels;
}

// The kernel gives tile registers to processes that ask for them, all threads alike.
bool has_amx() {
  constexpr std::uint32_t kTileBit = 1U << 24;
  constexpr std::uint32_t kInt8Bit = 1U << 25;
  std::uint32_t a = 0;
  std::uint32_t b = 0;
  std::uint32_t c = 0;
  std::uint32_t d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  if ((d & kTileBit) == 0 || (d & kInt8Bit) == 0) return false;
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

const PackedKernels* packed_amx() {
  const PackedKernels* bf16 = packed_avx512bf16();
  const PackedKernels* avx512 = bf16 != nullptr ? bf16 : packed_avx512();
  if (avx512 == nullptr || !has_amx()) return nullptr;
  static const PackedKernels kernels = make_kernels(*avx512);
  return &kernels;
}

}  // namespace llorch::compute

#else

namespace llorch::compute {
const PackedKernels* packed_amx() {
  return nullptr;
}
}  // namespace llorch::compute

#endif
