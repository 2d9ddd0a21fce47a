// Weights as the product kernels read them: tiles of 16 rows, lane r of every vector is row r of
// the tile, so that no sum ever crosses lanes.
//
// A plain type (F32, F16) keeps 16 numbers for each k; BF16 keeps 16 pairs for each two k, the
// first one low, and zeros behind an odd last one. A block type keeps records that follow k, one
// per block of the file:
//
//   step f16[16] | offset f16[16] where the type has one          blocks of 32: then the numbers
//   then eight groups of 32 k                                     blocks of 256 only
//     scales i8[16] for 32 k, or for each 16 k | minimums likewise where the type has them
//     the numbers of 32 k
//
// The numbers of 32 k are eight steps of four k: byte 4r + j of a vector of 64 belongs to row r and
// k = 4 · step + j. High bits come first, then low ones:
//
//   1 high bit    1 vector: bit s is step s's
//   2 high bits   2 vectors: bits 2 (s % 4) of vector s / 4; 2 low bits likewise
//   4 low bits    4 vectors: step s is the low nibble of vector s, step s + 4 the high one
//   8 low bits    8 vectors, one a step
//
// Types whose values are codes (packed_codes.h) are kept as codes and opened into such records,
// with steps as float32, a stretch at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "compute/cpu/fast_loops.h"
#include "compute/input_form.h"
#include "compute/weight.h"
#include "tensor/dtype.h"

namespace llorch::compute {

inline constexpr std::int64_t kTileRows = 16;
inline constexpr std::int64_t kVectorBytes = 64;

// What is subtracted from a stored number, as an index into InputBlock::starts; Halves32 is two of
// them, one for each half of the block, and Halves128 four times those.
enum class NumberBias : std::uint8_t { By128, By16, By8, Halves32, None, Halves128 };

// How a block type lies in a tile.
struct QuantLayout {
  std::int32_t elems = 0;  // 0: the type has no tiles
  bool has_min = false;
  bool halves = false;  // a scale for each 16 k instead of 32
  std::int32_t low_bits = 0;
  std::int32_t high_bits = 0;
  NumberBias bias = NumberBias::None;
  bool levels = false;         // the numbers are indices into kIq4Levels
  std::int32_t up = 0;         // numbers are read times 2^up, to meet a bias that there is
  bool subtracts_min = false;  // value = step · number - min, not + min
  bool opened = false;         // opened codes or numbers: float32 steps and minimums
  friend constexpr bool operator==(const QuantLayout&, const QuantLayout&) = default;

