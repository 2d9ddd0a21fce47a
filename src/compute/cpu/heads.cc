// Rotation, cache and attention.
#include <algorithm>
#include <cmath>
#include <limits>

#include "compute/cache_blocks.h"
#include "compute/check_args.h"
#include "compute/cpu/cpu_ops.h"

namespace llorch::compute {
namespace {

using tensor::DType;

// count values of F32 to a cache row of F32, F16 or Q8_0.
void store_cache(const Kernels& kernels, const float* values, std::int64_t count,
                 const TensorView& cache, std::int64_t index) {
  if (cache.dtype == DType::Q8_0) {
    const tensor::DTypeInfo& type = tensor::info(DType::Q8_0);
    return store_q8_0(
        {values, static_cast<std::size_t>(count)},
        static_cast<std::byte*>(cache.data) + index / type.block_elems * type.block_bytes);
  }
  if (cache.dtype == DType::F16) {
    kernels.to_halves(values, count, static_cast<std::uint16_t*>(cache.data) + index);
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
    store_cache(kernels_, args.keys.row<float>(row) + head * head_dim, head_dim, keys,
                block * keys.row_stride + within);
    store_cache(kernels_, args.values.row<float>(row) + head * head_dim, head_dim, values,
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

void CpuBackend::attention(const AttentionArgs& args) {
  check_args(args);
  const TensorView& keys = args.cache.keys;
  const std::int64_t heads = args.q.dims[1];
  const std::int64_t head_dim = keys.dims[3];
  plan_attention({.kv_heads = keys.dims[1],
                  .group = heads / keys.dims[1],
                  .head_dim = head_dim,
                  .window = args.window,
                  .tells_scores = static_cast<bool>(args.scores)},
                 args.runs, pool_.num_threads(), attention_parts(), attention_plan_);
  const std::vector<AttentionTask>& tasks = attention_plan_.tasks;
  const std::vector<AttentionJoin>& joins = attention_plan_.joins;
  const std::int64_t count = std::ssize(tasks);
  pool_.share_out(count, count, [&](int thread, ThreadPool::Pieces& pieces) {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    while (pieces.next(&begin, &end)) {
      for (std::int64_t i = begin; i < end; ++i)
        attend(args, tasks[static_cast<std::size_t>(i)], thread);
    }
  });
  pool_.parallel_for(std::ssize(joins) * heads, [&](int, std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const AttentionJoin& join = joins[static_cast<std::size_t>(i / heads)];
      const std::int64_t head = i % heads;
      kernels_.join_parts({.parts = join.parts + head * part_floats(head_dim),
                           .part_stride = join.part_stride,
                           .chunks = join.chunks,
                           .heads = 1,
                           .head_dim = head_dim,
                           .out = args.out.row<float>(join.row) + head * head_dim});
    }
  });
}

void CpuBackend::attend(const AttentionArgs& args, const AttentionTask& tile, int thread) const {
  const TensorView& keys = args.cache.keys;
  const std::int64_t block_tokens = keys.dims[2];
  const std::int64_t head_dim = keys.dims[3];
  const std::int64_t last = tile.first_position + tile.rows - 1;
  CHECK(tile.sequence >= 0 && tile.sequence < args.block_tables.rows());
  CHECK(tile.first_position >= 0 && last / block_tokens < args.block_tables.dims[1]);
  const std::int64_t first =
      args.window > 0 ? std::max<std::int64_t>(0, tile.first_position - args.window + 1) : 0;
  const std::int32_t* table = args.block_tables.row<std::int32_t>(tile.sequence);
  for (std::int64_t i = first / block_tokens; i <= last / block_tokens; ++i) {
    CHECK(table[i] >= 0 && table[i] < keys.dims[0]);
  }
  float* scores = nullptr;
  const std::int64_t scores_max = args.scores ? args.scores.dims[2] : 0;
  if (args.scores) {
    CHECK(last < scores_max);
    scores = args.scores.row<float>(tile.first_row) + tile.first_head * scores_max;
    for (std::int64_t row = 0; row < tile.rows; ++row) {
      std::fill_n(args.scores.row<float>(tile.first_row + row) + tile.first_head * scores_max,
                  tile.heads * scores_max, -std::numeric_limits<float>::infinity());
    }
  }
  const std::int64_t group = args.q.dims[1] / keys.dims[1];
  const std::int64_t kv_head = tile.first_head / group;
  kernels_.attend({.q = args.q.row<float>(tile.first_row) + tile.first_head * head_dim,
                   .q_row_stride = args.q.row_stride,
                   .rows = tile.rows,
                   .kv_heads = tile.kv_heads,
                   .heads = tile.heads,
                   .head_dim = head_dim,
                   .keys = keys.data,
                   .values = args.cache.values.data,
                   .cache_dtype = keys.dtype,
                   .key_block_stride = keys.row_stride,
                   .value_block_stride = args.cache.values.row_stride,
                   .head_offset = kv_head * block_tokens * head_dim,
                   .block_tokens = block_tokens,
                   .table = table,
                   .first_position = tile.first_position,
                   .window = args.window,
                   .scale = args.scale,
                   .softcap = args.softcap,
                   .scratch = scratch(thread, attention_floats(head_dim)),
                   .scores = scores,
                   .scores_row_stride = args.scores ? args.scores.row_stride : 0,
                   .scores_head_stride = scores_max,
                   .out = args.out.row<float>(tile.first_row) + tile.first_head * head_dim,
                   .out_row_stride = args.out.row_stride,
                   .parts = tile.parts,
                   .part_stride = tile.part_stride,
                   .first_chunk = tile.first_chunk,
                   .num_chunks = tile.num_chunks});
}

}  // namespace llorch::compute
