#include "tokenizer/hash.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace llorch::tokenizer {
namespace {

// Under a hash that multiplies and turns each word, whatever its seed, the highest bit of a word
// can be undone by one bit of the next: twelve such choices make 4,096 texts with one hash.
TEST(Hash, TextsMadeToCollideDoNot) {
  std::set<std::uint64_t> places;
  for (unsigned choice = 0; choice < 4096; ++choice) {
    std::string text(12 * 16, 'a');
    for (unsigned bit = 0; bit < 12; ++bit) {
      if ((choice >> bit & 1) == 0) continue;
      text[bit * 16 + 7] = static_cast<char>(text[bit * 16 + 7] ^ '\x80');
      text[bit * 16 + 8 + 3] = static_cast<char>(text[bit * 16 + 8 + 3] ^ '\x10');
    }
    places.insert(hash_bytes(text) % 8192);
  }
  EXPECT_GT(places.size(), 2500U) << "of some 3,200 that chance gives";
}

// Numbers that differ in their upper bits alone, as pairs of ids can.
TEST(Hash, NumbersWithOneLowHalfAreSpread) {
  for (const unsigned shift : {0U, 8U, 32U, 40U, 52U}) {
    std::set<std::uint64_t> places;
    for (std::uint64_t i = 0; i < 4096; ++i) places.insert(hash_number(i << shift) % 8192);
    // The key is drawn for each process, and a step may suit one badly (1,819 places were seen); a
    // hash whose low bits miss the upper ones gives a few dozen.
    EXPECT_GT(places.size(), 1000U) << shift;
  }
}

}  // namespace
}  // namespace llorch::tokenizer
