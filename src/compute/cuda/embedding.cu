// Rows picked by index: the embedding table, decoded on the way, and rows of activations; with the
// former what else a step begins with.
#include "compute/cuda/angles.cuh"
#include "compute/cuda/indexing.cuh"
#include "compute/cuda/kernels.h"
#include "compute/cuda/launch.cuh"
#include "compute/cuda/packed.cuh"
#include "compute/cuda/quant.cuh"

namespace llorch::compute::cuda {
namespace {

constexpr std::size_t kAnglesMax = 2;  // Gemma 3 turns its local and its global layers differently

struct Picked {
  const std::uint8_t* table;  // (table_rows, dim)
  std::int64_t table_rows;
  std::int64_t row_bytes;
  const std::int32_t* ids;    // (rows)
  const std::int32_t* found;  // (num_found): what ids below 0 stand for, or null
  std::int64_t num_found;
  float* out;  // (rows, dim)
  std::int64_t out_stride;
  std::int64_t rows;
  int dim;
  bool accumulate;
  float scale;
  // Blocks behind those of the row compute its angles.
  int row_blocks;
  int num_angles;
  Angles angles[kAnglesMax];
};

// The id of a row, which another step may have found.
__device__ std::int64_t id_of(const Picked& args, int row) {
  std::int64_t id = args.ids[row];
  if (id < 0 && args.found != nullptr) {
    const std::int64_t place = -1 - id;
    require(place < args.num_found);
    id = max(0, args.found[place]);
  }
  require(id >= 0 && id < args.table_rows);
  return id;
}

// Where a value of the table is: in rows of blocks, or in tiles of halves.
template <class Decoder, bool IsTiled>
__device__ float looked_up(const Picked& args, std::int64_t id, int col) {
  if constexpr (IsTiled) {
    const std::int64_t tile = tile_index(static_cast<int>(id / kTileOutputs), col / kTileInputs,
                                         static_cast<int>(padded_inputs(args.dim) / kTileInputs));
    return Decoder::at(args.table + tile * tile_bytes(PackedForm::F16) +
                           number_place(static_cast<int>(id % kTileOutputs), col % kTileInputs),
                       0);
  } else {
    return Decoder::at(args.table + id * args.row_bytes + col / Decoder::kElems * Decoder::kBytes,
                       col % Decoder::kElems);
  }
}

// One thread per value; a block is of one row.
template <class Decoder, bool IsTiled>
__global__ void embed_kernel(const __grid_constant__ Picked args) {
  touch(args);
  after_previous();
  const int row = static_cast<int>(blockIdx.y);
  int col = static_cast<int>(blockIdx.x * kBlockThreads + threadIdx.x);
  if (static_cast<int>(blockIdx.x) >= args.row_blocks) {
    col -= args.row_blocks * kBlockThreads;
    for (int i = 0; i < args.num_angles; ++i) {
      if (col >= 0 && col < args.angles[i].pairs) put_angle(args.angles[i], row, col);
      col -= static_cast<int>(args.angles[i].pairs);
    }
    return;
  }
  if (col >= args.dim) return;
  // Rounded on its own, so that a sum has the same bits as on the other backends.
  const float value =
      __fmul_rn(looked_up<Decoder, IsTiled>(args, id_of(args, row), col), args.scale);
  float& out = args.out[row * args.out_stride + col];
  out = args.accumulate ? out + value : value;
}

template <class Decoder, bool IsTiled = false>
void launch_picked(const char* what, const Picked& picked, const Queue& queue) {
  std::int64_t pairs = 0;
  for (int i = 0; i < picked.num_angles; ++i) pairs += picked.angles[i].pairs;
  launch(what, embed_kernel<Decoder, IsTiled>, queue,
         picked.row_blocks + ceil_div(pairs, kBlockThreads), picked.rows, kBlockThreads, picked);
}

Picked picked_of(const EmbedArgs& args, const void* plain) {
  const Weight& table = *args.table;
  const tensor::DTypeInfo& type = tensor::info(table.dtype);
  return {
      .table = static_cast<const std::uint8_t*>(plain),
      .table_rows = table.rows,
      .row_bytes = table.cols / type.block_elems * type.block_bytes,
      .ids = static_cast<const std::int32_t*>(args.ids.data),
      .found = nullptr,
      .num_found = 0,
      .out = static_cast<float*>(args.out.data),
      .out_stride = args.out.row_stride,
      .rows = args.out.rows(),
      .dim = static_cast<int>(table.cols),
      .accumulate = args.accumulate,
      .scale = args.scale,
      .row_blocks = static_cast<int>(ceil_div(table.cols, kBlockThreads)),
      .num_angles = 0,
      .angles = {},
  };
}

void launch_embed_kernel(tensor::DType dtype, PackedForm form, const Picked& picked,
                         const Queue& queue) {
  const bool known = with_decoder(dtype, [&](auto decoder) {
    using Decoder = decltype(decoder);
    if constexpr (std::is_same_v<Decoder, F16>) {
      if (form != PackedForm::None) return launch_picked<Decoder, true>("embed", picked, queue);
    }
    launch_picked<Decoder>("embed", picked, queue);
  });
  CHECK(known, "load_weight accepted a type without a kernel");
}

}  // namespace

void launch_embed(const EmbedArgs& args, PackedForm form, const void* plain, const Queue& queue) {
  launch_embed_kernel(args.table->dtype, form, picked_of(args, plain), queue);
}

bool launch_begin_rows(const BeginRowsArgs& args, PackedForm form, const void* plain,
                       const Queue& queue) {
  if (args.angles.size() > kAnglesMax) return false;
  Picked picked = picked_of(args.embed, plain);
  if (args.found) {
    picked.found = static_cast<const std::int32_t*>(args.found.data);
    picked.num_found = args.found.dims[0];
  }
  for (const RopeAnglesArgs& angles : args.angles)
    picked.angles[picked.num_angles++] = angles_of(angles);
  launch_embed_kernel(args.embed.table->dtype, form, picked, queue);
  return true;
}

// Gathering is looking up in a table of float32.
void launch_gather_rows(const GatherRowsArgs& args, const Queue& queue) {
  const Picked picked{
      .table = static_cast<const std::uint8_t*>(args.x.data),
      .table_rows = args.x.rows(),
      .row_bytes = args.x.row_stride * static_cast<std::int64_t>(sizeof(float)),
      .ids = static_cast<const std::int32_t*>(args.indices.data),
      .found = nullptr,
      .num_found = 0,
      .out = static_cast<float*>(args.out.data),
      .out_stride = args.out.row_stride,
      .rows = args.out.rows(),
      .dim = static_cast<int>(args.x.dims[1]),
      .accumulate = false,
      .scale = 1.0F,
      .row_blocks = static_cast<int>(ceil_div(args.x.dims[1], kBlockThreads)),
      .num_angles = 0,
      .angles = {},
  };
  launch_picked<Number<float>>("gather_rows", picked, queue);
}

}  // namespace llorch::compute::cuda
