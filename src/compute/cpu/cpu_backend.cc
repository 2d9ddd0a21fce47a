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
  const std::int64_t bytes = tile_bytes(source.dtype, source.cols);
  const std::int64_t count = placement->bytes / bytes;
  const std::int64_t meetings = pool_.num_meetings();
  pool_.share_out(count, 16 * pool_.num_threads(), [&](int, ThreadPool::Pieces& pieces) {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    while (pieces.next(&begin, &end)) {
      for (std::int64_t tile = begin; tile < end; ++tile)
        pack_tile(source, tile, tiles + tile * bytes);
    }
  });
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
