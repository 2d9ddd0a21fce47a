#include "compute/cpu/cpu_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/file.h"
#include "base/host_limits.h"
#include "compute/cache_blocks.h"
#include "compute/check_args.h"
#include "compute/cpu/kernels.h"
#include "compute/cpu/thread_pool.h"
#include "compute/host_memory.h"
#include "tensor/half.h"

namespace llorch::compute {
namespace {

using tensor::DType;

// Columns of a linear op that go to a thread together: whole cache lines of output, whole tiles.
constexpr std::int64_t kColsPerChunk = 16;
static_assert(kColsPerChunk % kTileCols == 0);

constexpr const char* kTooLarge = "a step larger than the limits given to reserve()";

std::int64_t index_at(const TensorView& view, std::int64_t i) {
  return *view.row<std::int32_t>(i);
}

const std::uint8_t* weight_row(const Weight& weight, std::int64_t row) {
  return static_cast<const std::uint8_t*>(weight.data) + row * row_bytes(weight);
}

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

class CpuBackend final : public Backend {
 public:
  CpuBackend(const Isa& isa, int num_threads, InputForm input)
      : isa_(isa), kernels_(*isa.kernels), pool_(num_threads), input_(input) {}

  std::string name() const override {
    return fmt::format("cpu ({}, {} thread{}{}{})", isa_.label, pool_.num_threads(),
                       pool_.num_threads() == 1 ? "" : "s",
                       input_ == InputForm::F32 ? "" : ", input ",
                       input_ == InputForm::F32 ? "" : compute::name(input_));
  }

  std::int64_t free_bytes() const override { return base::read_host_memory().free_bytes; }
  Result<Buffer> allocate(std::int64_t bytes) override { return allocate_host(bytes); }
  void upload(std::span<const std::byte> host, void* device) override {
    if (!host.empty()) std::memcpy(device, host.data(), host.size());
  }
  void download(const void* device, std::span<std::byte> host) override {
    if (!host.empty()) std::memcpy(host.data(), device, host.size());
  }
  void synchronize() override {}
  Result<Weight> load_weight(const WeightSource& source) override {
    Result<Weight> weight = load_host_weight(source);
    // Read from the disk now, in order, and not in pieces by whoever asks first.
    if (weight.ok() && weight->data == source.bytes.data()) base::touch_pages(source.bytes);
    return weight;
  }
  InputForm input_form(DType weight) const override { return form_for(input_, weight); }
  Status reserve(const StepLimits& limits) override;

  void embed(const EmbedArgs& args) override;
  void layer_norm(const LayerNormArgs& args) override;
  void rms_norm(const RmsNormArgs& args) override;
  void linear(const LinearArgs& args) override;
  void activation(const ActivationArgs& args) override;
  void rope(const RopeArgs& args) override;
  void write_kv(const WriteKvArgs& args) override;
  void attention(const AttentionArgs& args) override;
  void gather_rows(const GatherRowsArgs& args) override;
  void softmax(const SoftmaxArgs& args) override;

 private:
  template <class Body>
  void for_each_row(std::int64_t rows, const Body& body) {
    pool_.parallel_for(rows, [&body](int thread, std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) body(thread, row);
    });
  }
  float* scratch(int thread, std::int64_t floats) const {
    CHECK(floats <= workspace_.thread_floats, kTooLarge);
    return static_cast<float*>(memory_.data()) + thread * workspace_.thread_floats;
  }
  TensorView prepare_input(const LinearArgs& args);
  void multiply_chunk(const TensorView& x, const LinearTarget& target, std::int64_t chunk,
                      int thread) const;
  void attend(const AttentionArgs& args, std::int64_t row, std::int64_t head, int thread) const;
  void rotate_row(const RopeArgs& args, std::int64_t row) const;

  const Isa isa_;
  const Kernels& kernels_;
  ThreadPool pool_;
  const InputForm input_;
  CpuWorkspace workspace_;
  Buffer memory_;  // the threads' scratch, then the prepared input
};

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
  const auto* weight = static_cast<const float*>(args.weight.data);
  const std::int64_t dim = args.x.dims[args.x.rank - 1];
  const std::int64_t heads = args.x.row_elements() / dim;
  for_each_row(args.x.rows(), [&](int thread, std::int64_t row) {
    for (std::int64_t head = 0; head < heads; ++head) {
      const float* x = args.x.row<float>(row) + head * dim;
      float* out = args.out.row<float>(row) + head * dim;
      float* normed = args.accumulate ? scratch(thread, dim) : out;
      kernels_.rms_norm(x, weight, args.epsilon, dim, normed);
      if (!args.accumulate) continue;
      for (std::int64_t i = 0; i < dim; ++i) out[i] += normed[i];
    }
  });
}

// The input in the form that block types or all types want, once for all targets and in the one
// place that reserve() made for it. Kernels multiply floats: what the form stands for is stored.
TensorView CpuBackend::prepare_input(const LinearArgs& args) {
  const auto wants_form = [this](const LinearTarget& target) {
    return input_form(target.weight->dtype) != InputForm::F32;
  };
  if (std::none_of(args.targets.begin(), args.targets.end(), wants_form)) return {};
  CHECK(args.x.elements() <= workspace_.input_floats, kTooLarge);
  float* home =
      static_cast<float*>(memory_.data()) + workspace_.num_threads * workspace_.thread_floats;
  const TensorView prepared(home, DType::F32, {args.x.dims[0], args.x.dims[1]});
  for_each_row(args.x.rows(), [&](int, std::int64_t row) {
    round_input(input_, {args.x.row<float>(row), static_cast<std::size_t>(args.x.dims[1])},
                prepared.row<float>(row));
  });
  return prepared;
}

