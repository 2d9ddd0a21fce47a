// Products, alone and with what comes before and after them.
#include <algorithm>

#include "compute/check_args.h"
#include "compute/cpu/cpu_ops.h"

namespace llorch::compute {
namespace {

using tensor::DType;

// How many pieces of a loop there are for each thread, at most.
constexpr std::int64_t kPiecesPerThread = 8;
// Columns of an MLP that are activated while the products that gave them are at hand: few, or as
// many as tiles are opened together.
constexpr std::int64_t kColsAtOnce = 4 * kTileRows;
constexpr std::int64_t kOpenedColsAtOnce = 16 * kTileRows;

std::span<const float> row_of(const TensorView& view, std::int64_t row) {
  return {view.row<float>(row), static_cast<std::size_t>(view.dims[1])};
}

// Pieces for the threads to claim: enough for a late one to cost little, none so small that
// claiming is felt.
std::int64_t num_pieces(std::int64_t rows, std::span<const LinearTarget> targets, int threads) {
  constexpr std::int64_t kProductsAtLeast = 32 * 1024;
  std::int64_t products = 0;
  for (const LinearTarget& target : targets) products += target.weight->rows * target.weight->cols;
  return std::clamp<std::int64_t>(rows * products / kProductsAtLeast, threads,
                                  kPiecesPerThread * threads);
}

}  // namespace

// What goes to a thread together of the columns of some targets: whole tiles, and so whole cache
// lines of output; two of them where they are multiplied so and all threads have enough of them.
struct CpuBackend::Chunks {
  std::int64_t cols = kTileRows;  // of each
  std::int64_t count = 0;

  Chunks(std::span<const LinearTarget> targets, std::int64_t rows, int threads) {
    std::int64_t all = 0;
    for (const LinearTarget& target : targets) all += target.weight->rows;
    constexpr std::int64_t kPair = kPassTiles * kTileRows;
    if (rows > kRowsFromMemory && all >= kPair * kPiecesPerThread * threads) cols = kPair;
    for (const LinearTarget& target : targets) count += of(target);
  }
  std::int64_t of(const LinearTarget& target) const {
    return (target.weight->rows + cols - 1) / cols;
  }
};

CpuBackend::Wanted CpuBackend::wanted_by(std::span<const LinearTarget> targets) const {
  Wanted wanted;
  for (const LinearTarget& target : targets) {
    const DType dtype = target.weight->dtype;
    const bool int8 = is_tiled(*target.weight) && !has_plain_tiles(dtype);
    const bool bf16 = cpu_multiplies_bf16(forms_, dtype);
    wanted.blocks |= int8;
    wanted.bf16 |= bf16;
    wanted.rounded |= !int8 && !bf16 && input_form(dtype) != InputForm::F32;
  }
  return wanted;
}

// A row's other forms, from the plain one.
void CpuBackend::prepare_row(const ProductInput& input, std::int64_t row) const {
  const auto* x = input.plain.row<float>(row);
  const std::int64_t cols = input.plain.dims[1];
  const std::int64_t rows = input.plain.rows();
  if (input.rounded)
    round_input(*forms_.wish, row_of(input.plain, row), input.rounded.row<float>(row));
  if (input.blocks != nullptr) {
    const Panel panel = cut_rows(*isa_.packed, rows).of(row);
    isa_.packed->quantize(x, cols,
                          input.blocks + panel.begin * (cols / kInputBlock) + (row - panel.begin),
                          panel.stride);
  }
  if (input.bf16 != nullptr) {
    const Panel panel = cut_rounded(*isa_.packed, rows).of(row);
    isa_.packed->round(x, cols,
                       input.bf16 + panel.begin * rounded_blocks(cols) + (row - panel.begin),
                       panel.stride);
  }
}

// Shares out [0, count) as work(input, thread, begin, end) on rows that are prepared once for all
// targets. `fill`, where there is one, makes a row of plain(output, row) first. Little is prepared
// by each thread for itself, which costs less than meeting once more; much is shared out first, in
// the one place that reserve() made for it.
template <class Fill, class Work>
void CpuBackend::with_input(const TensorView& plain, std::span<const LinearTarget> targets,
                            const Fill* fill, std::int64_t count, const Work& work) {
  const std::int64_t rows = plain.rows();
  const std::int64_t cols = plain.dims[1];
  const Wanted wanted = wanted_by(targets);
  const auto place = [&](const TensorView& at, float* blocks, const CpuWorkspace::Prepared& sizes) {
    float* bf16 = blocks + sizes.blocks;
    float* rounded = bf16 + sizes.bf16;
    return ProductInput{
        .plain = at,
        .rounded = wanted.rounded ? TensorView(rounded, DType::F32, {rows, cols}) : TensorView(),
        .blocks = wanted.blocks ? reinterpret_cast<InputBlock*>(blocks) : nullptr,
        .bf16 = wanted.bf16 ? reinterpret_cast<RoundedBlock*>(bf16) : nullptr};
  };
  const auto make_rows = [&](const ProductInput& input, std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      if (fill != nullptr) (*fill)(input.plain.row<float>(row), row);
      prepare_row(input, row);
    }
  };
  const bool ready = fill == nullptr && !wanted.blocks && !wanted.bf16 && !wanted.rounded;
  const bool each = !ready && rows * rounded_blocks(cols) * kInputBlock <= kEachFloats;
  const ProductInput shared = place(plain, thread_memory(pool_.num_threads()), workspace_.shared);
  if (!ready && !each) {
    CHECK(rows <= workspace_.rows && cols <= workspace_.inputs, kTooLarge);
    pool_.parallel_for(
        rows, [&](int, std::int64_t begin, std::int64_t end) { make_rows(shared, begin, end); });
  }
  pool_.share_out(count, num_pieces(rows, targets, pool_.num_threads()),
                  [&](int thread, ThreadPool::Pieces& pieces) {
                    ProductInput input = shared;
                    if (each) {
                      float* own = thread_memory(thread) + workspace_.decoded;
                      input =
                          place(fill == nullptr ? plain : TensorView(own, DType::F32, {rows, cols}),
                                own + workspace_.own_plain, workspace_.own);
                      make_rows(input, 0, rows);
                    }
                    std::int64_t begin = 0;
                    std::int64_t end = 0;
                    while (pieces.next(&begin, &end)) work(input, thread, begin, end);
                  });
}

