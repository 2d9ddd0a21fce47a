#include "tokenizer/hash.h"

#include <random>

namespace llorch::tokenizer {

HashKey draw_hash_key() {
  std::random_device source;
  const auto draw = [&source] { return std::uint64_t{source()} << 32 | source(); };
  return {draw(), draw() | 1};
}

}  // namespace llorch::tokenizer
