#include "compute/check_args.h"

#include <limits>

namespace llorch::compute {
namespace {

using tensor::DType;

bool is(const TensorView& view, DType dtype, int rank) {
  return view.data != nullptr && view.dtype == dtype && view.rank == rank;
}
bool is_matrix(const TensorView& view, std::int64_t rows, std::int64_t cols) {
  return is(view, DType::F32, 2) && view.dims[0] == rows && view.dims[1] == cols;
}
bool is_vector(const TensorView& view, std::int64_t size) {
  return is(view, DType::F32, 1) && view.dims[0] == size && view.is_contiguous();
}
bool is_index(const TensorView& view, std::int64_t size) {
  return is(view, DType::I32, 1) && view.dims[0] == size && view.is_contiguous();
}
bool same_shape(const TensorView& a, const TensorView& b) {
  if (a.rank != b.rank) return false;
  for (int axis = 0; axis < a.rank; ++axis) {
    if (a.dims[axis] != b.dims[axis]) return false;
  }
  return true;
}

void check_cache(const KvLayer& cache, std::int64_t kv_heads, std::int64_t head_dim) {
  const DType dtype = cache.keys.dtype;
  CHECK(dtype == DType::F32 || dtype == DType::F16 || dtype == DType::Q8_0);
  CHECK(head_dim % tensor::info(dtype).block_elems == 0);
  CHECK(is(cache.keys, cache.keys.dtype, 4) && is(cache.values, cache.keys.dtype, 4));
  CHECK(same_shape(cache.keys, cache.values));
  CHECK(cache.keys.dims[1] == kv_heads && cache.keys.dims[2] > 0 && cache.keys.dims[3] == head_dim);
}

// Without gaps, in order, within the tables.
void check_runs(const AttentionArgs& args) {
  std::int64_t rows = 0;
  for (const SequenceRun& run : args.runs) {
    CHECK(run.first_row == rows && run.rows > 0 && run.first_position >= 0);
    CHECK(run.sequence >= 0 && run.sequence < args.block_tables.dims[0]);
    const std::int64_t last = std::int64_t{run.first_position} + run.rows - 1;
    CHECK(last / args.cache.keys.dims[2] < args.block_tables.dims[1]);
    rows += run.rows;
  }
  CHECK(rows == args.q.dims[0]);
}

}  // namespace

void check_args(const EmbedArgs& args) {
  CHECK(args.table != nullptr && args.table->use != WeightUse::Multiply);
  CHECK(is_index(args.ids, args.ids.dims[0]));
  CHECK(is_matrix(args.out, args.ids.dims[0], args.table->cols));
}

void check_args(const LayerNormArgs& args) {
  CHECK(is(args.x, DType::F32, 2) && args.x.dims[1] > 0);
  CHECK(is_vector(args.weight, args.x.dims[1]));
  CHECK(!args.bias || is_vector(args.bias, args.x.dims[1]));
  CHECK(is_matrix(args.out, args.x.dims[0], args.x.dims[1]));
}

void check_args(const RmsNormArgs& args) {
  CHECK(is(args.x, DType::F32, 2) || is(args.x, DType::F32, 3));
  const std::int64_t dim = args.x.dims[args.x.rank - 1];
  CHECK(dim > 0 && is_vector(args.weight, dim));
  CHECK(is(args.out, DType::F32, args.x.rank) && same_shape(args.x, args.out));
  CHECK(!args.accumulate || args.out.data != args.x.data);
}

void check_args(const LinearArgs& args) {
  CHECK(is(args.x, DType::F32, 2));
  for (const LinearTarget& target : args.targets) {
    CHECK(target.weight != nullptr && target.weight->cols == args.x.dims[1]);
    CHECK(target.weight->use != WeightUse::LookUp);
    CHECK(!target.bias || is_vector(target.bias, target.weight->rows));
    CHECK(is_matrix(target.out, args.x.dims[0], target.weight->rows));
    CHECK(target.out.data != args.x.data);
  }
}

void check_args(const ActivationArgs& args) {
  CHECK(is(args.x, DType::F32, 2));
  CHECK(is_matrix(args.out, args.x.dims[0], args.x.dims[1]));
  CHECK(!args.gate_with || is_matrix(args.gate_with, args.x.dims[0], args.x.dims[1]));
}

void check_args(const RopeAnglesArgs& args) {
  CHECK(is_index(args.positions, args.positions.dims[0]));
  CHECK(is_vector(args.frequencies, args.frequencies.dims[0]));
  CHECK(is_matrix(args.out, args.positions.dims[0], 2 * args.frequencies.dims[0]));
}

void check_args(const RopeArgs& args) {
  CHECK(is(args.x, DType::F32, 3));
  CHECK(is_matrix(args.angles, args.x.dims[0], args.angles.dims[1]));
  CHECK(args.angles.dims[1] % 2 == 0 && args.angles.dims[1] <= args.x.dims[2]);
}

void check_args(const WriteKvArgs& args) {
  CHECK(is(args.keys, DType::F32, 3) && is(args.values, DType::F32, 3));
  CHECK(same_shape(args.keys, args.values));
  CHECK(is_index(args.slots, args.keys.dims[0]));
  check_cache(args.cache, args.keys.dims[1], args.keys.dims[2]);
}

void check_args(const AttentionArgs& args) {
  CHECK(is(args.q, DType::F32, 3) && is(args.out, DType::F32, 3) && same_shape(args.q, args.out));
  const std::int64_t rows = args.q.dims[0];
  const std::int64_t heads = args.q.dims[1];
  CHECK(is_index(args.positions, rows) && is_index(args.sequences, rows));
  CHECK(is(args.block_tables, DType::I32, 2));
  const std::int64_t kv_heads = args.cache.keys.dims[1];
  CHECK(kv_heads > 0 && heads % kv_heads == 0);
  check_cache(args.cache, kv_heads, args.q.dims[2]);
  CHECK(args.window >= 0);
  check_runs(args);
  if (args.scores) {
    CHECK(is(args.scores, DType::F32, 3) && args.scores.dims[0] == rows &&
          args.scores.dims[1] == heads);
  }
}

void check_args(const GatherRowsArgs& args) {
  CHECK(is(args.x, DType::F32, 2));
  CHECK(is_index(args.indices, args.indices.dims[0]));
  CHECK(is_matrix(args.out, args.indices.dims[0], args.x.dims[1]));
  CHECK(args.out.data != args.x.data);
}

void check_args(const SoftcapArgs& args) {
  CHECK(is(args.x, DType::F32, 2) && args.cap > 0);
  CHECK(is_matrix(args.out, args.x.dims[0], args.x.dims[1]));
}

void check_args(const ArgmaxArgs& args) {
  CHECK(is(args.x, DType::F32, 2) && args.x.dims[1] <= std::numeric_limits<std::int32_t>::max());
  CHECK(is_index(args.out, args.x.dims[0]));
}

void check_args(const DrawArgs& args) {
  check_args(ArgmaxArgs{.x = args.x, .out = args.out});
  CHECK(args.temperatures.dtype == tensor::DType::F32 && args.temperatures.rank == 1 &&
        args.temperatures.rows() == args.x.rows());
  CHECK(args.draws.dtype == tensor::DType::I32 && args.draws.rank == 2 &&
        args.draws.rows() == args.x.rows() && args.draws.dims[1] == 2 &&
        args.draws.row_stride == 2);
}

void check_args(const ChooseArgs& args) {
  check_args(ArgmaxArgs{.x = args.x, .out = args.out});
  CHECK(is(args.rules, DType::I32, 2) && args.rules.rows() == args.x.rows() &&
        args.rules.dims[1] == kChoiceWords && args.rules.row_stride == kChoiceWords);
}

void check_args(const EditLogitsArgs& args) {
  const auto is_words = [](const TensorView& view, std::int64_t words) {
    return is(view, DType::I32, 2) && view.dims[1] == words && view.row_stride == words;
  };
  CHECK(is(args.x, DType::F32, 2) && args.x.dims[1] <= std::numeric_limits<std::int32_t>::max());
  CHECK(is_words(args.rules, kEditWords) && args.rules.rows() == args.x.rows());
  CHECK(!args.changes || is_words(args.changes, kChangeWords));
  CHECK(!args.masks || is_words(args.masks, mask_words(args.x.dims[1])));
}

void check_args(const PlaceHeadsArgs& args) {
  const auto check_heads = [&](const TensorView& heads, const TensorView& norm) {
    if (norm)
      check_args(RmsNormArgs{.x = heads, .weight = norm, .epsilon = args.epsilon, .out = heads});
    if (args.angles) check_args(RopeArgs{.x = heads, .angles = args.angles, .style = args.style});
  };
  check_heads(args.q, args.q_norm);
  check_heads(args.k, args.k_norm);
  check_args(
      WriteKvArgs{.keys = args.k, .values = args.v, .slots = args.slots, .cache = args.cache});
  CHECK(args.q.rows() == args.k.rows() && args.q.dims[2] == args.k.dims[2]);
}

void check_args(const NormLinearArgs& args) {
  CHECK(is_matrix(args.x, args.x.dims[0], args.x.dims[1]) && args.x.data != args.normed.data);
  CHECK(is_vector(args.norm.weight, args.x.dims[1]));
  CHECK(!args.norm.bias || is_vector(args.norm.bias, args.x.dims[1]));
  CHECK(is_matrix(args.normed, args.x.dims[0], args.x.dims[1]));
  check_args(LinearArgs{.x = args.normed, .targets = args.targets});
}

void check_args(const MlpInArgs& args) {
  check_args(args.product);
  CHECK(is(args.out, DType::F32, 2) && (!args.gated || args.out.dims[1] % 2 == 0));
  std::int64_t column = 0;
  for (const LinearTarget& target : args.product.targets) {
    const TensorView part = args.out.columns(column, target.out.dims[1]);
    CHECK(target.out.data == part.data && target.out.row_stride == part.row_stride);
    column += target.out.dims[1];
  }
  CHECK(column == args.out.dims[1]);
}

void check_args(const BeginRowsArgs& args) {
  check_args(args.embed);
  CHECK(!args.found || is_index(args.found, args.found.dims[0]));
  for (const RopeAnglesArgs& angles : args.angles) {
    check_args(angles);
    CHECK(angles.out.rows() == args.embed.out.rows());
  }
}

void check_args(const LogitsArgs& args) {
  check_args(GatherRowsArgs{.x = args.x, .indices = args.indices, .out = args.picked});
  CHECK(is_vector(args.norm.weight, args.x.dims[1]));
  CHECK(!args.norm.bias || is_vector(args.norm.bias, args.x.dims[1]));
  const LinearTarget target{.weight = args.weight, .bias = {}, .out = args.out};
  check_args(LinearArgs{.x = args.picked, .targets = {&target, 1}});
}

void check_args(const ProjectHeadsArgs& args) {
  check_args(args.product);
  check_args(args.heads);
  // Side by side, and the same memory as the heads.
  const PlaceHeadsArgs& heads = args.heads;
  const auto* begin = static_cast<const float*>(heads.q.data);
  const float* next = begin;
  for (const TensorView& part : {heads.q, heads.k, heads.v}) {
    CHECK(part.data == next && part.row_stride == heads.q.row_stride);
    next += part.row_elements();
  }
  const std::int64_t width = next - begin;
  next = begin;
  for (const LinearTarget& target : args.product.targets) {
    CHECK(target.out.data == next && target.out.row_stride == heads.q.row_stride);
    next += target.out.dims[1];
  }
  CHECK(next - begin == width);
}

void check_args(const SoftmaxArgs& args) {
  CHECK(is(args.x, DType::F32, 2));
  CHECK(is_matrix(args.out, args.x.dims[0], args.x.dims[1]));
}

}  // namespace llorch::compute
