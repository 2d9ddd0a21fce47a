#include "compute/cpu/cpu_backend.h"

#include <algorithm>

#include "compute/check_args.h"
#include "compute/cpu/cpu_ops.h"

namespace llorch::compute {

Status CpuBackend::reserve(const StepLimits& limits) {
  const Result<CpuWorkspace> workspace = plan_cpu_workspace(limits, pool_.num_threads(), input_);
  if (!workspace.ok()) return workspace.error();
  Result<Buffer> buffer = allocate_host(workspace->bytes());
  if (!buffer.ok()) return buffer.error().in("scratch");
  memory_ = buffer.take();
  workspace_ = *workspace;
  return ok_status();
}

void CpuBackend::embed(const EmbedArgs& args) {
  check_args(args);
  const Weight& table = *args.table;
  for_each_row(args.out.rows(), [&](int thread, std::int64_t row) {
    const std::int64_t id = index_at(args.ids, row);
    CHECK(id >= 0 && id < table.rows);
    float* out = args.out.row<float>(row);
    float* decoded = args.accumulate ? scratch(thread, table.cols) : out;
    kernels_.decode_row(table.dtype, weight_row(table, id), table.cols, decoded);
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

Result<CpuWorkspace> plan_cpu_workspace(const StepLimits& limits, int num_threads,
                                        InputForm input) {
  constexpr std::int64_t kRowsMax = std::int64_t{1} << 20;
  constexpr std::int64_t kFloatsMax = std::int64_t{1} << 36;
  const auto within = [](std::int64_t value, std::int64_t max) {
    return value >= 0 && value <= max;
  };
  if (!within(limits.rows, kRowsMax) || !within(limits.inputs, kFloatsMax) ||
      !within(limits.context, kFloatsMax)) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("cannot reserve {} rows of {} values and {} tokens of context",
                             limits.rows, limits.inputs, limits.context)};
  }
  return CpuWorkspace{
      .inputs = limits.inputs,
      .thread_floats =
          std::max(padded_floats(kTileCols * limits.inputs) + padded_floats(kNormEachFloats),
                   padded_floats(limits.context)),
      .num_threads = num_threads,
      .input_floats = input == InputForm::F32 ? 0 : limits.rows * limits.inputs,
  };
}

Result<std::unique_ptr<Backend>> make_cpu_backend(int num_threads, std::string_view isa,
                                                  InputForm input) {
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
