#include "compute/cpu/cpu_backend.h"

#include <algorithm>

#include "base/file.h"
#include "compute/check_args.h"
#include "compute/cpu/cpu_ops.h"

namespace llorch::compute {

Status CpuBackend::reserve(const StepLimits& limits) {
  constexpr std::size_t kTasksReserved = 4096;  // more than a step of ours has
  const Result<CpuWorkspace> workspace = plan_cpu_workspace(limits, pool_.num_threads(), forms_);
  if (!workspace.ok()) return workspace.error();
  Result<Buffer> buffer = allocate_host(workspace->bytes());
  if (!buffer.ok()) return buffer.error().in("scratch");
  memory_ = buffer.take();
  workspace_ = *workspace;
  attention_plan_.tasks.reserve(kTasksReserved);
  attention_plan_.joins.reserve(static_cast<std::size_t>(limits.rows));
  return ok_status();
}

void CpuBackend::embed(const EmbedArgs& args) {
  check_args(args);
  const Weight& table = *args.table;
  for_each_row(args.out.rows(), [&](int thread, std::int64_t row) {
    const std::int64_t id = index_at(args.ids, row);
    CHECK(id >= 0 && id < table.rows);
    float* out = args.out.row<float>(row);
    float* room = scratch(thread, kTileCols * table.cols);
    float* decoded = args.accumulate ? room : out;
    const std::uint8_t* stored = weight_row(table, id);
    if (is_tiled(table)) {
      auto* bytes = reinterpret_cast<std::uint8_t*>(room + table.cols);
      unpack_row(table.dtype, tile_of(table, id), id % kTileRows, table.cols, bytes);
      stored = bytes;
    }
    kernels_.decode_row(table.dtype, stored, table.cols, decoded);
    if (args.scale != 1.0F) {
      for (std::int64_t i = 0; i < table.cols; ++i) decoded[i] *= args.scale;
    }
    if (!args.accumulate) return;
    for (std::int64_t i = 0; i < table.cols; ++i) out[i] += decoded[i];
  });
}

void CpuBackend::layer_norm(const LayerNormArgs& args) {
  check_args(args);
  const auto* weight = static_cast<const float*>(args.weight.data);
  const auto* bias = static_cast<const float*>(args.bias.data);
  for_each_row(args.x.rows(), [&](int, std::int64_t row) {
    kernels_.layer_norm(args.x.row<float>(row), weight, bias, args.epsilon, args.x.dims[1],
                        args.out.row<float>(row));
  });
}

void CpuBackend::rms_norm(const RmsNormArgs& args) {
  check_args(args);
  for_each_row(args.x.rows(),
               [&](int thread, std::int64_t row) { rms_norm_row(args, row, thread); });
}

void CpuBackend::rms_norm_row(const RmsNormArgs& args, std::int64_t row, int thread) const {
  const auto* weight = static_cast<const float*>(args.weight.data);
  const std::int64_t dim = args.x.dims[args.x.rank - 1];
  const std::int64_t heads = args.x.row_elements() / dim;
  for (std::int64_t head = 0; head < heads; ++head) {
    const float* x = args.x.row<float>(row) + head * dim;
    float* out = args.out.row<float>(row) + head * dim;
    float* normed = args.accumulate ? scratch(thread, dim) : out;
    kernels_.rms_norm(x, weight, args.epsilon, dim, normed);
    if (!args.accumulate) continue;
    for (std::int64_t i = 0; i < dim; ++i) out[i] += normed[i];
  }
}

void CpuBackend::activation(const ActivationArgs& args) {
  check_args(args);
  for_each_row(args.x.rows(), [&](int, std::int64_t row) {
    const float* gate = args.gate_with ? args.gate_with.row<float>(row) : nullptr;
    kernels_.activation(args.kind, args.x.row<float>(row), gate, args.x.dims[1],
                        args.out.row<float>(row));
  });
}

void CpuBackend::gather_rows(const GatherRowsArgs& args) {
  check_args(args);
  for_each_row(args.out.rows(), [&](int, std::int64_t row) {
    const std::int64_t from = index_at(args.indices, row);
    CHECK(from >= 0 && from < args.x.rows());
    std::copy_n(args.x.row<float>(from), args.x.dims[1], args.out.row<float>(row));
  });
}

void CpuBackend::softcap(const SoftcapArgs& args) {
  check_args(args);
  for_each_row(args.x.rows(), [&](int, std::int64_t row) {
    kernels_.softcap(args.x.row<float>(row), args.x.dims[1], args.cap, args.out.row<float>(row));
  });
}

void CpuBackend::softmax(const SoftmaxArgs& args) {
  check_args(args);
  for_each_row(args.x.rows(), [&](int, std::int64_t row) {
    kernels_.softmax(args.x.row<float>(row), args.x.dims[1], args.out.row<float>(row));
  });
}

void CpuBackend::argmax(const ArgmaxArgs& args) {
  check_args(args);
  for_each_row(args.x.rows(), [&](int, std::int64_t row) {
    *args.out.row<std::int32_t>(row) = kernels_.argmax(args.x.row<float>(row), args.x.dims[1]);
  });
}

CpuForms cpu_forms(std::string_view isa, std::optional<InputForm> wish) {
  const std::span<const Isa> isas = available_isas();
  const auto found = std::ranges::find(isas, isa, &Isa::name);
  return {wish, (found == isas.end() ? isas.front() : *found).packed->round != nullptr};
}

InputForm cpu_input_form(const CpuForms& forms, tensor::DType weight) {
  if (forms.wish) return form_for(*forms.wish, weight);
  if (forms.has_bf16 && weight == tensor::DType::BF16) return InputForm::BF16;
  return quant_layout(weight).elems > 0 ? InputForm::Int8 : InputForm::F32;
}

bool cpu_has_tiles(const CpuForms& forms, tensor::DType weight, WeightUse use) {
  if (use == WeightUse::LookUp) return false;
  return has_plain_tiles(weight) ||
         (quant_layout(weight).elems > 0 && cpu_input_form(forms, weight) == InputForm::Int8);
}

bool cpu_multiplies_bf16(const CpuForms& forms, tensor::DType weight) {
  return forms.has_bf16 && weight == tensor::DType::BF16 &&
         cpu_input_form(forms, weight) == InputForm::BF16;
}

Result<CpuPlacement> place_cpu_weight(const WeightSource& source, const CpuForms& forms) {
  const Result<HostPlacement> host = place_host_weight(source);
  if (!host.ok()) return host.error();
  CpuPlacement placement{.in_place = host->in_place, .bytes = host->bytes};
  if (!cpu_has_tiles(forms, source.dtype, source.use)) return placement;
  placement.tiled = true;
  placement.in_place = false;
  placement.bytes = packed_bytes(source.dtype, source.rows, source.cols);
  return placement;
}

namespace {

// A matrix on its way into tiles, some of them at a time.
class Packing {
 public:
  Packing(const WeightSource& source, std::uint8_t* tiles)
      : source_(source), tiles_(tiles), tile_bytes_(tile_bytes(source.dtype, source.cols)) {
    const std::int64_t of_tile = bytes_of(std::max(source.row_stride, source.cols) * kTileRows);
    // Rows that are mingled with others (col_stride) are taken from where they are mapped.
    if (source.file != nullptr && source.col_stride == 1)
      tiles_at_once_ = std::max<std::int64_t>(1, kReadBytes / of_tile);
  }

