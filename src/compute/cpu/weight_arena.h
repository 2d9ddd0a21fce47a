// Memory for the weights of a model, one after the other in large pages.
//
// A matrix that has its memory to itself ends in small pages, and one below two megabytes has no
// others: reading such memory is up to a fifth slower. Here matrices stand side by side. A page
// that is full becomes a large one; the last, unfinished one stays small, so no more memory is
// taken than was asked for.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "compute/weight.h"

namespace llorch::compute {

// For one thread. What it gave may outlive it.
class WeightArena {
 public:
  WeightArena() = default;
  WeightArena(const WeightArena&) = delete;
  WeightArena& operator=(const WeightArena&) = delete;
  ~WeightArena();

  // Not zeroed, aligned to a cache line, taken from the system when it is first written.
  Result<Buffer> take(std::int64_t bytes);

 private:
  struct Chunk;
  static void release(Chunk* chunk);

  Chunk* chunk_ = nullptr;  // the one that is being filled
  std::int64_t used_ = 0;   // of it
  std::int64_t large_ = 0;  // of it, in large pages
};

}  // namespace llorch::compute