// All targets are one loop, so that the threads meet once.
void CpuBackend::linear(const LinearArgs& args) {
  check_args(args);
  const TensorView prepared = prepare_input(args);
  const auto num_chunks = [](const LinearTarget& target) {
    return (target.weight->rows + kColsPerChunk - 1) / kColsPerChunk;
  };
  std::int64_t chunks = 0;
  for (const LinearTarget& target : args.targets) chunks += num_chunks(target);
  pool_.parallel_for(chunks, [&](int thread, std::int64_t begin, std::int64_t end) {
    for (const LinearTarget& target : args.targets) {
      const std::int64_t count = num_chunks(target);
      for (std::int64_t chunk = std::max<std::int64_t>(begin, 0); chunk < std::min(end, count);
           ++chunk) {
        const bool as_is = input_form(target.weight->dtype) == InputForm::F32;
        multiply_chunk(as_is ? args.x : prepared, target, chunk, thread);
      }
      begin -= count;
      end -= count;
    }
  });
}

void CpuBackend::multiply_chunk(const TensorView& x, const LinearTarget& target, std::int64_t chunk,
                                int thread) const {
  const Weight& weight = *target.weight;
  const std::int64_t begin = chunk * kColsPerChunk;
  const auto* bias = static_cast<const float*>(target.bias.data);
  const bool needs_scratch = weight.dtype != DType::F32;
  kernels_.linear({.x = static_cast<const float*>(x.data),
                   .x_stride = x.row_stride,
                   .rows = x.rows(),
                   .dtype = weight.dtype,
                   .weight = weight_row(weight, begin),
                   .row_bytes = row_bytes(weight),
                   .k = weight.cols,
                   .cols = std::min(kColsPerChunk, weight.rows - begin),
                   .bias = bias != nullptr ? bias + begin : nullptr,
                   .accumulate = target.accumulate,
                   .out = static_cast<float*>(target.out.data) + begin,
                   .out_stride = target.out.row_stride,
                   .scratch = needs_scratch ? scratch(thread, kTileCols * weight.cols) : nullptr});
}

void CpuBackend::activation(const ActivationArgs& args) {
  check_args(args);
  for_each_row(args.x.rows(), [&](int, std::int64_t row) {
    const float* gate = args.gate_with ? args.gate_with.row<float>(row) : nullptr;
    kernels_.activation(args.kind, args.x.row<float>(row), gate, args.x.dims[1],
                        args.out.row<float>(row));
  });
}

void CpuBackend::rope(const RopeArgs& args) {
  check_args(args);
  for_each_row(args.x.rows(), [&](int, std::int64_t row) { rotate_row(args, row); });
}

// Cosines and sines are computed once per row, in double: at position 100,000 a float angle is
// wrong in the second decimal.
void CpuBackend::rotate_row(const RopeArgs& args, std::int64_t row) const {
  constexpr std::int64_t kRange = 64;
  std::array<float, kRange> cosines;
  std::array<float, kRange> sines;
  const std::int64_t half = args.frequencies.dims[0];
  const auto* frequencies = static_cast<const float*>(args.frequencies.data);
  const auto position = static_cast<double>(index_at(args.positions, row));
  for (std::int64_t begin = 0; begin < half; begin += kRange) {
    const std::int64_t count = std::min(kRange, half - begin);
    for (std::int64_t i = 0; i < count; ++i) {
      const double angle = position * static_cast<double>(frequencies[begin + i]);
      const auto magnitude = static_cast<double>(args.magnitude);
      cosines[static_cast<std::size_t>(i)] = static_cast<float>(std::cos(angle) * magnitude);
      sines[static_cast<std::size_t>(i)] = static_cast<float>(std::sin(angle) * magnitude);
    }
    const Rotation rotation = {args.style, half, begin, count, cosines.data(), sines.data()};
    for (std::int64_t head = 0; head < args.x.dims[1]; ++head) {
      kernels_.rotate(rotation, args.x.row<float>(row) + head * args.x.dims[2]);
    }
  }
}

void CpuBackend::write_kv(const WriteKvArgs& args) {
  check_args(args);
  const TensorView& keys = args.cache.keys;
  const TensorView& values = args.cache.values;
  const std::int64_t head_dim = keys.dims[3];
  for_each_row(args.keys.rows(), [&](int, std::int64_t row) {
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

void CpuBackend::gather_rows(const GatherRowsArgs& args) {
  check_args(args);
  for_each_row(args.out.rows(), [&](int, std::int64_t row) {
    const std::int64_t from = index_at(args.indices, row);
    CHECK(from >= 0 && from < args.x.rows());
    std::copy_n(args.x.row<float>(from), args.x.dims[1], args.out.row<float>(row));
  });
}

void CpuBackend::softmax(const SoftmaxArgs& args) {
  check_args(args);
  for_each_row(args.x.rows(), [&](int, std::int64_t row) {
    kernels_.softmax(args.x.row<float>(row), args.x.dims[1], args.out.row<float>(row));
  });
}

}  // namespace

Result<CpuWorkspace> plan_cpu_workspace(const StepLimits& limits, int num_threads,
                                        InputForm input) {
  constexpr std::int64_t kLineFloats = 16;
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
  const std::int64_t floats = std::max(kTileCols * limits.inputs, limits.context);
  return CpuWorkspace{
      .thread_floats = (floats + kLineFloats - 1) / kLineFloats * kLineFloats,
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
