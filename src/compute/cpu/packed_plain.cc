// Tiles in plain C++, for every machine: the definition of what the tuned sets compute.
#include <cmath>

#include "compute/cpu/packed.h"
#include "tensor/half.h"

namespace llorch::compute {
namespace {

using tensor::DType;

constexpr int kLanes = static_cast<int>(kTileRows);

float load_half(const std::uint8_t* p) {
  return tensor::half_to_float(static_cast<std::uint16_t>(p[0] | p[1] << 8));
}

// The numbers of 32 k, eight vectors of bytes.
template <DType T>
void load_steps(const std::uint8_t* vectors, std::uint8_t* numbers) {
  constexpr QuantLayout kLayout = quant_layout(T);
  constexpr int kBytes = static_cast<int>(kVectorBytes);
  constexpr int kLow = kLayout.low_bits, kHigh = kLayout.high_bits;
  for (int s = 0; s < 8; ++s) {
    for (int i = 0; i < kBytes; ++i) {
      int number = 0;
      if constexpr (kLow == 8) number = vectors[s * kBytes + i];
      if constexpr (kLow == 4) number = vectors[(kHigh + s % 4) * kBytes + i] >> (s / 4 * 4) & 15;
      if constexpr (kLow == 2) number = vectors[(kHigh + s / 4) * kBytes + i] >> (s % 4 * 2) & 3;
      if constexpr (kHigh == 1) number |= (vectors[i] >> s & 1) << kLow;
      if constexpr (kHigh == 2) number |= (vectors[s / 4 * kBytes + i] >> (s % 4 * 2) & 3) << kLow;
      if constexpr (kLayout.levels) number = kIq4Levels[number];
      numbers[s * kBytes + i] = static_cast<std::uint8_t>(number << kLayout.up);
    }
  }
}

void dot(const std::uint8_t* numbers, const InputBlock& x, int first, int last,
         std::int32_t* sums) {
  for (int s = first; s < last; ++s) {
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int j = 0; j < 4; ++j)
        sums[lane] += numbers[s * kLanes * 4 + lane * 4 + j] * x.quants[s * 4 + j];
    }
  }
}

struct Scales {
  float step[2][kLanes];
  float min[2][kLanes];
};

template <DType T>
void add_block(const std::uint8_t* numbers, const Scales& scales, const InputBlock& x,
               float* sums) {
  constexpr QuantLayout kLayout = quant_layout(T);
  constexpr bool kBiased = kLayout.bias != NumberBias::None;
  constexpr int kStart = kLayout.halves ? 3 : kBiased ? static_cast<int>(kLayout.bias) : 0;
  constexpr int kTimes = kLayout.bias == NumberBias::Halves128 ? 4 : 1;
  std::int32_t whole[2][kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    whole[0][lane] = kBiased ? kTimes * x.starts[kStart] : 0;
    whole[1][lane] = kBiased && kLayout.halves ? kTimes * x.starts[4] : 0;
  }
  dot(numbers, x, 0, kLayout.halves ? 4 : 8, whole[0]);
  if constexpr (kLayout.halves) dot(numbers, x, 4, 8, whole[1]);
  for (int lane = 0; lane < kLanes; ++lane) {
    const auto first = static_cast<float>(whole[0][lane]);
    if constexpr (kLayout.halves) {
      float t = std::fma(static_cast<float>(whole[1][lane]), scales.step[1][lane],
                         first * scales.step[0][lane]);
      if constexpr (kLayout.has_min) {
        t = std::fma(static_cast<float>(x.starts[3]), scales.min[0][lane], t);
        t = std::fma(static_cast<float>(x.starts[4]), scales.min[1][lane], t);
      }
      sums[lane] = std::fma(t, x.scale, sums[lane]);
    } else {
      sums[lane] = std::fma(first, scales.step[0][lane] * x.scale, sums[lane]);
      if constexpr (kLayout.has_min) {
        const float min = scales.min[0][lane];
        sums[lane] = std::fma(kLayout.subtracts_min ? -min : min, x.scaled_sum, sums[lane]);
      }
    }
  }
}

template <DType T>
void load_scales(const std::uint8_t* record, const std::uint8_t* group, Scales& scales) {
  constexpr QuantLayout kLayout = quant_layout(T);
  constexpr int kScales = kLayout.halves ? 2 : 1;
  if constexpr (kLayout.opened) {
    for (int s = 0; s < kScales; ++s)
      __builtin_memcpy(scales.step[s], record + s * kVectorBytes, sizeof(scales.step[s]));
    return;
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    const float step = load_half(record + lane * 2) / (1 << kLayout.up);
    const float min =
        kLayout.has_min ? load_half(record + kLanes * 2 + lane * 2) / (kLayout.halves ? 32 : 1) : 0;
    for (int s = 0; s < kScales; ++s) {
      const auto byte = [&](int row) {
        return static_cast<float>(static_cast<std::int8_t>(group[row * kLanes + lane]));
      };
      scales.step[s][lane] = kLayout.elems == 32 ? step : step * byte(s);
      scales.min[s][lane] = kLayout.elems == 32 || !kLayout.has_min ? min : min * byte(kScales + s);
    }
  }
}