  // `room` is the calling thread's.
  Status pack(std::int64_t begin, std::int64_t end, std::vector<std::byte>& room) const {
    if (tiles_at_once_ == 0) {
      pack_from(source_, 0, begin, end);
      return ok_status();
    }
    for (std::int64_t tile = begin; tile < end; tile += tiles_at_once_) {
      const std::int64_t last = std::min(tile + tiles_at_once_, end);
      WeightSource part = source_;
      part.rows = std::min(last * kTileRows, source_.rows) - tile * kTileRows;
      const auto first = static_cast<std::size_t>(bytes_of(tile * kTileRows * part.row_stride));
      const std::int64_t elems = (part.rows - 1) * part.row_stride + part.cols;
      part.bytes = source_.bytes.subspan(first, static_cast<std::size_t>(bytes_of(elems)));
      if (room.size() < part.bytes.size()) room.resize(part.bytes.size());
      if (const Status read = source_.file->read(part.bytes, room); !read.ok()) return read;
      part.bytes = std::span(room).first(part.bytes.size());
      pack_from(part, tile, tile, last);
    }
    return ok_status();
  }

 private:
  // Of this much a thread's nearer caches keep what was read until it is packed.
  static constexpr std::int64_t kReadBytes = 256 * 1024;

  std::int64_t bytes_of(std::int64_t elems) const {
    const tensor::DTypeInfo& type = tensor::info(source_.dtype);
    return elems / type.block_elems * type.block_bytes;
  }
  // `first` is the tile that the source's first row belongs to.
  void pack_from(const WeightSource& source, std::int64_t first, std::int64_t begin,
                 std::int64_t end) const {
    for (std::int64_t tile = begin; tile < end; ++tile)
      pack_tile(source, tile - first, tiles_ + tile * tile_bytes_);
  }

