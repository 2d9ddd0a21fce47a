// Tiles out of the blocks of a file. A thread makes what one lane of a product will hold.
#include "compute/cuda/indexing.cuh"
#include "compute/cuda/launch.cuh"
#include "compute/cuda/packed.cuh"
#include "compute/cuda/products.h"
#include "compute/cuda/quant.cuh"

namespace llorch::compute::cuda {
namespace {

__device__ std::uint16_t round_half(float v) {
  return __half_as_ushort(__float2half_rn(v));
}

// One number of a block type: value = scale · quant + offset.
struct Quant {
  int quant;             // 0 .. 15, 31, 63; Q8_0: -128 .. 127
  std::uint16_t scale;   // halves
  std::uint16_t offset;  // 0 where the type has none
};

struct SourceQ8_0 {
  static constexpr int kElems = 32;
  static constexpr int kBytes = 34;
  __device__ static Quant at(const std::uint8_t* block, int i) {
    return {static_cast<std::int8_t>(block[2 + i]), load<std::uint16_t>(block), 0};
  }
};

// Q4_0, Q4_1, Q5_0, Q5_1: [scale][minimum][fifth bits][nibbles].
template <int Bits, bool HasMinimum>
struct SourceSimple {
  static constexpr int kElems = 32;
  static constexpr int kFifth = HasMinimum ? 4 : 2;
  static constexpr int kNibbles = kFifth + (Bits == 5 ? 4 : 0);
  static constexpr int kBytes = kNibbles + 16;
  __device__ static Quant at(const std::uint8_t* block, int i) {
    int quant = i < 16 ? block[kNibbles + i] & 15 : block[kNibbles + i - 16] >> 4;
    if constexpr (Bits == 5) quant |= (block[kFifth + i / 8] >> (i % 8) & 1) << 4;
    const auto scale = load<std::uint16_t>(block);
    if constexpr (HasMinimum) return {quant, scale, load<std::uint16_t>(block + 2)};
    // The zero point as an offset: a power of two times the scale, hence exact.
    return {quant, scale, round_half(half_from_bits(scale) * (Bits == 5 ? -16.0F : -8.0F))};
  }
};

// Six-bit scale and minimum of group `i` of a Q4_K or Q5_K block.
__device__ inline int2 scale_and_minimum(const std::uint8_t* packed, int i) {
  if (i < 4) return make_int2(packed[i] & 63, packed[i + 4] & 63);
  return make_int2((packed[i + 4] & 15) | (packed[i - 4] >> 6 << 4),
                   (packed[i + 4] >> 4) | (packed[i] >> 6 << 4));
}

template <int Bits>
struct SourceK {
  static constexpr int kElems = 256;
  static constexpr int kScales = 4;
  static constexpr int kFifth = 16;
  static constexpr int kNibbles = kFifth + (Bits == 5 ? 32 : 0);
  static constexpr int kBytes = kNibbles + 128;
  __device__ static Quant at(const std::uint8_t* block, int i) {
    const int group = i / 32;
    const std::uint8_t byte = block[kNibbles + group / 2 * 32 + i % 32];
    int quant = group % 2 == 0 ? byte & 15 : byte >> 4;
    if constexpr (Bits == 5) quant |= (block[kFifth + i % 32] >> group & 1) << 4;
    const int2 scales = scale_and_minimum(block + kScales, group);
    return {quant, round_half(load_half(block) * to_float(scales.x)),
            round_half(-(load_half(block + 2) * to_float(scales.y)))};
  }
};

struct SourceQ6_K {
  static constexpr int kElems = 256;
  static constexpr int kBytes = 210;
  __device__ static Quant at(const std::uint8_t* block, int i) {
    const int half = i / 128;
    const int l = i % 32;
    const int quarter = i % 128 / 32;
    const std::uint8_t low = block[half * 64 + quarter % 2 * 32 + l];
    const int upper = block[128 + half * 32 + l] >> (2 * quarter) & 3;
    const auto scale = static_cast<std::int8_t>(block[192 + i / 16]);
    return {(quarter < 2 ? low & 15 : low >> 4) | (upper << 4),
            round_half(load_half(block + 208) * to_float(scale)), 0};
  }
};

struct Packing {
  const std::uint8_t* from;  // rows first_row …, contiguous
  std::int64_t row_bytes;
  std::int64_t rows;  // of the matrix
  std::int64_t first_row;
  std::int64_t cols;
  int tiles;            // of inputs
  std::uint8_t* to;     // the whole matrix
  std::int64_t groups;  // of 64 outputs, in this piece
};

// Which tile and lane a thread makes, and which outputs and inputs that are.
struct LanePlace {
  std::uint8_t* tile;
  int lane;
  std::int64_t output;  // and output + 8
  std::int64_t input;   // .. + 7, and 32 further
};

template <int TileBytes>
__device__ bool find_lane(const Packing& args, LanePlace& place) {
  const std::int64_t index = global_thread();
  const std::int64_t in_group = index / 32;
  if (in_group >= args.groups * kTileGroup * args.tiles) return false;
  const auto tile = static_cast<int>(in_group / kTileGroup % args.tiles);
  const auto output_tile =
      static_cast<int>(args.first_row / kTileOutputs +
                       in_group / kTileGroup / args.tiles * kTileGroup + in_group % kTileGroup);
  place.tile = args.to + tile_index(output_tile, tile, args.tiles) * TileBytes;
  place.lane = static_cast<int>(index % 32);
  place.output = static_cast<std::int64_t>(output_tile) * kTileOutputs + place.lane / 4;
  place.input = static_cast<std::int64_t>(tile) * kTileInputs + place.lane % 4 * 8;
  return true;
}

__device__ inline void put16(std::uint8_t* at, std::uint16_t word) {
  *reinterpret_cast<std::uint16_t*>(at) = word;
}
__device__ inline void put32(std::uint8_t* at, std::uint32_t word) {
  *reinterpret_cast<std::uint32_t*>(at) = word;
}

template <bool IsBfloat16>
__global__ void pack_numbers(Packing args) {
  after_previous();
  LanePlace at{};
  if (!find_lane<2048>(args, at)) return;
  for (int i = 0; i < 32; ++i) {
    const int o = at.lane / 4 + i / 16 * 8;
    const int k = at.lane % 4 * 8 + i % 8 + i % 16 / 8 * 32;
    const std::int64_t output = at.output + i / 16 * 8;
    const std::int64_t input = at.input + i % 8 + i % 16 / 8 * 32;
    const bool is_there = output < args.rows && input < args.cols;
    const std::uint8_t* value = args.from + (output - args.first_row) * args.row_bytes + input * 2;
    std::uint16_t word = is_there ? load<std::uint16_t>(value) : 0;
    if constexpr (IsBfloat16) word = round_half(float_from_bits(std::uint32_t{word} << 16));
    put16(at.tile + number_place(o, k), word);
  }
}

template <class Source>
__device__ Quant read_quant(const Packing& args, std::int64_t output, std::int64_t input,
                            int absent) {
  if (output >= args.rows || input >= args.cols) return {absent, 0, 0};
  const std::uint8_t* row = args.from + (output - args.first_row) * args.row_bytes;
  return Source::at(row + input / Source::kElems * Source::kBytes,
                    static_cast<int>(input % Source::kElems));
}

__global__ void pack_q8(Packing args) {
  after_previous();
  LanePlace at{};
  if (!find_lane<Q8Tile::kBytes>(args, at)) return;
  for (int word = 0; word < 4; ++word) {  // first 32: output g, g + 8; second 32 likewise
    const int half = word / 2;
    const int row = word % 2;
    for (int i = 0; i < 8; ++i) {
      const Quant q =
          read_quant<SourceQ8_0>(args, at.output + row * 8, at.input + half * 32 + i, 0);
      at.tile[half * 512 + at.lane * 16 + row * 8 + i] = static_cast<std::uint8_t>(q.quant + 128);
      if (i == 0 && at.lane % 4 == 0)
        put16(at.tile + 1024 + at.lane / 4 * 8 + half * 4 + row * 2, q.scale);
    }
  }
}

template <class Source, int Bits>
__global__ void pack_affine(Packing args) {
  after_previous();
  using Tile = AffineTile<Bits>;
  LanePlace at{};
  if (!find_lane<Tile::kBytes>(args, at)) return;
  std::uint32_t fifth = 0;
  for (int word = 0; word < 4; ++word) {
    std::uint32_t nibbles = 0;
    for (int i = 0; i < 8; ++i) {
      const Quant q =
          read_quant<Source>(args, at.output + word % 2 * 8, at.input + word / 2 * 32 + i, 0);
      nibbles |= static_cast<std::uint32_t>(q.quant & 15) << nibble_bit(i);
      fifth |= static_cast<std::uint32_t>(q.quant >> 4) << (word * 4 + i / 2 + i % 2 * 16);
      if (i == 0 && at.lane % 4 == 0) {
        put16(at.tile + Tile::kScales + at.lane / 4 * 16 + word * 4, q.scale);
        put16(at.tile + Tile::kScales + at.lane / 4 * 16 + word * 4 + 2, q.offset);
      }
    }
    put32(at.tile + at.lane * 16 + word * 4, nibbles);
  }
  if constexpr (Bits == 5) put32(at.tile + 512 + at.lane * 4, fifth);
}

__global__ void pack_q6(Packing args) {
  after_previous();
  LanePlace at{};
  if (!find_lane<Q6Tile::kBytes>(args, at)) return;
  for (int half = 0; half < 2; ++half) {
    std::uint32_t upper = 0;
    for (int row = 0; row < 2; ++row) {
      std::uint32_t nibbles = 0;
      for (int i = 0; i < 8; ++i) {
        const Quant q =
            read_quant<SourceQ6_K>(args, at.output + row * 8, at.input + half * 32 + i, 32);
        nibbles |= static_cast<std::uint32_t>(q.quant & 15) << nibble_bit(i);
        upper |= static_cast<std::uint32_t>(q.quant >> 4) << (2 * (row * 4 + i / 2) + i % 2 * 16);
        if (i == 0 && at.lane % 2 == 0) {
          put16(at.tile + 768 + (at.lane % 4 / 2 * 8 + at.lane / 4) * 8 + half * 4 + row * 2,
                q.scale);
        }
      }
      put32(at.tile + at.lane * 16 + (half * 2 + row) * 4, nibbles);
    }
    put32(at.tile + 512 + at.lane * 8 + half * 4, upper);
  }
}

using PackKernel = void (*)(Packing);

PackKernel pack_kernel(tensor::DType dtype) {
  using tensor::DType;
  switch (dtype) {
    case DType::F16:
      return pack_numbers<false>;
    case DType::BF16:
      return pack_numbers<true>;
    case DType::Q8_0:
      return pack_q8;
    case DType::Q4_0:
      return pack_affine<SourceSimple<4, false>, 4>;
    case DType::Q4_1:
      return pack_affine<SourceSimple<4, true>, 4>;
    case DType::Q4_K:
      return pack_affine<SourceK<4>, 4>;
    case DType::Q5_0:
      return pack_affine<SourceSimple<5, false>, 5>;
    case DType::Q5_1:
      return pack_affine<SourceSimple<5, true>, 5>;
    case DType::Q5_K:
      return pack_affine<SourceK<5>, 5>;
    case DType::Q6_K:
      return pack_q6;
    default:
      return nullptr;
  }
}

}  // namespace

void launch_pack(const PackPiece& piece, const Queue& queue) {
  const PackKernel kernel = pack_kernel(piece.dtype);
  CHECK(kernel != nullptr && piece.first_row % kGroupOutputs == 0);
  const tensor::DTypeInfo& type = tensor::info(piece.dtype);
  const Packing packing{
      .from = static_cast<const std::uint8_t*>(piece.from),
      .row_bytes = piece.cols / type.block_elems * type.block_bytes,
      .rows = piece.rows,
      .first_row = piece.first_row,
      .cols = piece.cols,
      .tiles = static_cast<int>(padded_inputs(piece.cols) / kTileInputs),
      .to = static_cast<std::uint8_t*>(piece.to),
      .groups = ceil_div(piece.num_rows, kGroupOutputs),
  };
  const std::int64_t threads = packing.groups * kTileGroup * packing.tiles * 32;
  launch("pack", kernel, queue, ceil_div(threads, kBlockThreads), 1, kBlockThreads, packing);
}

}  // namespace llorch::compute::cuda