  constexpr std::int64_t number_bytes() const {  // of 32 k
    return (low_bits + high_bits) * kVectorBytes;
  }
  constexpr std::int64_t head_bytes() const {
    const std::int64_t kinds = has_min ? 2 : 1;
    return opened ? kinds * (halves ? 2 : 1) * kVectorBytes : kinds * kTileRows * 2;
  }
  constexpr std::int64_t scale_bytes() const {  // of a group of 32 k
    return elems == 32 ? 0 : (has_min ? 2 : 1) * (halves ? 2 : 1) * kTileRows;
  }
  constexpr std::int64_t record_bytes() const {
    return head_bytes() + (scale_bytes() + number_bytes()) * (elems / 32);
  }
};

constexpr QuantLayout quant_layout(tensor::DType dtype) {
  using enum tensor::DType;
  using enum NumberBias;
  switch (dtype) {
    case Q8_0:
      return {.elems = 32, .low_bits = 8, .bias = By128};
    case Q4_0:
      return {.elems = 32, .low_bits = 4, .bias = By8};
    case Q4_1:
      return {.elems = 32, .has_min = true, .low_bits = 4};
    case Q5_0:
      return {.elems = 32, .low_bits = 4, .high_bits = 1, .bias = By16};
    case Q5_1:
      return {.elems = 32, .has_min = true, .low_bits = 4, .high_bits = 1};
    case IQ4_NL:
      return {.elems = 32, .low_bits = 4, .bias = By128, .levels = true};
    case Q2_K:
      return {.elems = 256, .has_min = true, .halves = true, .low_bits = 2, .subtracts_min = true};
    case Q3_K:
      return {
          .elems = 256, .halves = true, .low_bits = 2, .high_bits = 1, .bias = Halves32, .up = 3};
    case Q4_K:
      return {.elems = 256, .has_min = true, .low_bits = 4, .subtracts_min = true};
    case Q5_K:
      return {.elems = 256, .has_min = true, .low_bits = 4, .high_bits = 1, .subtracts_min = true};
    case Q6_K:
      return {.elems = 256, .halves = true, .low_bits = 4, .high_bits = 2, .bias = Halves32};
    case IQ4_XS:
      return {.elems = 256, .low_bits = 4, .bias = By128, .levels = true};
    case IQ1_S:
    case IQ2_XXS:
    case IQ3_XXS:
    case IQ3_S:
    case TQ1_0:
    case TQ2_0:
    case MXFP4:
      return {.elems = 32, .low_bits = 8, .bias = By128, .opened = true};
    case IQ1_M:
    case IQ2_XS:
    case IQ2_S:
    case NVFP4:
      return {.elems = 32, .halves = true, .low_bits = 8, .bias = Halves128, .opened = true};
    default:
      return {};
  }
}

constexpr bool has_codes(tensor::DType dtype) {
  return quant_layout(dtype).opened;
}

// One type for all that are opened into the same layout: their products are one function.
constexpr tensor::DType opened_like(tensor::DType dtype) {
  return quant_layout(dtype).halves ? tensor::DType::IQ2_XS : tensor::DType::IQ2_XXS;
}

// What a block type's tiles are opened into where many rows meet them: eight-bit numbers, float32
// steps and, where it has them, minimums that are added; of codes, into their own layout.
constexpr QuantLayout record_layout(QuantLayout of) {
  if (of.opened) return of;
  const NumberBias bias = of.has_min  ? NumberBias::None
                          : of.halves ? NumberBias::Halves32
                                      : NumberBias::By128;
  return {.elems = 32,
          .has_min = of.has_min,
          .halves = of.halves,
          .low_bits = 8,
          .bias = bias,
          .opened = true};
}

// visit(std::integral_constant<DType, …>) for each of the types.
template <tensor::DType... Types, class F>
constexpr void with_types(const F& visit) {
  (visit(std::integral_constant<tensor::DType, Types>()), ...);
}
// For each block type that is multiplied as its tiles are.
template <class F>
constexpr void with_each_quant_type(const F& visit) {
  using enum tensor::DType;
  with_types<Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, IQ4_NL, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_XS>(visit);
}
// For each type whose values are codes.
template <class F>
constexpr void with_each_code_type(const F& visit) {
  using enum tensor::DType;
  with_types<IQ1_S, IQ1_M, IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S, TQ1_0, TQ2_0, MXFP4, NVFP4>(
      visit);
}
// The same for that one of the former.
template <class F>
void with_quant_type(tensor::DType dtype, const F& visit) {
  with_each_quant_type([&](auto type) {
    if (dtype == type()) visit(type);
  });
}

// The sixteen levels of the IQ4 types plus 128.
inline constexpr std::uint8_t kIq4Levels[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                                129, 141, 153, 166, 181, 197, 217, 241};

constexpr bool has_plain_tiles(tensor::DType dtype) {
  using enum tensor::DType;
  return dtype == F32 || dtype == F16 || dtype == BF16;
}

// Where a tile of plain numbers keeps that of (k, lane).
constexpr std::int64_t number_offset(tensor::DType dtype, std::int64_t k, std::int64_t lane) {
  if (dtype == tensor::DType::BF16) return (k / 2 * kTileRows + lane) * 4 + k % 2 * 2;
  return (k * kTileRows + lane) * (dtype == tensor::DType::F32 ? 4 : 2);
}

// Bytes of one tile of k columns.
std::int64_t tile_bytes(tensor::DType dtype, std::int64_t k);
// Bytes of all tiles of a matrix; the last one is filled up with zeros.
std::int64_t packed_bytes(tensor::DType dtype, std::int64_t rows, std::int64_t k);

// Rows 16 · tile … of the source (checked by place_host_weight).
void pack_tile(const WeightSource& source, std::int64_t tile, std::uint8_t* out);
// Row `lane` of a tile as the file had it.
void unpack_row(tensor::DType dtype, const std::uint8_t* tile, std::int64_t lane, std::int64_t k,
                std::uint8_t* out);

// 32 values of a product's input as whole numbers (quantize_input), with what kernels start from.
struct alignas(64) InputBlock {
  std::int8_t quants[32];
  float scale;
  float scaled_sum;        // scale · Σ quants
  std::int32_t starts[5];  // -128, -16, -8 · Σ quants; -32 · Σ of the first and of the second half
};
static_assert(sizeof(InputBlock) == 64);

// What follows from a block's scale and the sums of its halves.
[[gnu::always_inline]] inline void finish_block(float scale, std::int32_t low, std::int32_t high,
                                                InputBlock& block) {
  const std::int32_t sum = low + high;
  block.scale = scale;
  block.scaled_sum = scale * static_cast<float>(sum);
  block.starts[0] = -128 * sum;
  block.starts[1] = -16 * sum;
  block.starts[2] = -8 * sum;
  block.starts[3] = -32 * low;
  block.starts[4] = -32 * high;
}
// 32 values by the definition, whatever they are.
void quantize_block(const float* x, InputBlock& block);

// 32 values of a product's input rounded to bfloat16; zeros beyond the last one of a row.
struct alignas(64) RoundedBlock {
  std::uint16_t values[32];
};
constexpr std::int64_t rounded_blocks(std::int64_t k) {
  return (k + kInputBlock - 1) / kInputBlock;
}

// How the rows of a product are cut: into panels of nearly equal size, or, where they are wide, of
// 16 each, the last one filled up with blocks whose sums nobody looks at. Within a panel the blocks
// of one k stand side by side, `stride` of them.
inline constexpr std::int64_t kPanelRows = 8;
inline constexpr std::int64_t kWideRows = 16;
struct Panel {
  std::int64_t begin, rows, stride;
};
struct Panels {
  std::int64_t rows;
  bool wide;
  std::int64_t narrow = kPanelRows;  // rows of a panel that is not wide, at most

