#include "tools/bench.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "base/host_limits.h"
#include "base/process_table.h"
#include "compute/create.h"
#include "formats/open.h"
#include "formats/summary.h"
#include "model/load.h"

namespace llorch::tools {
namespace {

using Clock = std::chrono::steady_clock;

// Of all threads of this process; waiting that spins counts.
double processor_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::int32_t blocks_each(const BenchRequest& request, std::int32_t block_tokens) {
  const std::int32_t longest = request.depth + std::max(request.prompt, request.generate) + 1;
  return (longest + block_tokens - 1) / block_tokens;
}

Result<std::unique_ptr<model::TransformerRunner>> make_runner(
    const std::shared_ptr<const model::LoadedModel>& loaded, compute::Backend& backend,
    const BenchRequest& request) {
  model::RunnerOptions options;
  options.kv_dtype = request.kv;
  options.limits.sequences = request.batch;
  options.limits.logit_rows = request.batch;
  options.limits.num_blocks = blocks_each(request, options.limits.block_tokens) * request.batch;
  return model::TransformerRunner::make(loaded, backend, options);
}

std::string name_of(std::string_view kind, std::int32_t tokens, const BenchRequest& request) {
  std::string name = fmt::format("{}{}", kind, tokens);
  if (kind == "tg" && request.batch > 1) name += fmt::format(" x {}", request.batch);
  if (request.depth > 0) name += fmt::format(" @ {}", request.depth);
  return name;
}

// Sequences with cache blocks of their own, run in steps as an engine would.
class Bench {
 public:
  Bench(model::ModelRunner& runner, const BenchRequest& request)
      : runner_(runner),
        request_(request),
        blocks_each_(blocks_each(request, runner.limits().block_tokens)) {
    blocks_.resize(static_cast<std::size_t>(request.batch) *
                   static_cast<std::size_t>(blocks_each_));
    std::iota(blocks_.begin(), blocks_.end(), 0);
  }

  // Runs what was asked for and adds it to the report.
  Status measure(const StepCost& cost, const BenchProgress& progress, BenchReport& report) {
    if (request_.depth > 0) {
      progress(fmt::format("filling the cache with {} tokens", request_.depth));
      for (std::int32_t s = 0; s < request_.batch; ++s) prefill(s, 0, request_.depth);
    }
    decode(request_.batch, request_.depth, 1);  // whatever is done on first use
    if (request_.prompt > 0) {
      const Clock::time_point start = Clock::now();
      prefill(0, request_.depth, request_.prompt);
      report.first_token_seconds = seconds_since(start);
    }
    report.peak_bytes = base::read_process_memory(::getpid()).peak_bytes;
    if (request_.prompt > 0) {
      const double rows = std::min(request_.prompt, runner_.limits().rows);
      // The output matrix belongs to the last step alone; it is left out of the limit.
      const Status done = repeat(
          name_of("pp", request_.prompt, request_), request_.prompt, report, progress,
          [&](const compute::HostLimits& limits) { return limit_of(cost, limits, rows, 0, 0); },
          [&] { prefill(0, request_.depth, request_.prompt); });
      if (!done.ok()) return done;
    }
    if (request_.generate == 0) return ok_status();
    const double batch = request_.batch;
    const double context = request_.depth + request_.generate / 2.0;
    return repeat(
        name_of("tg", request_.generate, request_), batch * request_.generate, report, progress,
        [&](const compute::HostLimits& limits) {
          return limit_of(cost, limits, batch, batch, context);
        },
        [&] { decode(request_.batch, request_.depth, request_.generate); });
  }

 private:
  // One row of the report: each repeat beside the machine's limits of the same second.
  template <class Limit, class Work>
  Status repeat(std::string test, double tokens, BenchReport& report, const BenchProgress& progress,
                const Limit& limit, const Work& work) {
    BenchRow row{.test = std::move(test),
                 .tokens_per_second = {},
                 .limits = {},
                 .core_ms = {},
                 .joules = {}};
    for (std::int32_t i = 0; i < request_.repeats; ++i) {
      progress(fmt::format("{}: {} of {}", row.test, i + 1, request_.repeats));
      const Result<compute::HostLimits> limits =
          compute::measure_limits(request_.backend, report.threads);
      if (!limits.ok()) return limits.error();
      report.limits.push_back(*limits);
      row.limits.push_back(limit(*limits));
      const auto energy = request_.read_energy();
      const double used = processor_seconds();
      const Clock::time_point start = Clock::now();
      work();
      row.tokens_per_second.push_back(tokens / seconds_since(start));
      row.core_ms.push_back(1e3 * (processor_seconds() - used) / tokens);
      if (energy.empty()) continue;
      const auto now = request_.read_energy();
      row.joules.push_back(base::joules_between(energy, now) / tokens);
    }
    report.rows.push_back(std::move(row));
    return ok_status();
  }