struct Tiles {
  template <DType T, int Rows>
  static void quants(const std::uint8_t* tile, const InputBlock* x, std::int64_t blocks,
                     float* out) {
    multiply_quants<T>(tile, x, Rows, blocks, out);
  }

  template <DType T>
  [[gnu::noinline]] static void multiply_quants(const std::uint8_t* tile, const InputBlock* x,
                                                int rows, std::int64_t blocks, float* out) {
    constexpr QuantLayout kLayout = quant_layout(T);
    for (int i = 0; i < rows * kLanes && !kLayout.opened; ++i) out[i] = 0;
    for (std::int64_t b = 0; b < blocks; b += kLayout.elems / 32) {
      const std::uint8_t* group = tile + kLayout.head_bytes();
      for (int g = 0; g < kLayout.elems / 32; ++g, x += rows) {
        Scales scales;
        std::uint8_t numbers[8 * kVectorBytes];
        load_scales<T>(tile, group, scales);
        load_steps<T>(group + kLayout.scale_bytes(), numbers);
        for (int r = 0; r < rows; ++r) add_block<T>(numbers, scales, x[r], out + r * kLanes);
        group += kLayout.scale_bytes() + kLayout.number_bytes();
      }
      tile = group;
    }
  }

  template <DType T>
  static float load_number(const std::uint8_t* p) {
    if constexpr (T == DType::F32) {
      float number;
      __builtin_memcpy(&number, p, sizeof(number));
      return number;
    }
    if constexpr (T == DType::F16) return load_half(p);
    return tensor::bfloat16_to_float(static_cast<std::uint16_t>(p[0] | p[1] << 8));
  }

  template <DType T, int Rows>
  static void numbers(const std::uint8_t* tile, const float* x, std::int64_t x_stride,
                      std::int64_t k, float* out) {
    multiply_numbers<T>(tile, x, x_stride, Rows, k, out);
  }

  template <DType T>
  [[gnu::noinline]] static void multiply_numbers(const std::uint8_t* tile, const float* x,
                                                 std::int64_t x_stride, int rows, std::int64_t k,
                                                 float* out) {
    float sums[2][kPanelRows][kLanes] = {};
    for (std::int64_t i = 0; i < k; ++i) {
      for (int lane = 0; lane < kLanes; ++lane) {
        const float number = load_number<T>(tile + number_offset(T, i, lane));
        for (int r = 0; r < rows; ++r) {
          float& sum = sums[i % 2][r][lane];
          sum = std::fma(number, x[r * x_stride + i], sum);
        }
      }
    }
    for (int r = 0; r < rows; ++r) {
      for (int lane = 0; lane < kLanes; ++lane)
        out[r * kLanes + lane] = sums[0][r][lane] + sums[1][r][lane];
    }
  }
};

void quantize(const float* x, std::int64_t k, InputBlock* out, std::int64_t stride) {
  for (std::int64_t i = 0; i < k; i += kInputBlock, out += stride) quantize_block(x + i, *out);
}

template <class Number>
std::int64_t spin(std::int64_t rounds) {
  Number sums[kLanes] = {};
  for (std::int64_t round = 0; round < rounds; ++round) {
    for (Number& sum : sums) sum = static_cast<Number>(sum * Number{3} + Number{1});
    asm volatile("" : : "r"(sums) : "memory");
  }
  return rounds * kLanes * 2;
}

std::uint64_t sum_words(const std::uint64_t* words, std::int64_t count) {
  std::uint64_t sums[8] = {};
  for (std::int64_t i = 0; i < count; i += 8) {
    for (int lane = 0; lane < 8; ++lane) sums[lane] += words[i + lane];
  }
  std::uint64_t sum = 0;
  for (const std::uint64_t lane : sums) sum += lane;
  return sum;
}

constexpr PackedKernels make_kernels() {
  PackedKernels kernels{};
  kernels.codes = &kCodesPlain;
  TileTables<Tiles>::fill(kernels);
  kernels.quantize = quantize;
  kernels.loops = {.int8 = spin<std::uint32_t>, .floats = spin<float>, .sum_words = sum_words};
  return kernels;
}

}  // namespace

const PackedKernels kPackedPlain = make_kernels();

}  // namespace llorch::compute
