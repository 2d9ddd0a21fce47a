// Chance for tests, from a seed that is printed with every failure.
#pragma once

#include <cstdint>
#include <random>
#include <string>

namespace llorch::fleet {

class Dice {
 public:
  explicit Dice(std::uint32_t seed = std::random_device{}()) : seed_(seed), engine_(seed) {}

  std::uint32_t operator()() { return static_cast<std::uint32_t>(engine_()); }
  bool one_in(std::uint32_t n) { return (*this)() % n == 0; }
  std::string trace() const { return "seed " + std::to_string(seed_); }

 private:
  std::uint32_t seed_;
  std::mt19937 engine_;
};

}  // namespace llorch::fleet