  std::int64_t count() const {
    const std::int64_t most = wide ? kWideRows : narrow;
    return (rows + most - 1) / most;
  }
  Panel at(std::int64_t index) const;
  Panel of(std::int64_t row) const;  // the panel that holds it
};
// Rows of blocks that there must be room for, however they are cut.
constexpr std::int64_t rows_of_blocks(std::int64_t rows) {
  return (rows + kWideRows - 1) / kWideRows * kWideRows;
}

// out[r][c] (+)= x[r] · weight[c] + bias[c] for weight rows begin..end, whose tiles are computed
// whole. The order of sums depends on k alone.
struct PackedRange {
  tensor::DType dtype;
  const std::uint8_t* tiles;  // of the whole matrix
  std::int64_t k;
  std::int64_t begin, end;
  std::int64_t rows;
  const InputBlock* blocks;     // block types: panels of k / 32 blocks a row
  const RoundedBlock* rounded;  // BF16 where it is multiplied so: panels as cut_rounded() has them
  const float* x;               // plain types: (rows, k)
  std::int64_t x_stride;
  const float* bias;  // (all weight rows), or null
  bool accumulate;
  float* out;  // (rows, all weight rows)
  std::int64_t out_stride;
  std::uint8_t* room;  // room_for_opened() bytes, on a cache line
};

// sums[r][lane] = x[r] · row `lane` of the tile, for the rows of one panel.
using QuantTile = void (*)(const std::uint8_t* tile, const InputBlock* x, std::int64_t blocks,
                           float* sums);

// What is asked for meanwhile: with each 32 k every `step`-th byte of the next `group` ones, from
// `first` on, and of those `second` bytes further.
struct LinesAhead {
  const std::uint8_t* at = nullptr;
  std::int64_t second = 0;
  std::int64_t group = 0;
  std::int64_t first = 0;
  std::int64_t step = kVectorBytes;
};
template <int tiles>
[[gnu::always_inline]] inline void ask_for(LinesAhead& lines) {
  for (std::int64_t i = lines.first; i < lines.group; i += lines.step) {
    __builtin_prefetch(lines.at + i, 0, 2);
    if constexpr (tiles > 1) __builtin_prefetch(lines.at + lines.second + i, 0, 2);
  }
  lines.at += lines.group;
}

// Some blocks of 32 k of a tile or two, or records of them, with a panel: adds to sums[r][tile], or
// makes them that, and where there is an `out`, writes them there as PackedRange says.
struct QuantPass {
  const std::uint8_t* tiles;
  std::int64_t tile_bytes;  // from the first one to the second
  const InputBlock* x;
  std::int64_t blocks;
  bool first;   // there are no sums yet
  float* sums;  // on a cache line
  float* out;   // or null; of the first row and tile, as `bias`, which may be null
  std::int64_t out_stride;
  const float* bias;
  bool accumulate;
  LinesAhead ahead;
};
using MultiplyPass = void (*)(const QuantPass& pass);
inline constexpr int kPassTiles = 2;
inline constexpr int kPassRows = 6;
struct PassTable {
  MultiplyPass of[kPassTiles][kPassRows];  // by tiles, by rows, less one each
};
// A tile taken apart, once for many rows. For each 32 k: float32 steps of the 16 rows, one or for
// each half; what is added for each unit of the input's sum, likewise where there are minimums;
// then eight vectors of numbers as signed bytes.
struct OpenedLayout {
  bool has_min = false;
  bool halves = false;

