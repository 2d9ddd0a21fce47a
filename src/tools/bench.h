// How fast a model runs here, beside what the machine could do in the same second.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/energy.h"
#include "base/result.h"
#include "compute/limits.h"
#include "tensor/dtype.h"

namespace llorch::tools {

struct BenchRequest {
  std::filesystem::path model;
  std::int32_t prompt = 512;    // tokens of a prefill; 0: none
  std::int32_t generate = 128;  // tokens of a decode; 0: none
  std::int32_t depth = 0;       // tokens in the cache before either
  std::int32_t batch = 1;       // sequences that decode together
  std::int32_t repeats = 5;
  int threads = 0;              // 0: one for each core
  std::string isa;              // empty: the best
  std::string backend = "cpu";  // or cuda:N
  tensor::DType kv = tensor::DType::F16;
  std::function<std::vector<base::EnergyCounter>()> read_energy = [] {
    return base::read_processor_energy();
  };
};

// One test, e.g. the prefill of 512 tokens. Speeds are of all sequences together.
struct BenchRow {
  std::string test;                       // "pp512", "tg128", "tg128 @ 4096", "tg128 x 16"
  std::vector<double> tokens_per_second;  // of each repeat
  std::vector<double> limits;             // what the machine could do at best, beside each repeat
  std::vector<double> core_ms;            // processor time a token, of all threads together
  std::vector<double> joules;  // a token, of all processors of the machine; none: not counted here
  double best() const;
  double mean() const;
  double deviation() const;
  double share() const;  // of the limits, mean over the repeats
  double least_core_ms() const;
  double mean_joules() const;
};

struct BenchReport {
  std::string model, type, backend;
  int threads = 0;
  std::int64_t file_bytes = 0;
  std::int64_t parameters = 0;
  double load_seconds = 0;
  double first_token_seconds = 0;  // the prompt and the first token after it
  std::int64_t peak_bytes = 0;     // of this process
  std::vector<BenchRow> rows;
  std::vector<compute::HostLimits> limits;  // beside each repeat of each test
};

// What a step moves and computes.
struct StepCost {
  double weight_bytes = 0;  // read once a step, however many rows it has
  double cache_bytes = 0;   // read for each row, for each token before it
  double ops = 0;           // products and sums for each row, without the output matrix
  double output_ops = 0;    // for each row that wants logits
  // Of what most of them are: bytes, BF16 on both sides, floats.
  enum class Numbers : std::uint8_t { Float, Bf16, Whole } numbers = Numbers::Float;
};

// The most tokens a second that limits allow: reading at full speed or computing at full speed,
// whichever takes longer. `rows` of a step, `logit_rows` of them with logits, `context` before
// them.
double limit_of(const StepCost& cost, const compute::HostLimits& limits, double rows,
                double logit_rows, double context);

using BenchProgress = std::function<void(const std::string& what)>;
Result<BenchReport> run_bench(const BenchRequest& request, const BenchProgress& progress);

}  // namespace llorch::tools
