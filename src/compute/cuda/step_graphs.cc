#include "compute/cuda/step_graphs.h"

#include <algorithm>

#include "compute/cuda/check.h"
#include "compute/cuda/tiled_attention.h"

namespace llorch::compute::cuda {

std::optional<GraphKey> find_graph_key(const StepShape& shape) {
  if (shape.observed || shape.owner == nullptr || shape.given_rows > 0) return std::nullopt;
  std::int64_t last_position = 0;
  for (const SequenceRun& run : shape.runs) {
    if (run.rows > 1) return std::nullopt;
    last_position = std::max<std::int64_t>(last_position, run.first_position);
  }
  return GraphKey{.rows = shape.rows,
                  .sequences = shape.sequences,
                  .logit_rows = shape.logit_rows,
                  .argmax_rows = shape.argmax_rows,
                  .draws = shape.draws,
                  .chooses = shape.chooses,
                  .hidden_rows = shape.hidden_rows,
                  .table_width = shape.table_width,
                  .owner = shape.owner,
                  .splits = splits_for(last_position)};
}

StepGraphs::~StepGraphs() {
  clear();
}

void StepGraphs::clear() {
  for (const Entry& entry : entries_) {
    if (entry.graph != nullptr) cudaGraphExecDestroy(entry.graph);
  }
  entries_.clear();
}

bool StepGraphs::begin(const StepShape& shape) {
  CHECK(state_ == State::Idle);
  state_ = State::Plain;
  const std::optional<GraphKey> key = find_graph_key(shape);
  if (!key) return false;
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& entry) { return entry.key == *key; });
  if (found == entries_.end()) {
    // A shape that comes once is not worth a graph.
    entries_.push_front({.key = *key});
    if (entries_.size() > kEntriesMax) {
      if (entries_.back().graph != nullptr) cudaGraphExecDestroy(entries_.back().graph);
      entries_.pop_back();
    }
    return false;
  }
  entries_.splice(entries_.begin(), entries_, found);
  if (entries_.front().graph != nullptr) {
    state_ = State::Replaying;
    return true;
  }
  if (entries_.front().is_refused) return false;
  check_cuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
             "cudaStreamBeginCapture");
  state_ = State::Capturing;
  return false;
}

cudaGraphExec_t StepGraphs::instantiate(cudaGraph_t graph) {
  cudaGraphExec_t made = nullptr;
  cudaError_t status = cudaGraphInstantiate(&made, graph, 0);
  // What it needs is taken now, not when it is launched.
  if (status == cudaSuccess) {
    status = cudaGraphUpload(made, stream_);
    if (status != cudaSuccess) cudaGraphExecDestroy(made);
  }
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // not sticky: the device goes on
    return nullptr;
  }
  check_cuda(status, "cudaGraphInstantiate");
  return made;
}

bool StepGraphs::end() {
  const State state = std::exchange(state_, State::Idle);
  if (state == State::Plain || state == State::Idle) return true;
  Entry& entry = entries_.front();
  if (state == State::Capturing) {
    cudaGraph_t graph = nullptr;
    check_cuda(cudaStreamEndCapture(stream_, &graph), "cudaStreamEndCapture");
    entry.graph = instantiate(graph);
    check_cuda(cudaGraphDestroy(graph), "cudaGraphDestroy");
    entry.is_refused = entry.graph == nullptr;
    if (entry.is_refused) return false;
  }
  check_cuda(cudaGraphLaunch(entry.graph, stream_), "cudaGraphLaunch");
  return true;
}

}  // namespace llorch::compute::cuda
