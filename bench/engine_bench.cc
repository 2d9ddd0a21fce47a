// What the engine itself costs: scheduling, bookkeeping and sampling around a model that takes no
// time. The figure to read is us_per_token.
#include <benchmark/benchmark.h>

#include <random>

#include "engine/core.h"

namespace llorch::engine {
namespace {

constexpr std::int32_t kContext = 4096;

class InstantRunner final : public model::ModelRunner {
 public:
  // Flat: all tokens nearly equally likely, so that every weight counts.
  InstantRunner(std::int32_t vocab_size, std::int32_t sequences, bool is_flat)
      : vocab_size_(vocab_size),
        limits_{.rows = 64, .sequences = sequences, .num_blocks = sequences * kContext / 16} {
    // Like those of a trained model: a few likely tokens over a broad field of unlikely ones.
    std::mt19937 random(1);
    std::normal_distribution<float> field(-8, 2.5F), likely(6, 2);
    logits_.resize(static_cast<std::size_t>(vocab_size) * static_cast<std::size_t>(sequences));
    for (float& logit : logits_) {
      if (is_flat) {
        logit = field(random) * 0.2F;
      } else {
        logit = random() % 1000 == 0 ? likely(random) : field(random);
      }
    }
  }
  std::int32_t vocab_size() const override { return vocab_size_; }
  std::int32_t hidden_dim() const override { return 1; }
  std::int32_t context_length() const override { return kContext; }
  const model::RunnerLimits& limits() const override { return limits_; }
  void submit(const model::BatchPlan& plan) override { benchmark::DoNotOptimize(plan.rows.data()); }
  model::StepOutput collect() override { return {.logits = logits_}; }

 private:
  std::int32_t vocab_size_;
  model::RunnerLimits limits_;
  std::vector<float> logits_;
};

class SilentSink final : public GenerationSink {
 public:
  void on_started(const GenerationStarted& /*started*/) override {}
  Verdict on_token(const GeneratedToken& /*token*/) override { return Verdict::Continue; }
  void on_finished(const GenerationEnd& /*end*/) override {}
};

class SilentHost final : public StepHost {
 public:
  const std::atomic<bool>* step_begins(std::span<const StepShare> /*shares*/) override {
    return nullptr;
  }
  void step_ended(std::span<const StepShare> /*shares*/, bool /*aborted*/,
                  std::vector<GenerationId>& /*cancelled*/) override {}
  void report(const EngineStats& now, std::span<const GenerationId> /*ended*/) override {
    tokens = now.output_tokens;
  }
  std::int64_t tokens = 0;
};

void run_decode(benchmark::State& state, const SamplingParams& sampling, bool is_flat) {
  const auto vocab_size = static_cast<std::int32_t>(state.range(0));
  const auto sequences = static_cast<std::int32_t>(state.range(1));
  const auto sampling_threads = static_cast<std::int32_t>(state.range(2));
  EngineCore core(std::make_unique<InstantRunner>(vocab_size, sequences, is_flat),
                  {.max_running = sequences, .sampling_threads = sampling_threads});
  SilentHost host;
  GenerationId id = 0;
  for ([[maybe_unused]] auto _ : state) {
    if (core.idle()) {
      for (std::int32_t i = 0; i < sequences; ++i) {
        GenerationRequest request;
        request.prompt.assign(4, i);
        request.max_tokens = kContext - 4;
        request.sampling = sampling;
        core.add(std::make_unique<Sequence>(++id, std::move(request),
                                            std::make_shared<SilentSink>(), Clock::now()));
      }
    }
    core.step(host);
  }
  state.counters["us_per_token"] =
      benchmark::Counter(static_cast<double>(host.tokens) / 1e6,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void register_all() {
  struct Case {
    const char* name;
    SamplingParams sampling;
    bool is_flat = false;
  };
  const std::vector<Case> cases = {{"greedy", {.temperature = 0}},
                                   {"temperature", {.temperature = 0.8F}},
                                   {"temperature_flat", {.temperature = 0.8F}, true},
                                   {"top_k_40", {.temperature = 0.8F, .top_k = 40, .top_p = 0.95F}},
                                   {"top_p_0.9", {.temperature = 0.8F, .top_p = 0.9F}},
                                   {"min_p_0.05", {.temperature = 0.8F, .min_p = 0.05F}},
                                   {"penalties", {.temperature = 0, .repetition_penalty = 1.1F}},
                                   {"logprobs_5", {.temperature = 0, .top_logprobs = 5}}};
  for (const Case& one : cases) {
    benchmark::RegisterBenchmark(
        one.name, [one](benchmark::State& state) { run_decode(state, one.sampling, one.is_flat); })
        ->ArgsProduct({{32000, 152064}, {1, 16}, {1, 2}})
        ->ArgNames({"vocab", "sequences", "threads"})
        ->UseRealTime()
        ->Unit(benchmark::kMicrosecond)
        ->MinTime(0.2);
  }
}

}  // namespace
}  // namespace llorch::engine

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  llorch::engine::register_all();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
