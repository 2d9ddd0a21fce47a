// Rotation, cache and attention.
#include <algorithm>
#include <cmath>
#include <limits>

#include "compute/cache_blocks.h"
#include "compute/check_args.h"
#include "compute/cpu/cpu_ops.h"
#include "tensor/half.h"

namespace llorch::compute {
namespace {

using tensor::DType;

// count values of F32 to a cache row of F32, F16 or Q8_0.
void store_cache(const float* values, std::int64_t count, const TensorView& cache,
                 std::int64_t index) {
  if (cache.dtype == DType::Q8_0) {
    const tensor::DTypeInfo& type = tensor::info(DType::Q8_0);
    return store_q8_0(
        {values, static_cast<std::size_t>(count)},
        static_cast<std::byte*>(cache.data) + index / type.block_elems * type.block_bytes);
  }
  if (cache.dtype == DType::F16) {
    auto* out = static_cast<std::uint16_t*>(cache.data) + index;
    for (std::int64_t i = 0; i < count; ++i) out[i] = tensor::float_to_half(values[i]);
  } else {
    std::memcpy(static_cast<float*>(cache.data) + index, values,
                static_cast<std::size_t>(count) * sizeof(float));
  }
}

}  // namespace

void CpuBackend::rope_angles(const RopeAnglesArgs& args) {
  check_args(args);
  const std::int64_t pairs = args.frequencies.dims[0];
  const auto* frequencies = static_cast<const float*>(args.frequencies.data);
  const auto magnitude = static_cast<double>(args.magnitude);
  for_each_row(args.out.rows(), [&](int, std::int64_t row) {
    const auto position = static_cast<double>(index_at(args.positions, row));
    float* out = args.out.row<float>(row);
    for (std::int64_t i = 0; i < pairs; ++i) {
      const double angle = position * static_cast<double>(frequencies[i]);
      out[i] = static_cast<float>(std::cos(angle) * magnitude);
      out[pairs + i] = static_cast<float>(std::sin(angle) * magnitude);
    }
  });
}

void CpuBackend::rope(const RopeArgs& args) {
  check_args(args);
  for_each_row(args.x.rows(), [&](int, std::int64_t row) { rotate_row(args, row); });
}

void CpuBackend::rotate_row(const RopeArgs& args, std::int64_t row) const {
  const std::int64_t pairs = args.angles.dims[1] / 2;
  const float* angles = args.angles.row<float>(row);
  const Rotation rotation = {args.style, pairs, angles, angles + pairs};
  for (std::int64_t head = 0; head < args.x.dims[1]; ++head)
    kernels_.rotate(rotation, args.x.row<float>(row) + head * args.x.dims[2]);
}

void CpuBackend::write_kv(const WriteKvArgs& args) {
  check_args(args);
  for_each_row(args.keys.rows(), [&](int, std::int64_t row) { write_row(args, row); });
}

void CpuBackend::write_row(const WriteKvArgs& args, std::int64_t row) const {
  const TensorView& keys = args.cache.keys;
  const TensorView& values = args.cache.values;
  const std::int64_t head_dim = keys.dims[3];
  const std::int64_t slot = index_at(args.slots, row);
  const std::int64_t block = slot / keys.dims[2];
  CHECK(slot >= 0 && block < keys.dims[0]);
  for (std::int64_t head = 0; head < keys.dims[1]; ++head) {
    const std::int64_t within = (head * keys.dims[2] + slot % keys.dims[2]) * head_dim;
    store_cache(args.keys.row<float>(row) + head * head_dim, head_dim, keys,
                block * keys.row_stride + within);
    store_cache(args.values.row<float>(row) + head * head_dim, head_dim, values,
                block * values.row_stride + within);
  }
}

// A row at a time from norm to cache.
void CpuBackend::place_heads(const PlaceHeadsArgs& args) {
  const auto norm_of = [&](const TensorView& heads, const TensorView& weight) {
    return RmsNormArgs{.x = heads, .weight = weight, .epsilon = args.epsilon, .out = heads};
  };
  const RmsNormArgs norms[] = {norm_of(args.q, args.q_norm), norm_of(args.k, args.k_norm)};
  const RopeArgs ropes[] = {{.x = args.q, .angles = args.angles, .style = args.style},
                            {.x = args.k, .angles = args.angles, .style = args.style}};
  const WriteKvArgs write{
      .keys = args.k, .values = args.v, .slots = args.slots, .cache = args.cache};
  for (const RmsNormArgs& norm : norms) {
    if (norm.weight) check_args(norm);
  }
  for (const RopeArgs& rope : ropes) {
    if (rope.angles) check_args(rope);
  }
  check_args(write);
  CHECK(args.q.rows() == args.k.rows());
  for_each_row(args.q.rows(), [&](int thread, std::int64_t row) {
    for (const RmsNormArgs& norm : norms) {
      if (norm.weight) rms_norm_row(norm, row, thread);
    }
    for (const RopeArgs& rope : ropes) {
      if (rope.angles) rotate_row(rope, row);
    }
    write_row(write, row);
  });
}

// Rows of a prompt differ in length, so (row, head) pairs are dealt out in turn.
void CpuBackend::attention(const AttentionArgs& args) {
  check_args(args);
  const std::int64_t heads = args.q.dims[1];
  const std::int64_t tasks = args.q.rows() * heads;
  const std::int64_t threads = std::min<std::int64_t>(tasks, pool_.num_threads());
  pool_.parallel_for(threads, [&](int thread, std::int64_t begin, std::int64_t end) {
    for (std::int64_t share = begin; share < end; ++share) {
      for (std::int64_t task = share; task < tasks; task += threads) {
        attend(args, task / heads, task % heads, thread);
      }
    }
  });
}

void CpuBackend::attend(const AttentionArgs& args, std::int64_t row, std::int64_t head,
                        int thread) const {
  const TensorView& keys = args.cache.keys;
  const std::int64_t position = index_at(args.positions, row);
  const std::int64_t sequence = index_at(args.sequences, row);
  CHECK(sequence >= 0 && sequence < args.block_tables.rows());
  CHECK(position >= 0 && position / keys.dims[2] < args.block_tables.dims[1]);
  const std::int64_t first =
      args.window > 0 ? std::max<std::int64_t>(0, position - args.window + 1) : 0;
  const std::int32_t* table = args.block_tables.row<std::int32_t>(sequence);
  for (std::int64_t i = first / keys.dims[2]; i <= position / keys.dims[2]; ++i) {
    CHECK(table[i] >= 0 && table[i] < keys.dims[0]);
  }
  float* scores = nullptr;
  if (args.scores) {
    CHECK(position < args.scores.dims[2]);
    float* row_scores = args.scores.row<float>(row) + head * args.scores.dims[2];
    std::fill_n(row_scores, args.scores.dims[2], -std::numeric_limits<float>::infinity());
    scores = row_scores + first;
  }
  const std::int64_t kv_head = head / (args.q.dims[1] / keys.dims[1]);
  kernels_.attend({.q = args.q.row<float>(row) + head * args.q.dims[2],
                   .keys = keys.data,
                   .values = args.cache.values.data,
                   .cache_dtype = keys.dtype,
                   .key_block_stride = keys.row_stride,
                   .value_block_stride = args.cache.values.row_stride,
                   .head_offset = kv_head * keys.dims[2] * keys.dims[3],
                   .block_tokens = keys.dims[2],
                   .head_dim = keys.dims[3],
                   .table = table,
                   .first = first,
                   .last = position,
                   .scale = args.scale,
                   .softcap = args.softcap,
                   .scratch = scratch(thread, position - first + 1),
                   .scores = scores,
                   .out = args.out.row<float>(row) + head * args.q.dims[2]});
}

}  // namespace llorch::compute
