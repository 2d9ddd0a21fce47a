// Products, alone and with what comes before and after them.
#include <algorithm>

#include "compute/check_args.h"
#include "compute/cpu/cpu_ops.h"

namespace llorch::compute {
namespace {

using tensor::DType;

// Columns of a linear op that go to a thread together: whole cache lines of output, whole tiles.
constexpr std::int64_t kColsPerChunk = 16;
static_assert(kColsPerChunk % kTileCols == 0);

std::span<const float> row_of(const TensorView& view, std::int64_t row) {
  return {view.row<float>(row), static_cast<std::size_t>(view.dims[1])};
}

std::int64_t num_chunks(std::span<const LinearTarget> targets) {
  std::int64_t chunks = 0;
  for (const LinearTarget& target : targets)
    chunks += (target.weight->rows + kColsPerChunk - 1) / kColsPerChunk;
  return chunks;
}

}  // namespace

// Where the input goes in the form that input_ names: once for all targets, in the one place that
// reserve() made for it. Kernels multiply floats: what the form stands for is stored.
TensorView CpuBackend::place_prepared(std::int64_t rows, std::int64_t cols,
                                      std::span<const LinearTarget> targets) const {
  const auto wants_form = [this](const LinearTarget& target) {
    return input_form(target.weight->dtype) != InputForm::F32;
  };
  if (std::none_of(targets.begin(), targets.end(), wants_form)) return {};
  CHECK(rows * cols <= workspace_.input_floats, kTooLarge);
  float* home =
      static_cast<float*>(memory_.data()) + workspace_.num_threads * workspace_.thread_floats;
  return {home, DType::F32, {rows, cols}};
}

// All targets are one loop, so that the threads meet once.
void CpuBackend::linear(const LinearArgs& args) {
  check_args(args);
  const Input input{args.x, place_prepared(args.x.dims[0], args.x.dims[1], args.targets)};
  if (input.prepared) {
    for_each_row(args.x.rows(), [&](int, std::int64_t row) {
      round_input(input_, row_of(args.x, row), input.prepared.row<float>(row));
    });
  }
  pool_.parallel_for(num_chunks(args.targets),
                     [&](int thread, std::int64_t begin, std::int64_t end) {
                       multiply_chunks(input, args.targets, begin, end, thread);
                     });
}

// Chunks begin..end of all targets' chunks one after the other.
void CpuBackend::multiply_chunks(const Input& input, std::span<const LinearTarget> targets,
                                 std::int64_t begin, std::int64_t end, int thread) const {
  for (const LinearTarget& target : targets) {
    const std::int64_t count = num_chunks({&target, 1});
    const std::int64_t first = std::max<std::int64_t>(begin, 0);
    const std::int64_t last = std::min(end, count);
    for (std::int64_t chunk = first; chunk < last; ++chunk) {
      multiply(input, target, chunk * kColsPerChunk,
               std::min((chunk + 1) * kColsPerChunk, target.weight->rows), thread);
    }
    begin -= count;
    end -= count;
  }
}

// Outputs begin..end of one target.
void CpuBackend::multiply(const Input& input, const LinearTarget& target, std::int64_t begin,
                          std::int64_t end, int thread) const {
  const Weight& weight = *target.weight;
  CHECK(weight.cols <= workspace_.inputs, kTooLarge);
  const bool as_is = input_form(weight.dtype) == InputForm::F32;
  const TensorView& x = as_is ? input.plain : input.prepared;
  const auto* bias = static_cast<const float*>(target.bias.data);
  const bool needs_scratch = weight.dtype != DType::F32;
  kernels_.linear({.x = static_cast<const float*>(x.data),
                   .x_stride = x.row_stride,
                   .rows = x.rows(),
                   .dtype = weight.dtype,
                   .weight = weight_row(weight, begin),
                   .row_bytes = row_bytes(weight),
                   .k = weight.cols,
                   .cols = end - begin,
                   .bias = bias != nullptr ? bias + begin : nullptr,
                   .accumulate = target.accumulate,
                   .out = static_cast<float*>(target.out.data) + begin,
                   .out_stride = target.out.row_stride,
                   .scratch = needs_scratch ? scratch(thread, kTileCols * weight.cols) : nullptr});
}

// Outputs begin..end of all targets side by side.
void CpuBackend::multiply_across(const Input& input, std::span<const LinearTarget> targets,
                                 std::int64_t begin, std::int64_t end, int thread) const {
  for (const LinearTarget& target : targets) {
    const std::int64_t width = target.weight->rows;
    if (begin < width && end > 0)
      multiply(input, target, std::max<std::int64_t>(begin, 0), std::min(end, width), thread);
    begin -= width;
    end -= width;
  }
}

void CpuBackend::norm_row(const RowNorm& norm, const float* x, std::int64_t dim, float* out) const {
  const auto* weight = static_cast<const float*>(norm.weight.data);
  if (norm.kind == NormKind::LayerNorm) {
    kernels_.layer_norm(x, weight, static_cast<const float*>(norm.bias.data), norm.epsilon, dim,
                        out);
  } else {
    kernels_.rms_norm(x, weight, norm.epsilon, dim, out);
  }
}

// Shares out [0, count) as work(input, thread, begin, end) on the normed rows of x, or on those
// that `indices` names. Few values are normed by each thread for itself, which costs less than
// meeting once more; many are shared out first.
template <class Work>
void CpuBackend::with_normed(const NormLinearArgs& args, const TensorView& indices,
                             std::int64_t count, const Work& work) {
  const std::int64_t dim = args.x.dims[1];
  const auto norm_rows = [&](const Input& out, std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t from = indices ? index_at(indices, row) : row;
      CHECK(from >= 0 && from < args.x.rows());
      norm_row(args.norm, args.x.row<float>(from), dim, out.plain.row<float>(row));
      if (out.prepared) round_input(input_, row_of(out.plain, row), out.prepared.row<float>(row));
    }
  };
  const std::int64_t rows = args.normed.rows();
  const Input shared{args.normed, place_prepared(rows, dim, args.targets)};
  if (rows == 1 || rows * dim > kNormEachFloats || shared.prepared) {
    pool_.parallel_for(
        rows, [&](int, std::int64_t begin, std::int64_t end) { norm_rows(shared, begin, end); });
    pool_.parallel_for(count, [&](int thread, std::int64_t begin, std::int64_t end) {
      work(shared, thread, begin, end);
    });
    return;
  }
  pool_.parallel_for(count, [&](int thread, std::int64_t begin, std::int64_t end) {
    // Behind what products decode their weights into.
    float* own = scratch(thread, workspace_.thread_floats) + workspace_.thread_floats -
                 padded_floats(kNormEachFloats);
    const Input input{TensorView(own, DType::F32, {rows, dim}), {}};
    norm_rows(input, 0, rows);
    work(input, thread, begin, end);
  });
}