// All targets are one loop, so that the threads meet once.
void CpuBackend::linear(const LinearArgs& args) {
  check_args(args);
  using Fill = void (*)(float*, std::int64_t);
  const Chunks chunks(args.targets, args.x.rows(), pool_.num_threads());
  with_input<Fill>(
      args.x, args.targets, nullptr, chunks.count,
      [&](const ProductInput& input, int thread, std::int64_t begin, std::int64_t end) {
        multiply_chunks(input, args.targets, chunks, {begin, end}, thread);
      });
}

// Some of all targets' chunks one after the other.
void CpuBackend::multiply_chunks(const ProductInput& input, std::span<const LinearTarget> targets,
                                 const Chunks& chunks, Part part, int thread) const {
  for (const LinearTarget& target : targets) {
    const std::int64_t count = chunks.of(target);
    const std::int64_t first = std::max<std::int64_t>(part.begin, 0);
    const std::int64_t last = std::min(part.end, count);
    if (first < last) {
      multiply(input, target, first * chunks.cols,
               std::min(last * chunks.cols, target.weight->rows), thread);
    }
    part.begin -= count;
    part.end -= count;
  }
}

// Outputs begin..end of one target.
void CpuBackend::multiply(const ProductInput& input, const LinearTarget& target, std::int64_t begin,
                          std::int64_t end, int thread) const {
  const Weight& weight = *target.weight;
  CHECK(weight.cols <= workspace_.inputs, kTooLarge);
  const bool multiplies_bf16 = cpu_multiplies_bf16(forms_, weight.dtype);
  const bool as_is = input_form(weight.dtype) == InputForm::F32;
  const TensorView& x = as_is || !input.rounded ? input.plain : input.rounded;
  const auto* bias = static_cast<const float*>(target.bias.data);
  auto* out = static_cast<float*>(target.out.data);
  if (is_tiled(weight)) {
    return multiply_packed(*isa_.packed, {.dtype = weight.dtype,
                                          .tiles = static_cast<const std::uint8_t*>(weight.data),
                                          .k = weight.cols,
                                          .begin = begin,
                                          .end = end,
                                          .rows = x.rows(),
                                          .blocks = input.blocks,
                                          .rounded = multiplies_bf16 ? input.bf16 : nullptr,
                                          .x = static_cast<const float*>(x.data),
                                          .x_stride = x.row_stride,
                                          .bias = bias,
                                          .accumulate = target.accumulate,
                                          .out = out,
                                          .out_stride = target.out.row_stride,
                                          .room = room_to_open(thread)});
  }
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
                   .out = out + begin,
                   .out_stride = target.out.row_stride,
                   .scratch = needs_scratch ? scratch(thread, kTileCols * weight.cols) : nullptr});
}