  // `count` tokens of one sequence from position `begin` on; the id after the last.
  std::int32_t prefill(std::int32_t sequence, std::int32_t begin, std::int32_t count) {
    std::int32_t next = 0;
    for (std::int32_t at = 0; at < count; at += runner_.limits().rows) {
      const std::int32_t end = std::min(at + runner_.limits().rows, count);
      model::BatchPlan plan;
      plan.block_tables = {blocks_of(sequence)};
      for (std::int32_t i = at; i < end; ++i) {
        plan.rows.push_back({.token = (7 * i + 1) % runner_.vocab_size(),
                             .position = begin + i,
                             .sequence = 0,
                             .wants_argmax = i + 1 == count});
      }
      const model::StepOutput output = runner_.forward(plan);
      if (end == count) next = output.argmax.front();
    }
    return std::max(next, 0);
  }

  // `count` tokens for each of `batch` sequences. Where the runner takes two steps in flight, the
  // next one is submitted before the ids of the last are looked at, as the engine does.
  void decode(std::int32_t batch, std::int32_t begin, std::int32_t count) {
    std::vector<std::int32_t> tokens(static_cast<std::size_t>(batch), 1);
    const std::int32_t depth = runner_.limits().steps_in_flight;
    std::int32_t in_flight = 0;
    const auto collect = [&] {
      const model::StepOutput output = runner_.collect();
      for (std::size_t s = 0; s < tokens.size(); ++s) tokens[s] = std::max(output.argmax[s], 0);
      --in_flight;
    };
    for (std::int32_t i = 0; i < count; ++i) {
      model::BatchPlan plan;
      for (std::int32_t s = 0; s < batch; ++s) {
        plan.block_tables.push_back(blocks_of(s));
        plan.rows.push_back({.token = tokens[static_cast<std::size_t>(s)],
                             .position = begin + i,
                             .sequence = s,
                             .wants_argmax = true,
                             .awaited = in_flight > 0 ? s : -1});
      }
      runner_.submit(plan);
      if (++in_flight == depth) collect();
    }
    while (in_flight > 0) collect();
  }

  std::span<const std::int32_t> blocks_of(std::int32_t sequence) const {
    const auto count = static_cast<std::size_t>(blocks_each_);
    return std::span(blocks_).subspan(static_cast<std::size_t>(sequence) * count, count);
  }