void CpuBackend::norm_linear(const NormLinearArgs& args) {
  check_args(args);
  with_normed(args, {}, num_chunks(args.targets),
              [&](const Input& input, int thread, std::int64_t begin, std::int64_t end) {
                multiply_chunks(input, args.targets, begin, end, thread);
              });
}

// Whoever computes a range of columns computes the gates' too, and activates it at once.
void CpuBackend::mlp_in(const MlpInArgs& args) {
  check_args(args);
  const std::int64_t dim = args.gated ? args.out.dims[1] / 2 : args.out.dims[1];
  with_normed(args.product, {}, (dim + kColsPerChunk - 1) / kColsPerChunk,
              [&](const Input& input, int thread, std::int64_t first, std::int64_t last) {
                for (std::int64_t begin = first * kColsPerChunk; begin < last * kColsPerChunk;
                     begin += kColsPerChunk) {
                  const std::int64_t end = std::min(begin + kColsPerChunk, dim);
                  multiply_across(input, args.product.targets, begin, end, thread);
                  if (args.gated)
                    multiply_across(input, args.product.targets, dim + begin, dim + end, thread);
                  for (std::int64_t row = 0; row < args.out.rows(); ++row) {
                    float* inner = args.out.row<float>(row) + begin;
                    kernels_.activation(args.kind, inner, args.gated ? inner + dim : nullptr,
                                        end - begin, inner);
                  }
                }
              });
}

void CpuBackend::logits(const LogitsArgs& args) {
  const LinearTarget target{.weight = args.weight, .bias = {}, .out = args.out};
  check_args(GatherRowsArgs{.x = args.x, .indices = args.indices, .out = args.picked});
  check_args(LinearArgs{.x = args.picked, .targets = {&target, 1}});
  with_normed({.x = args.x, .norm = args.norm, .normed = args.picked, .targets = {&target, 1}},
              args.indices, num_chunks({&target, 1}),
              [&](const Input& input, int thread, std::int64_t first, std::int64_t last) {
                multiply_chunks(input, {&target, 1}, first, last, thread);
                if (args.softcap <= 0) return;
                const std::int64_t begin = first * kColsPerChunk;
                const std::int64_t end = std::min(last * kColsPerChunk, args.weight->rows);
                for (std::int64_t row = 0; row < args.out.rows(); ++row) {
                  float* out = args.out.row<float>(row) + begin;
                  kernels_.softcap(out, end - begin, args.softcap, out);
                }
              });
}

}  // namespace llorch::compute
