// Decode steps that came before, kept as graphs: launched as one, without the host's work for each
// kernel.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <list>
#include <optional>

#include "compute/backend.h"

namespace llorch::compute::cuda {

// Two steps of one key enqueue the same kernels with the same arguments.
struct GraphKey {
  std::int64_t rows = 0;
  std::int64_t sequences = 0;
  std::int64_t logit_rows = 0;
  std::int64_t argmax_rows = 0;
  bool draws = false;
  bool chooses = false;
  std::int64_t hidden_rows = 0;
  std::int64_t table_width = 0;
  const void* owner = nullptr;
  int splits = 0;
  bool operator==(const GraphKey&) const = default;
};

// Nothing where a step is not one to keep: several rows of a sequence, or results read between ops.
std::optional<GraphKey> find_graph_key(const StepShape& shape);

// Owned by one backend; one thread.
class StepGraphs {
 public:
  explicit StepGraphs(cudaStream_t stream) : stream_(stream) {}
  StepGraphs(const StepGraphs&) = delete;
  StepGraphs& operator=(const StepGraphs&) = delete;
  ~StepGraphs();

  // True: the step is known and end() launches it; its ops are not to be enqueued. Else they are:
  // they run at once, or at end() where the step is being captured.
  bool begin(const StepShape& shape);
  // False: there was no memory for the graph of what was captured, and none of it ran. When the
  // step begins again it is launched op by op, this time and from then on.
  bool end();
  bool is_capturing() const { return state_ == State::Capturing; }
  // Forgets all: the memory that kernels were told of is another one now.
  void clear();

 private:
  enum class State { Idle, Plain, Capturing, Replaying };
  struct Entry {
    GraphKey key;
    cudaGraphExec_t graph = nullptr;  // null: seen once
    bool is_refused = false;          // no memory for it
  };
  // Null where the device has no memory for it.
  cudaGraphExec_t instantiate(cudaGraph_t graph);

  static constexpr std::size_t kEntriesMax = 64;

  cudaStream_t stream_;
  State state_ = State::Idle;
  std::list<Entry> entries_;  // the latest first
};

}  // namespace llorch::compute::cuda
