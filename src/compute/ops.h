// Arguments of the compute ops, with the shape of every tensor. Activations are F32; indices are
// I32.
//
// Two promises every backend keeps, which the layers above build on:
//  * Row independence: what an op writes for one row depends on that row (and its own sequence's
//    cache) alone, bit for bit, however many other rows are in the call. The order of a reduction
//    never depends on the batch.
//  * Ops never allocate and never fail; shapes are checked (CHECK), sizes were reserved beforehand.
#pragma once

#include <cstdint>
#include <span>

#include "compute/runs.h"
#include "compute/weight.h"
#include "tensor/tensor_view.h"

namespace llorch::compute {

using tensor::TensorView;

// out[r] = scale · table[ids[r]], or += with accumulate. Ids are within the table (the caller
// checked).
struct EmbedArgs {
  const Weight* table = nullptr;  // (num_ids, dim)
  TensorView ids;                 // (rows) I32
  TensorView out;                 // (rows, dim)
  bool accumulate = false;
  float scale = 1.0F;
};

// out = (x - mean) / sqrt(var + epsilon) * weight + bias, var biased; one row at a time.
struct LayerNormArgs {
  TensorView x;       // (rows, dim)
  TensorView weight;  // (dim)
  TensorView bias;    // (dim), or null
  float epsilon = 0;
  TensorView out;  // (rows, dim); may be x
};

// out = x / sqrt(mean(x²) + epsilon) * weight, or += with accumulate (the residual connection after
// a norm). With heads, each head is a row of its own.
struct RmsNormArgs {
  TensorView x;       // (rows, dim) or (rows, heads, dim)
  TensorView weight;  // (dim)
  float epsilon = 0;
  TensorView out;  // as x; may be x unless it accumulates
  bool accumulate = false;
};

// out = x · weightᵀ + bias, or += with accumulate (the residual connection).
struct LinearTarget {
  const Weight* weight = nullptr;  // (n, k)
  TensorView bias;                 // (n), or null
  TensorView out;                  // (rows, n); never x
  bool accumulate = false;
};
// Several products of one input (Q, K, V; gate, up): the input is prepared once, in the form
// that the backend declares for the weight's type (Backend::input_form).
struct LinearArgs {
  TensorView x;  // (rows, k)
  std::span<const LinearTarget> targets;
};

enum class Activation : std::uint8_t {
  GeluTanh,  // 0.5x(1 + tanh(√(2/π)(x + 0.044715x³))): GPT-2's "gelu_new"
  GeluErf,   // 0.5x(1 + erf(x/√2))
  Silu,      // x · sigmoid(x)
  Relu,
};
// out = f(x), times `gate_with` where given: the gated MLP's f(gate) · up in one pass.
struct ActivationArgs {
  Activation kind = Activation::GeluTanh;
  TensorView x;          // (rows, dim)
  TensorView gate_with;  // (rows, dim), or null
  TensorView out;        // (rows, dim); may be x
};

enum class RopeStyle : std::uint8_t {
  Adjacent,  // rotates (x0,x1), (x2,x3)…: llama weights as GGUF stores them
  Half,      // rotates (x0,x_{d/2}), (x1,x_{d/2+1})…: Hugging Face weights, Qwen,
             // Phi-3
};
// The cosines of position · frequency and then the sines, times magnitude, for the rows of a step.
// The angle is taken in double: at position 100,000 a float is wrong in the second decimal.
struct RopeAnglesArgs {
  TensorView positions;    // (rows) I32
  TensorView frequencies;  // (pairs) F32, radians per position
  float magnitude = 1.0F;  // scales the rotated values (YaRN's attention factor)
  TensorView out;          // (rows, 2 · pairs)
};
// Rotates the first 2 · pairs values of each head in place.
struct RopeArgs {
  TensorView x;       // (rows, heads, head_dim)
  TensorView angles;  // (rows, 2 · pairs), by rope_angles
  RopeStyle style = RopeStyle::Half;
};

// One layer's keys and values for all blocks; a block holds block_tokens positions of one sequence.
// With Q8_0 a head's values are whole blocks of 32; strides count values as ever.
struct KvLayer {
  TensorView keys;    // (blocks, kv_heads, block_tokens, head_dim) F32, F16 or Q8_0
  TensorView values;  // same
};

// Stores each row's key and value in its slot.
struct WriteKvArgs {
  TensorView keys;    // (rows, kv_heads, head_dim)
  TensorView values;  // (rows, kv_heads, head_dim)
  TensorView slots;   // (rows) I32: block * block_tokens + offset; no slot twice
                      // in one call
  KvLayer cache;
};

// Causal attention over paged keys and values: row r of sequence s at position p sees that
// sequence's positions max(0, p - window + 1) .. p. Query head h reads key head h / (heads /
// kv_heads).
struct AttentionArgs {
  TensorView q;             // (rows, heads, head_dim)
  KvLayer cache;            // already holds this call's own rows
  TensorView positions;     // (rows) I32
  TensorView sequences;     // (rows) I32: row of block_tables
  TensorView block_tables;  // (num_sequences, blocks_max) I32
  // Positions and sequences once more, on the host and as runs that cover the rows in order, so
  // that a kernel can tile queries and split long contexts before it is launched.
  std::span<const SequenceRun> runs;
  float scale = 0;          // usually 1/√head_dim
  std::int32_t window = 0;  // 0: sees everything before it
  float softcap = 0;        // > 0: scores become softcap · tanh(score / softcap)
  TensorView out;           // (rows, heads, head_dim)
  // For checkpoints: receives the scaled scores before softmax, -infinity where masked.
  TensorView scores;  // (rows, heads, keys_max), or null
};

// out[i] = x[indices[i]].
struct GatherRowsArgs {
  TensorView x;        // (rows, dim)
  TensorView indices;  // (n) I32
  TensorView out;      // (n, dim); never x
};

// out = cap · tanh(x / cap).
struct SoftcapArgs {
  TensorView x;  // (rows, dim)
  float cap = 0;
  TensorView out;  // (rows, dim); may be x
};

// out = softmax of each row, with the maximum subtracted first.
struct SoftmaxArgs {
  TensorView x;    // (rows, dim)
  TensorView out;  // (rows, dim); may be x
};

// The place of the largest value of each row, the first among equals; -1 where a value is NaN or
// +infinity, or where all are -infinity.
struct ArgmaxArgs {
  TensorView x;    // (rows, dim)
  TensorView out;  // (rows) I32
};

// The token of each row: as argmax where the temperature is 0, else the first id up to and
// including which the weights of the row sum to more than draw · total / 2^53, cut off. The weight
// of a logit is exp((logit - largest) / temperature) in units of 2^-40, cut off, by the float
// arithmetic of engine/softmax.cc. Backends that can_draw().
struct DrawArgs {
  TensorView x;             // (rows, dim)
  TensorView temperatures;  // (rows) F32
  TensorView draws;         // (rows, 2) I32: the lower 32 bits of a number below 2^53, the upper
  TensorView out;           // (rows) I32
};

// Composite ops: each is what the ops above give one after the other.

enum class NormKind : std::uint8_t { LayerNorm, RmsNorm };
// The norm a composite op begins with, without its rows.
struct RowNorm {
  NormKind kind = NormKind::LayerNorm;
  TensorView weight;  // (dim)
  TensorView bias;    // (dim), or null; layer norm only
  float epsilon = 0;
};

// What a step begins with: ids that the step before found, rows of the embedding, and the angles of
// rotation, none of which waits for another's result but the rows for their ids.
struct BeginRowsArgs {
  EmbedArgs embed;   // its ids are undefined afterwards where there is `found`
  TensorView found;  // (n) I32, as in Backend::fill_in_ids; or null
  std::span<const RopeAnglesArgs> angles;
};

// Products of norm(x).
struct NormLinearArgs {
  TensorView x;  // (rows, k)
  RowNorm norm;
  TensorView normed;  // (rows, k), never x: room to work in, undefined afterwards
  std::span<const LinearTarget> targets;
};

// The first half of an MLP: products of norm(x) and the activation of what they gave, times the
// other half of it where the MLP is gated.
struct MlpInArgs {
  NormLinearArgs product;  // its targets' outputs stand side by side and fill `out`
  Activation kind = Activation::GeluTanh;
  bool gated = false;
  TensorView out;  // (rows, dim), or (rows, 2 · dim) where gated; the first dim
                   // columns are the result
};

// From the projections of a step to what attention reads: norm of each head where there is one,
// rotation where there is one, and keys and values into the cache.
struct PlaceHeadsArgs {
  TensorView q;       // (rows, heads, head_dim), in place
  TensorView k;       // (rows, kv_heads, head_dim), in place
  TensorView v;       // (rows, kv_heads, head_dim)
  TensorView q_norm;  // (head_dim): RMS norm, or null
  TensorView k_norm;  // (head_dim), or null
  float epsilon = 0;
  TensorView angles;  // (rows, 2 · pairs), or null
  RopeStyle style = RopeStyle::Half;
  TensorView slots;  // (rows) I32, as in WriteKvArgs
  KvLayer cache;
};

// Both of these in one: projections of norm(x), and what place_heads makes of them.
struct ProjectHeadsArgs {
  NormLinearArgs product;  // its targets' outputs stand side by side: q, k and v of `heads`
  PlaceHeadsArgs heads;
};

// The rows that want them through the last norm and the output matrix, capped where the model says.
struct LogitsArgs {
  TensorView x;        // (rows, dim)
  TensorView indices;  // (n) I32
  RowNorm norm;
  TensorView picked;               // (n, dim), never x: room to work in, undefined afterwards
  const Weight* weight = nullptr;  // (vocab, dim)
  TensorView out;                  // (n, vocab)
  float softcap = 0;               // 0: none
};

}  // namespace llorch::compute
