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
  CHECK(backend.value()->reserve({.rows = 64, .inputs = 16384, .context = 8192}).ok());
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
  for (auto _ : state) {
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
  for (auto _ : state) {
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

// 32 query heads on 8 key heads of 128; `rows` sequences of `context` tokens.
void attention(benchmark::State& state, DType dtype) {
  const std::int64_t rows = state.range(0);
  const std::int64_t context = state.range(1);
  constexpr std::int64_t kHeads = 32, kKvHeads = 8, kHeadDim = 128, kBlockTokens = 16;
  const auto backend = make_cpu();
  const std::int64_t blocks = context / kBlockTokens;
  const std::int64_t cache_elems = rows * blocks * kKvHeads * kBlockTokens * kHeadDim;
  const std::int64_t cache_bytes = cache_elems * tensor::info(dtype).block_bytes;
  const Buffer keys = allocate(*backend, cache_bytes);
  const Buffer values = allocate(*backend, cache_bytes);
  const Buffer q = allocate(*backend, rows * kHeads * kHeadDim * 4);
  const Buffer out = allocate(*backend, rows * kHeads * kHeadDim * 4);
  std::vector<std::int32_t> tables(static_cast<std::size_t>(rows * blocks));
  for (std::size_t i = 0; i < tables.size(); ++i) tables[i] = static_cast<std::int32_t>(i);
  std::vector<std::int32_t> positions(static_cast<std::size_t>(rows),
                                      static_cast<std::int32_t>(context - 1));
  std::vector<std::int32_t> sequences(static_cast<std::size_t>(rows));
  for (std::size_t i = 0; i < sequences.size(); ++i) sequences[i] = static_cast<std::int32_t>(i);
  const auto cache = [&](const Buffer& buffer) {
    return TensorView(buffer.data(), dtype, {rows * blocks, kKvHeads, kBlockTokens, kHeadDim});
  };
  const compute::AttentionArgs args = {
      .q = TensorView(q.data(), DType::F32, {rows, kHeads, kHeadDim}),
      .cache = {cache(keys), cache(values)},
      .positions = TensorView(positions.data(), DType::I32, {rows}),
      .sequences = TensorView(sequences.data(), DType::I32, {rows}),
      .block_tables = TensorView(tables.data(), DType::I32, {rows, blocks}),
      .scale = 0.088F,
      .out = TensorView(out.data(), DType::F32, {rows, kHeads, kHeadDim}),
      .scores = {}};
  for (auto _ : state) backend->attention(args);
  const auto rate = benchmark::Counter::kIsIterationInvariantRate;
  state.counters["GB/s"] = benchmark::Counter(2e-9 * static_cast<double>(cache_bytes), rate);
  state.counters["GFLOP/s"] =
      benchmark::Counter(4e-9 * static_cast<double>(rows * kHeads * context * kHeadDim), rate);
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
  bench->Args({1, 4096})->Args({16, 1024})->UseRealTime()->Unit(benchmark::kMicrosecond);
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

}  // namespace

BENCHMARK_MAIN();