  constexpr std::int64_t step_bytes() const { return (halves ? 2 : 1) * kVectorBytes; }
  constexpr std::int64_t scale_bytes() const { return (has_min ? 2 : 1) * step_bytes(); }
  constexpr std::int64_t group_bytes() const { return scale_bytes() + 8 * kVectorBytes; }
  constexpr std::size_t index() const { return (has_min ? 1U : 0U) + (halves ? 2U : 0U); }
};
constexpr OpenedLayout opened_layout(QuantLayout layout) {
  return {layout.has_min, layout.halves};
}
// What a thread needs to open tiles of up to k columns: so much, or one tile of the widest matrix.
inline constexpr std::int64_t kRoomBytes = 256 * 1024;
std::int64_t room_for_opened(std::int64_t k);

using OpenTile = void (*)(const std::uint8_t* tile, std::int64_t blocks, std::uint8_t* opened);
// What a set does with tiles of codes, by type.
struct CodeKernels {
  OpenTile open[tensor::kNumDTypes];  // so many blocks of 32 k, whole ones of the file, to records
  QuantTile multiply_row[tensor::kNumDTypes];  // a tile as it is, where that is faster, or null
};
// Adds to sums[r][lane] what `blocks` groups of an opened tile give with a wide panel.
using OpenedTile = void (*)(const std::uint8_t* opened, const InputBlock* x, std::int64_t blocks,
                            float* sums);
// A number's product and sum round once, k even and k odd in sums of their own, added at the end.
using NumberTile = void (*)(const std::uint8_t* tile, const float* x, std::int64_t x_stride,
                            std::int64_t k, float* sums);

// Plain numbers as floats, once for many rows: k vectors of each of `tiles` tiles, those of one k
// side by side. Tiles stand `tile_bytes` apart.
using OpenNumbers = void (*)(const std::uint8_t* tile, std::int64_t tile_bytes, std::int64_t tiles,
                             std::int64_t k, float* opened);
// Adds to sums[r][tile] what they give with a few rows of x, or makes them that: even k to the
// first of its two vectors, odd k to the second. k begins at an even one.
using OpenedNumbers = void (*)(const float* opened, const float* x, std::int64_t x_stride,
                               std::int64_t k, bool first, float* sums);
// The same of BF16 tiles as they are, `tile_bytes` apart, with a panel of rounded rows: even pairs
// of k to the first vector, odd ones to the second. k begins at a multiple of 32. To a sum goes
// first the product of a pair's second numbers, then that of its first; each time it is rounded,
// and what is no normal number becomes zero, as it does in the numbers.
using RoundedNumbers = void (*)(const std::uint8_t* tile, std::int64_t tile_bytes,
                                const RoundedBlock* x, std::int64_t k, bool first, float* sums);
// Both vectors of each row's sums together, written as PackedRange says. Strides are of floats.
struct FinishedRows {
  const float* sums = nullptr;
  std::int64_t stride = 0;
  std::int64_t rows = 0;
  const float* bias = nullptr;  // or null
  bool accumulate = false;
  float* out = nullptr;
  std::int64_t out_stride = 0;
};
using FinishNumbers = void (*)(const FinishedRows& rows);
inline constexpr int kNumberRows = 6;  // the most that a set takes at once, and of tiles
inline constexpr int kNumberTiles = 2;
// How a set multiplies opened plain tiles, and BF16 ones with rounded input.
struct NumberBlocks {
  std::int64_t from = 0;  // rows from which opening pays; 0: never
  std::int64_t rows = 0;  // of x, and tiles, whose sums fit the registers
  std::int64_t tiles = 0;
  OpenNumbers open[tensor::kNumDTypes] = {};
  OpenedNumbers multiply[kNumberTiles][kNumberRows] = {};  // by tiles, by rows, less one each
  RoundedNumbers multiply_rounded[kNumberTiles][kNumberRows] = {};  // null where no set can
  FinishNumbers finish = nullptr;
};

// How a set multiplies block types with more rows than kRowsFromMemory: two tiles at once, inputs
// in stretches. From `records_from` rows on they are opened into records first, codes always.
struct QuantPasses {
  std::int64_t records_from = 0;  // 0: there are no passes
  const PassTable* tiles[tensor::kNumDTypes] = {};
  const PassTable* records[tensor::kNumDTypes] = {};
  OpenTile open[tensor::kNumDTypes] = {};  // but codes: CodeKernels has those
};

// The functions of one instruction set, each in a file compiled for it alone. All sets give the
// same bits; with BF16 tiles those that round their input give others.
struct PackedKernels {
  // By type, then by rows of the panel less one; null where the type has no tiles. Of opened codes:
  // they add to the sums.
  const QuantTile* quants[tensor::kNumDTypes];
  const NumberTile* numbers[tensor::kNumDTypes];
  std::int64_t panel_rows = kPanelRows;  // at most
  const CodeKernels* codes = nullptr;
  QuantPasses passes;
  NumberBlocks blocks;
  // From this many rows on tiles are opened and panels wide; 0: never. By type; by
  // OpenedLayout::index(). The last two stand around the tiles of one layout.
  std::int64_t opened_from;
  OpenTile open[tensor::kNumDTypes];
  OpenedTile opened[4];
  void (*begin_opened)(OpenedLayout layout);
  void (*end_opened)();
  // k values, k a multiple of 32, as quantize_input() does; block b goes to out[b · stride].
  void (*quantize)(const float* x, std::int64_t k, InputBlock* out, std::int64_t stride);
  // As quantize, to bfloat16: to nearest, ties to even; what is no normal number becomes zero.
  // Null where the set does not multiply such numbers.
  void (*round)(const float* x, std::int64_t k, RoundedBlock* out, std::int64_t stride);
  FastLoops loops;
};

// Fills the first two tables: Tiles has templates quants<DType, rows>() and numbers<DType, rows>().
template <class Tiles, class Rows = std::make_integer_sequence<int, static_cast<int>(kPanelRows)>>
struct TileTables;
template <class Tiles, int... Less>
struct TileTables<Tiles, std::integer_sequence<int, Less...>> {
  template <tensor::DType T>
  static constexpr QuantTile kQuants[] = {Tiles::template quants<T, Less + 1>...};
  template <tensor::DType T>
  static constexpr NumberTile kNumbers[] = {Tiles::template numbers<T, Less + 1>...};

