// The inner loops of the CPU backend as a table of functions, one table per instruction set.
// Everything here works on plain pointers for one thread; shapes were checked, threads were split
// and scratch was reserved above.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "compute/cpu/packed.h"
#include "compute/ops.h"
#include "tensor/dtype.h"

namespace llorch::compute {

// Weight rows that linear() decodes at a time.
inline constexpr std::int64_t kTileCols = 4;

// out[r][c] (+)= x[r] · weight[c] + bias[c] for a range of weight rows.
struct LinearRange {
  const float* x;         // (rows, k)
  std::int64_t x_stride;  // elements
  std::int64_t rows;
  tensor::DType dtype;
  const std::uint8_t* weight;  // (cols, k), rows of row_bytes
  std::int64_t row_bytes;
  std::int64_t k;
  std::int64_t cols;
  const float* bias;  // (cols), or null
  bool accumulate;
  float* out;               // (rows, cols)
  std::int64_t out_stride;  // elements
  float* scratch;           // (kTileCols, k)
};

// The keys that attention looks at together; tiles begin at multiples of it.
inline constexpr std::int64_t kKeyTile = 64;
// The most queries that one call takes.
inline constexpr std::int64_t kQueryTile = 64;

// Where at most so many query heads share a key head, scores are summed in lanes; up to so many
// queries then attend with their values in lanes.
inline constexpr std::int64_t kFewHeads = 4;
inline constexpr std::int64_t kFewQueries = 4;

// Query heads that share a key head, of rows that follow each other in one sequence: rows · heads ≤
// kQueryTile. Key t lives in block table[t / block_tokens], `head_offset` elements into it plus t %
// block_tokens heads.
struct AttendTile {
  const float* q;             // (rows, heads, head_dim)
  std::int64_t q_row_stride;  // elements, as all strides
  std::int64_t rows;
  std::int64_t heads;
  std::int64_t head_dim;
  bool sums_in_lanes;  // of a score; the same for all tiles of a model
  const void* keys;
  const void* values;
  tensor::DType cache_dtype;  // F32, F16 or Q8_0
  std::int64_t key_block_stride;
  std::int64_t value_block_stride;
  std::int64_t head_offset;
  std::int64_t block_tokens;
  const std::int32_t* table;
  std::int64_t first_position;  // of the first row
  std::int64_t window;          // 0: sees everything before it
  float scale;
  float softcap;
  float* scratch;  // attention_floats(head_dim)
  float* scores;   // (rows, heads, keys) before softmax, those it sees; or null
  std::int64_t scores_row_stride;
  std::int64_t scores_head_stride;
  float* out;  // (rows, heads, head_dim)
  std::int64_t out_row_stride;
};
constexpr std::int64_t attention_floats(std::int64_t head_dim) {
  constexpr std::int64_t kLanesMax = 16;
  const std::int64_t dim = (head_dim + kLanesMax - 1) / kLanesMax * kLanesMax;
  return (kQueryTile + kKeyTile + kQueryTile) * dim + kKeyTile * kQueryTile + 3 * kQueryTile;
}

// The rotation of a row's heads.
struct Rotation {
  RopeStyle style;
  std::int64_t pairs;
  const float* cosines;  // (pairs)
  const float* sines;    // (pairs)
};

struct Kernels {
  void (*decode_row)(tensor::DType dtype, const std::uint8_t* row, std::int64_t elems, float* out);
  // As tensor::float_to_half does, each value.
  void (*to_halves)(const float* x, std::int64_t count, std::uint16_t* out);
  void (*linear)(const LinearRange& range);
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float epsilon,
                     std::int64_t dim, float* out);
  void (*rms_norm)(const float* x, const float* weight, float epsilon, std::int64_t dim,
                   float* out);
  void (*activation)(Activation kind, const float* x, const float* gate_with, std::int64_t dim,
                     float* out);
  void (*rotate)(const Rotation& rotation, float* x);
  void (*attend)(const AttendTile& tile);
  void (*softcap)(const float* x, std::int64_t dim, float cap, float* out);
  void (*softmax)(const float* x, std::int64_t dim, float* out);
  std::int32_t (*argmax)(const float* x, std::int64_t dim);
};

struct Isa {
  std::string_view name;   // as BackendOptions::isa spells it: "avx2"
  std::string_view label;  // as people write it: "AVX2"
  // The set that gives the same bits in every op, products of BF16 weights left out; its own name
  // but for those that only differ in products.
  std::string_view bits_of;
  const Kernels* kernels;
  const PackedKernels* packed;
};

// What this machine can run of what was compiled, best first; never empty.
std::span<const Isa> available_isas();

}  // namespace llorch::compute
