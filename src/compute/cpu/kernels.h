// The inner loops of the CPU backend as a table of functions, one table per instruction set.
// Everything here works on plain pointers for one thread; shapes were checked, threads were split
// and scratch was reserved above.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "compute/ops.h"
#include "tensor/dtype.h"

namespace llorch::compute {

struct PackedKernels;  // packed.h

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

// Tiles are summed up in chunks of keys that begin at multiples of it, and chunks are joined in
// their order; so those of a long context may be attended by several threads.
inline constexpr std::int64_t kKeyChunk = 256;

// Query heads that share a key head, of rows that follow each other in one sequence: rows · heads ≤
// kQueryTile. Or one row, and several key heads with their query heads. Key t lives in block
// table[t / block_tokens], `head_offset` elements into it plus t % block_tokens heads; the next key
// head's are block_tokens heads further.
struct AttendTile {
  const float* q;             // (rows, kv_heads, heads, head_dim)
  std::int64_t q_row_stride;  // elements, as all strides
  std::int64_t rows;
  std::int64_t kv_heads;  // one where there are more rows, or scores are asked for
  std::int64_t heads;     // of each; kv_heads · heads up to a power of two ≤ kQueryTile
  std::int64_t head_dim;
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
  float* out;  // (rows, kv_heads, heads, head_dim)
  std::int64_t out_row_stride;
  // Where not null: the tile, of one row, is for some chunks alone, and what it has of each is put
  // here, (num_chunks, kv_heads, heads) of part_floats(head_dim), instead of joined to `out`.
  float* parts;
  std::int64_t part_stride;  // from one chunk to the next
  std::int64_t first_chunk;  // of those that it sees
  std::int64_t num_chunks;
};

// What a head has of some keys: largest score, sum of exponentials, and, from kPartHead on, the
// weighted values.
inline constexpr std::int64_t kPartHead = 16;
constexpr std::int64_t part_floats(std::int64_t head_dim) {
  return kPartHead + (head_dim + kPartHead - 1) / kPartHead * kPartHead;
}
// out[head] = what a head has of all chunks, joined in their order; the first chunk's are lost.
struct JoinParts {
  float* parts;  // (chunks, heads)
  std::int64_t part_stride;
  std::int64_t chunks;
  std::int64_t heads;
  std::int64_t head_dim;
  float* out;  // (heads, head_dim)
};

constexpr std::int64_t attention_floats(std::int64_t head_dim) {
  constexpr std::int64_t kLanesMax = 16;
  const std::int64_t dim = (head_dim + kLanesMax - 1) / kLanesMax * kLanesMax;
  return (kQueryTile + kKeyTile + kQueryTile) * dim + kQueryTile * part_floats(dim) +
         kKeyTile * kQueryTile + (kLanesMax + 3) * kQueryTile;
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
  void (*join_parts)(const JoinParts& parts);
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