  static constexpr void fill_quants(PackedKernels& kernels) {
    with_each_quant_type(
        [&](auto type) { kernels.quants[static_cast<int>(type())] = kQuants<type()>; });
    with_each_code_type([&](auto type) {
      kernels.quants[static_cast<int>(type())] = kQuants<opened_like(type())>;
    });
  }
  static constexpr void fill(PackedKernels& kernels) {
    using enum tensor::DType;
    fill_quants(kernels);
    kernels.numbers[static_cast<int>(F32)] = kNumbers<F32>;
    kernels.numbers[static_cast<int>(F16)] = kNumbers<F16>;
    kernels.numbers[static_cast<int>(BF16)] = kNumbers<BF16>;
  }
};

// With few rows a tile comes from memory and is read once: its lines are asked for this far ahead,
// more than the machine's own prefetching looks. What lies beyond the last tile costs nothing.
// Tiles are then read one after the other: what is asked for behind one is the next.
inline constexpr std::int64_t kAheadBytes = 8192;
inline constexpr int kRowsFromMemory = 4;
template <int rows, std::int64_t bytes>
[[gnu::always_inline]] inline void fetch_ahead(const std::uint8_t* p) {
  if constexpr (rows <= kRowsFromMemory) {
#pragma GCC unroll 16
    for (std::int64_t at = 0; at < bytes; at += kVectorBytes)
      __builtin_prefetch(p + kAheadBytes + at);
  }
}

inline bool opens_tiles(const PackedKernels& kernels, std::int64_t rows) {
  return kernels.opened_from > 0 && rows >= kernels.opened_from;
}
inline Panels cut_rows(const PackedKernels& kernels, std::int64_t rows) {
  return {rows, opens_tiles(kernels, rows), kernels.panel_rows};
}
inline Panels cut_rounded(const PackedKernels& kernels, std::int64_t rows) {
  return {rows, false, kernels.blocks.rows};
}
void multiply_packed(const PackedKernels& kernels, const PackedRange& range);
// Parts of it (packed_passes.cc): with a set's passes, which has some for this type; and one tile's
// sums, `stride` floats from row to row, to those of its columns that are asked for.
void multiply_in_passes(const PackedKernels& kernels, const PackedRange& range);
void store_sums(const PackedRange& range, Panel panel, std::int64_t tile, const float* sums,
                std::int64_t stride = kTileRows);

extern const PackedKernels kPackedPlain;
// Null where the build or the machine has none.
const PackedKernels* packed_avx2();
const PackedKernels* packed_avxvnni();
const PackedKernels* packed_avx512();
// AVX-512 with products of BF16 numbers.
const PackedKernels* packed_avx512bf16();
const PackedKernels* packed_neon();
// Asks the kernel for the tile registers.
const PackedKernels* packed_amx();
// packed_avx512.cc's part of it.
OpenTile open_avx512(tensor::DType dtype);
// PackedKernels::codes of the sets. AVX-512's needs bytes looked up in registers (VBMI), which not
// every machine with AVX-512 has.
extern const CodeKernels kCodesPlain;
extern const CodeKernels kCodesAvx2;
extern const CodeKernels kCodesAvx512;

}  // namespace llorch::compute
