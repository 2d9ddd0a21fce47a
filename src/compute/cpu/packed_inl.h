// What the files of single instruction sets share. All of it is inlined or without a name outside
// of the file that includes it: what is compiled for one set may not be given by the linker to a
// file of another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#define LLORCH_INLINE inline __attribute__((always_inline))

namespace llorch::compute {
namespace {

// visit(std::integral_constant<int, 0>()) to 3.
template <class F>
LLORCH_INLINE void four(const F& visit) {
  visit(std::integral_constant<int, 0>());
  visit(std::integral_constant<int, 1>());
  visit(std::integral_constant<int, 2>());
  visit(std::integral_constant<int, 3>());
}

// What a loop of additions takes that do not wait for each other: add(sum) is the next value of any
// of the `chains` sums, which are more (16 at most) than the adders' latency times their number.
// Returns how many there were.
template <std::size_t chains, class Vector, class Add>
LLORCH_INLINE std::int64_t spin(std::int64_t rounds, Vector zero, const Add& add) {
  Vector sums[chains];
  // Unrolled too, or the sums would live in memory and the loop wait for it.
#pragma GCC unroll 16
  for (Vector& sum : sums) sum = zero;
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (Vector& sum : sums) {
      sum = add(sum);
      // The compiler may know nothing about it.
#if defined(__aarch64__)
      asm volatile("" : "+w"(sum));
#else
      asm volatile("" : "+v"(sum));
#endif
    }
  }
  return rounds * static_cast<std::int64_t>(chains);
}

}  // namespace
}  // namespace llorch::compute