  model::ModelRunner& runner_;
  const BenchRequest& request_;
  const std::int32_t blocks_each_;
  std::vector<std::int32_t> blocks_;
};

StepCost cost_of(const model::LoadedModel& model, tensor::DType kv,
                 const compute::Backend& backend) {
  StepCost cost;
  double whole = 0;
  double bf16 = 0;
  const auto count = [&](const compute::Weight& weight, double& ops) {
    const std::int64_t values = weight.rows * weight.cols;
    cost.weight_bytes += static_cast<double>(tensor::storage_bytes(weight.dtype, values).value());
    ops += 2.0 * static_cast<double>(values);
    const compute::InputForm form = backend.input_form(weight.dtype);
    if (form == compute::InputForm::Int8) whole += 2.0 * static_cast<double>(values);
    if (form == compute::InputForm::BF16) bf16 += 2.0 * static_cast<double>(values);
  };
  for (const model::LayerWeights& layer : model.weights.layers) {
    for (const model::Linear& linear : layer.qkv) count(linear.weight, cost.ops);
    for (const model::Linear& linear : layer.ffn_in) count(linear.weight, cost.ops);
    count(layer.attn_out.weight, cost.ops);
    count(layer.ffn_out.weight, cost.ops);
  }
  count(model.weights.output_matrix(), cost.output_ops);
  const model::ModelConfig& config = model.config;
  const std::int64_t cached =
      std::int64_t{2} * config.num_layers * config.num_kv_heads * config.head_dim;
  cost.cache_bytes = static_cast<double>(tensor::storage_bytes(kv, cached).value());
  const double most = 0.5 * (cost.ops + cost.output_ops);
  cost.numbers = whole > most  ? StepCost::Numbers::Whole
                 : bf16 > most ? StepCost::Numbers::Bf16
                               : StepCost::Numbers::Float;
  return cost;
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

Status check_length(const BenchRequest& request, const model::ModelConfig& config) {
  const std::int32_t longest = request.depth + std::max(request.prompt, request.generate) + 1;
  if (longest <= config.context_length) return ok_status();
  return Error{ErrorCode::InvalidArgument,
               fmt::format("{} tokens are more than the model's context of {}; use smaller -p, -n "
                           "or -d",
                           longest, config.context_length)};
}

}  // namespace

double BenchRow::best() const {
  return *std::max_element(tokens_per_second.begin(), tokens_per_second.end());
}
double BenchRow::least_core_ms() const {
  return *std::min_element(core_ms.begin(), core_ms.end());
}
double BenchRow::mean() const {
  return mean_of(tokens_per_second);
}
double BenchRow::mean_joules() const {
  return mean_of(joules);
}
double BenchRow::deviation() const {
  double squares = 0;
  for (const double speed : tokens_per_second) squares += (speed - mean()) * (speed - mean());
  const auto count = static_cast<double>(tokens_per_second.size());
  return count < 2 ? 0 : std::sqrt(squares / (count - 1));
}
double BenchRow::share() const {
  double sum = 0;
  for (std::size_t i = 0; i < limits.size(); ++i) sum += tokens_per_second[i] / limits[i];
  return sum / static_cast<double>(limits.size());
}

double limit_of(const StepCost& cost, const compute::HostLimits& limits, double rows,
                double logit_rows, double context) {
  const double bytes = cost.weight_bytes + rows * context * cost.cache_bytes;
  const double ops = rows * cost.ops + logit_rows * cost.output_ops;
  const double reading = bytes / limits.read_bytes_per_second;
  const double speed = cost.numbers == StepCost::Numbers::Whole  ? limits.int8_ops_per_second
                       : cost.numbers == StepCost::Numbers::Bf16 ? limits.bf16_ops_per_second
                                                                 : limits.float_ops_per_second;
  const double computing = speed > 0 ? ops / speed : 0;
  return rows / std::max(reading, computing);
}

Result<BenchReport> run_bench(const BenchRequest& request, const BenchProgress& progress) {
  const int threads = request.threads > 0 ? request.threads : base::usable_cores();
  Result<std::unique_ptr<compute::Backend>> backend =
      compute::make_backend(request.backend, {.threads = threads, .isa = request.isa});
  if (!backend.ok()) return backend.error();
  BenchReport report{.model = request.model.filename().string(),
                     .type = {},
                     .backend = backend.value()->name(),
                     .threads = threads,
                     .rows = {},
                     .limits = {}};
  progress("loading");
  const Clock::time_point begin = Clock::now();
  Result<std::shared_ptr<const model::LoadedModel>> loaded =
      model::load_model(request.model, *backend.value());
  if (!loaded.ok()) return loaded.error();
  report.load_seconds = seconds_since(begin);
  const model::LoadedModel& model = *loaded.value();
  if (const Status length = check_length(request, model.config); !length.ok())
    return length.error().in(request.model.string());
  const formats::FileSummary summary = formats::summarize(*model.file);
  report.type = summary.quantization;
  report.file_bytes = summary.file_bytes;
  report.parameters = model.num_parameters;
  Result<std::unique_ptr<model::TransformerRunner>> runner =
      make_runner(loaded.value(), *backend.value(), request);
  if (!runner.ok()) return runner.error();
  const StepCost cost = cost_of(model, request.kv, *backend.value());
  Bench bench(*runner.value(), request);
  const Status measured = bench.measure(cost, progress, report);
  if (!measured.ok()) return measured.error();
  return report;
}

}  // namespace llorch::tools