  const WeightSource& source_;
  std::uint8_t* tiles_;
  std::int64_t tile_bytes_;
  std::int64_t tiles_at_once_ = 0;  // 0: from where they are mapped
};

}  // namespace

// Tiles are made by all threads; each writes, and so gets, the memory of its own.
Result<Weight> CpuBackend::load_weight(const WeightSource& source) {
  const Result<CpuPlacement> placement = place_cpu_weight(source, forms_);
  if (!placement.ok()) return placement.error();
  if (!placement->tiled) {
    Result<Weight> weight = load_host_weight(source);
    // Read from the disk now, in order, and not in pieces by whoever asks first.
    if (weight.ok() && placement->in_place) base::touch_pages(source.bytes);
    return weight;
  }
  Result<Buffer> storage = arena_.take(placement->bytes);
  if (!storage.ok()) return storage.error().in(source.name);
  auto* tiles = static_cast<std::uint8_t*>(storage->data());
  const Packing packing(source, tiles);
  const std::int64_t count = placement->bytes / tile_bytes(source.dtype, source.cols);
  const std::int64_t meetings = pool_.num_meetings();
  std::vector<Status> results(static_cast<std::size_t>(pool_.num_threads()), ok_status());
  pool_.share_out(count, 16 * pool_.num_threads(), [&](int thread, ThreadPool::Pieces& pieces) {
    Status& result = results[static_cast<std::size_t>(thread)];
    std::vector<std::byte> room;
    std::int64_t begin = 0;
    std::int64_t end = 0;
    while (pieces.next(&begin, &end)) {
      if (result.ok()) result = packing.pack(begin, end, room);
    }
  });
  for (const Status& result : results) {
    if (!result.ok()) return result.error().in(source.name);
  }
  load_meetings_ += pool_.num_meetings() - meetings;
  has_bf16_products_ |= cpu_multiplies_bf16(forms_, source.dtype);
  Weight weight{.dtype = source.dtype, .use = source.use, .rows = source.rows, .cols = source.cols};
  weight.data = tiles;
  weight.storage = storage.take();
  return weight;
}

Result<CpuWorkspace> plan_cpu_workspace(const StepLimits& limits, int num_threads,
                                        const CpuForms& forms) {
  constexpr std::int64_t kRowsMax = std::int64_t{1} << 20;
  constexpr std::int64_t kFloatsMax = std::int64_t{1} << 36;
  const auto within = [](std::int64_t value, std::int64_t max) {
    return value >= 0 && value <= max;
  };
  if (!within(limits.rows, kRowsMax) || !within(limits.inputs, kFloatsMax) ||
      !within(limits.context, kFloatsMax) || !within(limits.head_dim, kFloatsMax)) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("cannot reserve {} rows of {} values and {} tokens of context",
                             limits.rows, limits.inputs, limits.context)};
  }
  const bool has_blocks = forms.wish.value_or(InputForm::Int8) == InputForm::Int8;
  const bool has_bf16 = cpu_multiplies_bf16(forms, tensor::DType::BF16);
  const bool has_rounded = forms.wish.value_or(InputForm::F32) != InputForm::F32;
  // Blocks take half of what the floats take.
  static_assert(2 * sizeof(InputBlock) == kInputBlock * sizeof(float));
  static_assert(sizeof(RoundedBlock) == sizeof(InputBlock));
  const std::int64_t floats = limits.rows * limits.inputs;
  const std::int64_t block_floats = rows_of_blocks(limits.rows) * limits.inputs / 2;
  const std::int64_t bf16_floats = limits.rows * rounded_blocks(limits.inputs) * kInputBlock / 2;
  return CpuWorkspace{
      .inputs = limits.inputs,
      .rows = limits.rows,
      .num_threads = num_threads,
      .decoded =
          std::max(padded_floats(kTileCols * limits.inputs), attention_floats(limits.head_dim)),
      .own_plain = padded_floats(kEachFloats),
      // Few rows are filled up to at most twice as many blocks of whole numbers.
      .own = {.blocks = has_blocks ? padded_floats(kEachFloats) : 0,
              .bf16 = has_bf16 ? padded_floats(kEachFloats / 2) : 0,
              .rounded = has_rounded ? padded_floats(kEachFloats) : 0},
      .opened = padded_floats(room_for_opened(limits.inputs) / 4),
      .shared = {.blocks = has_blocks ? padded_floats(block_floats) : 0,
                 .bf16 = has_bf16 ? padded_floats(bf16_floats) : 0,
                 .rounded = has_rounded ? padded_floats(floats) : 0},
      .parts = padded_floats(attention_room(limits.context, limits.inputs, num_threads)),
  };
}

Result<std::unique_ptr<Backend>> make_cpu_backend(int num_threads, std::string_view isa,
                                                  std::optional<InputForm> input) {
  if (num_threads < 1) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("cpu: {} threads, expected at least 1", num_threads)};
  }
  std::string names;
  for (const Isa& candidate : available_isas()) {
    if (isa.empty() || candidate.name == isa) {
      return std::unique_ptr<Backend>(std::make_unique<CpuBackend>(candidate, num_threads, input));
    }
    names += (names.empty() ? "" : ", ") + std::string(candidate.name);
  }
  return Error{
      ErrorCode::InvalidArgument,
      fmt::format("cpu: no instruction set '{}' on this machine; there are: {}", isa, names)};
}

}  // namespace llorch::compute