// Outputs begin..end of all targets side by side.
void CpuBackend::multiply_across(const ProductInput& input, std::span<const LinearTarget> targets,
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

// with_input() on the normed rows of x, or on those that `indices` names.
template <class Work>
void CpuBackend::with_normed(const NormLinearArgs& args, const TensorView& indices,
                             std::int64_t count, const Work& work) {
  const std::int64_t dim = args.x.dims[1];
  const auto norm_to = [&](float* out, std::int64_t row) {
    const std::int64_t from = indices ? index_at(indices, row) : row;
    CHECK(from >= 0 && from < args.x.rows());
    norm_row(args.norm, args.x.row<float>(from), dim, out);
  };
  with_input(args.normed, args.targets, &norm_to, count, work);
}

void CpuBackend::norm_linear(const NormLinearArgs& args) {
  check_args(args);
  const Chunks chunks(args.targets, args.x.rows(), pool_.num_threads());
  with_normed(args, {}, chunks.count,
              [&](const ProductInput& input, int thread, std::int64_t begin, std::int64_t end) {
                multiply_chunks(input, args.targets, chunks, {begin, end}, thread);
              });
}

// Whoever computes a range of columns computes the gates' too, and activates it at once.
void CpuBackend::mlp_in(const MlpInArgs& args) {
  check_args(args);
  const std::int64_t dim = args.gated ? args.out.dims[1] / 2 : args.out.dims[1];
  const std::int64_t cols = Chunks(args.product.targets, args.out.rows(), pool_.num_threads()).cols;
  const std::int64_t at_once =
      opens_tiles(*isa_.packed, args.out.rows()) ? kOpenedColsAtOnce : kColsAtOnce;
  with_normed(args.product, {}, (dim + cols - 1) / cols,
              [&](const ProductInput& input, int thread, std::int64_t first, std::int64_t last) {
                const std::int64_t all = std::min(last * cols, dim);
                for (std::int64_t begin = first * cols; begin < all; begin += at_once) {
                  const std::int64_t end = std::min(begin + at_once, all);
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
  const Chunks chunks({&target, 1}, args.out.rows(), pool_.num_threads());
  check_args(GatherRowsArgs{.x = args.x, .indices = args.indices, .out = args.picked});
  check_args(LinearArgs{.x = args.picked, .targets = {&target, 1}});
  with_normed({.x = args.x, .norm = args.norm, .normed = args.picked, .targets = {&target, 1}},
              args.indices, chunks.count,
              [&](const ProductInput& input, int thread, std::int64_t first, std::int64_t last) {
                multiply_chunks(input, {&target, 1}, chunks, {first, last}, thread);
                if (args.softcap <= 0) return;
                const std::int64_t begin = first * chunks.cols;
                const std::int64_t end = std::min(last * chunks.cols, args.weight->rows);
                for (std::int64_t row = 0; row < args.out.rows(); ++row) {
                  float* out = args.out.row<float>(row) + begin;
                  kernels_.softcap(out, end - begin, args.softcap, out);
                }
              });
}

}  // namespace llorch::compute
