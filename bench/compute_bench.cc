// Speed of the CPU backend's ops, beside what the memory gives: a product with one row can at best
// read its weights at that rate. GB/s counts weight (or cache) bytes, GFLOP/s multiplications and
// additions.
#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/host_limits.h"
#include "compute/cpu/cpu_backend.h"
#include "compute/cpu/thread_pool.h"
#include "compute/create.h"

namespace {

using namespace llorch;
using compute::Backend;
using compute::Buffer;
using compute::TensorView;
using tensor::DType;

// Larger than any cache: weights are read from memory in every call, as in a model.
constexpr std::int64_t kWorkingSetBytes = std::int64_t{256} << 20;

std::unique_ptr<Backend> make_cpu() {
  auto backend = compute::make_backend("cpu");
  CHECK(backend.ok(), backend.error().message);
  CHECK(backend.value()
            ->reserve({.rows = 128, .inputs = 16384, .context = 8192, .head_dim = 128})
            .ok());
  return backend.take();
}

Buffer allocate(Backend& backend, std::int64_t bytes) {
  auto buffer = backend.allocate(bytes);
  CHECK(buffer.ok(), buffer.error().message);
  return buffer.take();
}

void read_memory(benchmark::State& state) {
  compute::ThreadPool pool(base::usable_cores());
  std::vector<std::uint64_t> memory(
      static_cast<std::size_t>(kWorkingSetBytes) / sizeof(std::uint64_t), 1);
  for ([[maybe_unused]] auto _ : state) {
    pool.parallel_for(static_cast<std::int64_t>(memory.size() / 8),
                      [&](int, std::int64_t begin, std::int64_t end) {
                        std::uint64_t sums[8] = {};
                        for (std::int64_t i = begin; i < end; ++i) {
                          const std::uint64_t* line = memory.data() + 8 * i;
                          for (int lane = 0; lane < 8; ++lane) sums[lane] += line[lane];
                        }
                        benchmark::DoNotOptimize(sums);
                      });
  }
  state.counters["GB/s"] = benchmark::Counter(static_cast<double>(kWorkingSetBytes) * 1e-9,
                                              benchmark::Counter::kIsIterationInvariantRate);
}

void linear(benchmark::State& state, DType dtype) {
  const std::int64_t rows = state.range(0);
  const std::int64_t n = state.range(1);
  const std::int64_t k = state.range(2);
  const auto backend = make_cpu();
  const std::int64_t weight_bytes = tensor::storage_bytes(dtype, n * k).value();
  const std::int64_t num_weights = std::max<std::int64_t>(1, kWorkingSetBytes / weight_bytes);
  // Zero weights take as long as others: no kernel looks at values.
  const std::vector<std::byte> bytes(static_cast<std::size_t>(weight_bytes * num_weights));
  std::vector<compute::Weight> weights;
  for (std::int64_t i = 0; i < num_weights; ++i) {
    const auto part = std::span(bytes).subspan(static_cast<std::size_t>(i * weight_bytes),
                                               static_cast<std::size_t>(weight_bytes));
    weights.push_back(backend
                          ->load_weight({.name = "bench",
                                         .dtype = dtype,
                                         .rows = n,
                                         .cols = k,
                                         .row_stride = k,
                                         .bytes = part})
                          .take());
  }
  const Buffer x = allocate(*backend, rows * k * 4);
  const Buffer out = allocate(*backend, rows * n * 4);
  std::size_t next = 0;
  for ([[maybe_unused]] auto _ : state) {
    const compute::LinearTarget target = {
        .weight = &weights[next], .bias = {}, .out = TensorView(out.data(), DType::F32, {rows, n})};
    backend->linear({.x = TensorView(x.data(), DType::F32, {rows, k}), .targets = {&target, 1}});
    next = (next + 1) % weights.size();
  }
  const auto rate = benchmark::Counter::kIsIterationInvariantRate;
  state.counters["GB/s"] = benchmark::Counter(static_cast<double>(weight_bytes) * 1e-9, rate);
  state.counters["GFLOP/s"] = benchmark::Counter(2e-9 * static_cast<double>(rows * n * k), rate);
  state.SetLabel(backend->name());
}

struct HeadShape {
  std::int64_t heads, kv_heads, head_dim, layers;
};
constexpr HeadShape kHeadShapes[] = {{14, 2, 64, 24}, {9, 3, 64, 30},   {32, 4, 64, 22},
                                     {32, 8, 128, 4}, {12, 12, 64, 12}, {14, 2, 64, 1}};

// Rows at the end of `context` tokens, all layers after each other, as a step reads its cache:
// `rows` of one sequence each, or the last of one sequence where range(3) is 1.
void attention(benchmark::State& state, DType dtype) {
  const HeadShape& shape = kHeadShapes[state.range(0)];
  const std::int64_t rows = state.range(1);
  const std::int64_t context = state.range(2);
  const std::int64_t sequences = state.range(3) == 1 ? 1 : rows;
  constexpr std::int64_t kBlockTokens = 16;
  const auto backend = make_cpu();
  const std::int64_t blocks = context / kBlockTokens;
  const std::int64_t side_elems =
      sequences * blocks * shape.kv_heads * kBlockTokens * shape.head_dim;
  const auto bytes_of = [&](std::int64_t elems) {
    return tensor::storage_bytes(dtype, elems).value();
  };
  const std::int64_t cache_bytes = bytes_of(2 * shape.layers * side_elems);
  const Buffer cache = allocate(*backend, cache_bytes);
  const Buffer q = allocate(*backend, rows * shape.heads * shape.head_dim * 4);
  const Buffer out = allocate(*backend, rows * shape.heads * shape.head_dim * 4);
  std::vector<std::int32_t> tables(static_cast<std::size_t>(sequences * blocks));
  for (std::size_t i = 0; i < tables.size(); ++i) tables[i] = static_cast<std::int32_t>(i);
  std::vector<std::int32_t> positions;
  std::vector<std::int32_t> of_rows;
  std::vector<compute::SequenceRun> runs;
  for (std::int32_t row = 0; row < rows; ++row) {
    of_rows.push_back(sequences == 1 ? 0 : row);
    positions.push_back(
        static_cast<std::int32_t>(sequences == 1 ? context - rows + row : context - 1));
    compute::add_row(runs, of_rows.back(), positions.back());
  }
  const auto side = [&](std::int64_t index) {
    return TensorView(static_cast<std::byte*>(cache.data()) + bytes_of(index * side_elems), dtype,
                      {sequences * blocks, shape.kv_heads, kBlockTokens, shape.head_dim});
  };
  for ([[maybe_unused]] auto _ : state) {
    for (std::int64_t layer = 0; layer < shape.layers; ++layer) {
      backend->attention(
          {.q = TensorView(q.data(), DType::F32, {rows, shape.heads, shape.head_dim}),
           .cache = {side(2 * layer), side(2 * layer + 1)},
           .positions = TensorView(positions.data(), DType::I32, {rows}),
           .sequences = TensorView(of_rows.data(), DType::I32, {rows}),
           .block_tables = TensorView(tables.data(), DType::I32, {sequences, blocks}),
           .runs = runs,
           .scale = 0.088F,
           .out = TensorView(out.data(), DType::F32, {rows, shape.heads, shape.head_dim}),
           .scores = {}});
    }
  }
  const auto rate = benchmark::Counter::kIsIterationInvariantRate;
  state.counters["GB/s"] = benchmark::Counter(1e-9 * static_cast<double>(cache_bytes), rate);
  state.counters["GFLOP/s"] = benchmark::Counter(
      4e-9 * static_cast<double>(rows * shape.heads * context * shape.head_dim * shape.layers),
      rate);
}

void shapes(benchmark::internal::Benchmark* bench) {
  bench->Args({1, 4096, 4096})
      ->Args({2, 4096, 4096})
      ->Args({4, 4096, 4096})
      ->Args({64, 4096, 4096})
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

void contexts(benchmark::internal::Benchmark* bench) {
  for (std::int64_t shape = 0; shape < std::ssize(kHeadShapes); ++shape) {
    bench->Args({shape, 1, 4096, 0});
    bench->Args({shape, 128, 512, 1});
  }
  bench->Args({5, 1, 1024, 0})
      ->Args({0, 16, 1024, 0})
      ->UseRealTime()
      ->MeasureProcessCPUTime()
      ->Unit(benchmark::kMicrosecond);
}

BENCHMARK(read_memory)->UseRealTime()->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(linear, F32, DType::F32)->Apply(shapes);
BENCHMARK_CAPTURE(linear, F16, DType::F16)->Apply(shapes);
BENCHMARK_CAPTURE(linear, Q8_0, DType::Q8_0)->Apply(shapes);
BENCHMARK_CAPTURE(linear, Q4_0, DType::Q4_0)->Apply(shapes);
BENCHMARK_CAPTURE(linear, Q4_K, DType::Q4_K)->Apply(shapes);
BENCHMARK_CAPTURE(linear, Q6_K, DType::Q6_K)->Apply(shapes);
BENCHMARK_CAPTURE(linear, Q5_K, DType::Q5_K)->Apply(shapes);
BENCHMARK_CAPTURE(attention, F32, DType::F32)->Apply(contexts);
BENCHMARK_CAPTURE(attention, F16, DType::F16)->Apply(contexts);
BENCHMARK_CAPTURE(attention, Q8_0, DType::Q8_0)->Apply(contexts);

}  // namespace

BENCHMARK_MAIN();
