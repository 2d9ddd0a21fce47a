// Rows picked by index: the embedding table, decoded on the way, and rows of activations.
#include "compute/cuda/indexing.cuh"
#include "compute/cuda/kernels.h"
#include "compute/cuda/launch.cuh"
#include "compute/cuda/packed.cuh"
#include "compute/cuda/quant.cuh"

namespace llorch::compute::cuda {
namespace {

struct Picked {
  const std::uint8_t* table;  // (table_rows, dim)
  std::int64_t table_rows;
  std::int64_t row_bytes;
  const std::int32_t* ids;  // (rows)
  float* out;               // (rows, dim)
  std::int64_t out_stride;
  std::int64_t rows;
  std::int64_t dim;
  bool accumulate;
  float scale;
};

// One thread per value.
template <class Decoder>
__global__ void embed_kernel(Picked args) {
  after_previous();
  const std::int64_t index = global_thread();
  if (index >= args.rows * args.dim) return;
  const std::int64_t row = index / args.dim;
  const std::int64_t col = index % args.dim;
  const std::int64_t id = args.ids[row];
  require(id >= 0 && id < args.table_rows);
  const std::uint8_t* block =
      args.table + id * args.row_bytes + col / Decoder::kElems * Decoder::kBytes;
  // Rounded on its own, so that a sum has the same bits as on the other backends.
  const float value =
      __fmul_rn(Decoder::at(block, static_cast<int>(col % Decoder::kElems)), args.scale);
  float& out = args.out[row * args.out_stride + col];
  out = args.accumulate ? out + value : value;
}

// The same from tiles of halves.
template <class Decoder>
__global__ void embed_tiles_kernel(Picked args) {
  after_previous();
  const std::int64_t index = global_thread();
  if (index >= args.rows * args.dim) return;
  const std::int64_t row = index / args.dim;
  const std::int64_t col = index % args.dim;
  const std::int64_t id = args.ids[row];
  require(id >= 0 && id < args.table_rows);
  const std::int64_t tile =
      tile_index(static_cast<int>(id / kTileOutputs), static_cast<int>(col / kTileInputs),
                 static_cast<int>(padded_inputs(args.dim) / kTileInputs));
  const std::uint8_t* at =
      args.table + tile * tile_bytes(PackedForm::F16) +
      number_place(static_cast<int>(id % kTileOutputs), static_cast<int>(col % kTileInputs));
  const float value = __fmul_rn(Decoder::at(at, 0), args.scale);
  float& out = args.out[row * args.out_stride + col];
  out = args.accumulate ? out + value : value;
}

std::int64_t blocks_for(const Picked& picked) {
  return ceil_div(picked.rows * picked.dim, kBlockThreads);
}

}  // namespace

void launch_embed(const EmbedArgs& args, PackedForm form, const void* plain, const Queue& queue) {
  const Weight& table = *args.table;
  const tensor::DTypeInfo& type = tensor::info(table.dtype);
  const Picked picked{
      .table = static_cast<const std::uint8_t*>(plain),
      .table_rows = table.rows,
      .row_bytes = table.cols / type.block_elems * type.block_bytes,
      .ids = static_cast<const std::int32_t*>(args.ids.data),
      .out = static_cast<float*>(args.out.data),
      .out_stride = args.out.row_stride,
      .rows = args.out.rows(),
      .dim = table.cols,
      .accumulate = args.accumulate,
      .scale = args.scale,
  };
  const bool known = with_decoder(table.dtype, [&](auto decoder) {
    if constexpr (std::is_same_v<decltype(decoder), F16>) {
      if (form != PackedForm::None) {
        return launch("embed", embed_tiles_kernel<decltype(decoder)>, queue, blocks_for(picked), 1,
                      kBlockThreads, picked);
      }
    }
    launch("embed", embed_kernel<decltype(decoder)>, queue, blocks_for(picked), 1, kBlockThreads,
           picked);
  });
  CHECK(known, "load_weight accepted a type without a kernel");
}

// Gathering is looking up in a table of float32.
void launch_gather_rows(const GatherRowsArgs& args, const Queue& queue) {
  const Picked picked{
      .table = static_cast<const std::uint8_t*>(args.x.data),
      .table_rows = args.x.rows(),
      .row_bytes = args.x.row_stride * static_cast<std::int64_t>(sizeof(float)),
      .ids = static_cast<const std::int32_t*>(args.indices.data),
      .out = static_cast<float*>(args.out.data),
      .out_stride = args.out.row_stride,
      .rows = args.out.rows(),
      .dim = args.x.dims[1],
      .accumulate = false,
      .scale = 1.0F,
  };
  launch("gather_rows", embed_kernel<Number<float>>, queue, blocks_for(picked), 1, kBlockThreads,
         picked);
}

}  // namespace llorch::compute::cuda
