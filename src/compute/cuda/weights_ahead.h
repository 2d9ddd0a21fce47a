// Which weights a step multiplies with next, learnt from the steps before: a product that waits for
// the kernel before it asks for them, so that they are in the second cache when their own begins.
// Attention and small products leave the device's memory idle for most of their time. Nothing that
// is computed depends on it.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>

#include "compute/cuda/product_plan.h"

namespace llorch::compute::cuda {

// What a product does, and with that how long it waits while the memory has nothing to do.
enum class AheadOf {
  BehindAttention,  // begins while attention runs, which reads little
  Heads,            // queries, keys and values
  Others,  // read at the memory's rate anyway: asking for more would slow what is needed now
};

class WeightsAhead {
 public:
  // Weights may come and go: nothing is known any more.
  void forget() {
    next_.clear();
    last_ = nullptr;
  }
  // Steps of few rows, whose products follow each other alike. Outside of them nothing is learnt or
  // asked for.
  void begin_step(bool is_learning) {
    is_learning_ = is_learning;
    last_ = nullptr;
  }
  void end_step() { is_learning_ = false; }

  // This product's turn: what follows it is entered, as much of it as pays.
  void follow(ProductArgs& args, AheadOf kind);

 private:
  using Parts = std::array<Ahead, kProductPartsMax>;

  bool is_learning_ = false;
  const void* last_ = nullptr;                   // the first weight of the product before
  std::unordered_map<const void*, Parts> next_;  // by the first weight of a product
};

}  // namespace llorch::compute::cuda
