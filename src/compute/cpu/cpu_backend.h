// The backend for ordinary processors: vectorised kernels for the best instruction set found at run
// time, a team of threads, host memory.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "compute/backend.h"

namespace llorch::compute {

// What the form of a product's input follows from. No wish: int8 for the block types that have
// tiles, bfloat16 for BF16 where the instruction set multiplies such numbers, float32 for the
// others.
struct CpuForms {
  std::optional<InputForm> wish;
  bool has_bf16 = false;
};
// With the instruction set of that name; with the best there is where it is empty or unknown.
CpuForms cpu_forms(std::string_view isa, std::optional<InputForm> wish);
InputForm cpu_input_form(const CpuForms& forms, tensor::DType weight);

// num_threads >= 1. An empty isa takes the best there is; a name that this machine or build does
// not have is an error that lists those it has.
Result<std::unique_ptr<Backend>> make_cpu_backend(int num_threads, std::string_view isa,
                                                  std::optional<InputForm> input);
// Whether weights of a type are kept in tiles (packed.h) for this use.
bool cpu_has_tiles(const CpuForms& forms, tensor::DType weight, WeightUse use);
// Whether products with them are of bfloat16 numbers on both sides.
bool cpu_multiplies_bf16(const CpuForms& forms, tensor::DType weight);

// Enough rows for a weight to be read once for many of them; more gain little.
inline constexpr std::int32_t kCpuStepRows = 128;

// How load_weight would keep a matrix; fails as it does.
struct CpuPlacement {
  bool tiled = false;      // repacked for the product kernels
  bool in_place = false;   // the source's own bytes serve
  std::int64_t bytes = 0;  // of the matrix as kept
};
Result<CpuPlacement> place_cpu_weight(const WeightSource& source, const CpuForms& forms);

// What reserve() takes, as a function of numbers alone: a plan is made without a backend. In
// floats, whole cache lines each.
struct CpuWorkspace {
  std::int64_t inputs = 0;  // as in StepLimits
  std::int64_t rows = 0;    // as in StepLimits
  std::int64_t num_threads = 0;
  // The prepared input of a linear op: as blocks of whole numbers, as bfloat16 numbers, and as
  // floats in another form where one was wished for.
  struct Prepared {
    std::int64_t blocks = 0, bf16 = 0, rounded = 0;
    std::int64_t floats() const { return blocks + bf16 + rounded; }
  };
  // Of each thread: to decode weights or attend in; an own copy of few rows, and those prepared;
  // opened tiles.
  std::int64_t decoded = 0, own_plain = 0;
  Prepared own;
  std::int64_t opened = 0;
  // Of all threads together; what attention has of the chunks of long contexts.
  Prepared shared;
  std::int64_t parts = 0;

  std::int64_t thread_floats() const { return decoded + own_plain + own.floats() + opened; }
  std::int64_t bytes() const {
    return (thread_floats() * num_threads + shared.floats() + parts) *
           static_cast<std::int64_t>(sizeof(float));
  }
};
Result<CpuWorkspace> plan_cpu_workspace(const StepLimits& limits, int num_threads,
                                        const CpuForms& forms);

}  // namespace llorch::compute
