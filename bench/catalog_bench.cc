// Reading and writing a catalog of many models: what every command of llorch-pool pays.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "catalog/model_catalog.h"
#include "contract/test_model_entry.h"

namespace llorch::catalog {
namespace {

CatalogContent make_content(std::int64_t models) {
  CatalogContent content;
  content.pool_id = "bench";
  for (std::int64_t i = 0; i < models; ++i) {
    contract::ModelEntry entry = contract::test::full_entry();
    entry.id = fmt::format("model-{:06}", i);
    entry.name = fmt::format("Model number {}", i);
    entry.path = fmt::format("/models/m{}.gguf", i);
    entry.size_bytes += i;
    entry.repo = fmt::format("hf:org/repo-{}::file=model-Q4_K_M.gguf", i);
    entry.files[0].path = fmt::format("m{}.gguf", i);
    entry.files[0].size = entry.size_bytes;
    content.models.push_back(std::move(entry));
  }
  return content;
}

void parse(benchmark::State& state) {
  const std::string text = write_catalog(make_content(state.range(0)));
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(parse_catalog(text));
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(text.size()));
}
BENCHMARK(parse)->Arg(100)->Arg(10'000)->Unit(benchmark::kMillisecond);

void write(benchmark::State& state) {
  const CatalogContent content = make_content(state.range(0));
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(write_catalog(content));
}
BENCHMARK(write)->Arg(100)->Arg(10'000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace llorch::catalog

BENCHMARK_MAIN();
