// The backend for ordinary processors: vectorised kernels for the best instruction set found at run
// time, a team of threads, host memory.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "compute/backend.h"

namespace llorch::compute {

// num_threads >= 1. An empty isa takes the best there is; a name that this machine or build does
// not have is an error that lists those it has. No wish for the input's form: int8 for the block
// types that have tiles, float32 for the others.
Result<std::unique_ptr<Backend>> make_cpu_backend(int num_threads, std::string_view isa,
                                                  std::optional<InputForm> input);
InputForm cpu_input_form(std::optional<InputForm> wish, tensor::DType weight);
// Whether weights of a type are kept in tiles (packed.h) for this use.
bool cpu_has_tiles(std::optional<InputForm> wish, tensor::DType weight, WeightUse use);

// Enough rows for a weight to be read once for many of them; more gain little.
inline constexpr std::int32_t kCpuStepRows = 128;

// How load_weight would keep a matrix; fails as it does.
struct CpuPlacement {
  bool tiled = false;      // repacked for the product kernels
  bool in_place = false;   // the source's own bytes serve
  std::int64_t bytes = 0;  // of the matrix as kept
};
Result<CpuPlacement> place_cpu_weight(const WeightSource& source, std::optional<InputForm> input);

// What reserve() takes, as a function of numbers alone: a plan is made without a backend. In
// floats, whole cache lines each.
struct CpuWorkspace {
  std::int64_t inputs = 0;  // as in StepLimits
  std::int64_t rows = 0;    // as in StepLimits
  std::int64_t num_threads = 0;
  // Of each thread: to decode weights or attend in; an own copy of few rows, their blocks
  // and their rounded form; opened tiles.
  std::int64_t decoded = 0, own_plain = 0, own_blocks = 0, own_rounded = 0, opened = 0;
  // The prepared input of a linear op: as blocks, and in another form where one was wished for.
  std::int64_t blocks = 0, rounded = 0;

  std::int64_t thread_floats() const {
    return decoded + own_plain + own_blocks + own_rounded + opened;
  }
  std::int64_t bytes() const {
    return (thread_floats() * num_threads + blocks + rounded) *
           static_cast<std::int64_t>(sizeof(float));
  }
};
Result<CpuWorkspace> plan_cpu_workspace(const StepLimits& limits, int num_threads,
                                        std::optional<InputForm> input);

}  // namespace llorch::compute
