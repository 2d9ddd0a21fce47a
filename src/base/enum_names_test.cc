#include "base/enum_names.h"

#include <gtest/gtest.h>

namespace llorch::base {
namespace {

enum class Fruit : unsigned char { Apple, Pear, Plum };
constexpr EnumNames<Fruit::Plum> kFruits("apple", "pear", "plum");
static_assert(kFruits[Fruit::Pear] == "pear");

TEST(EnumNames, GoBothWays) {
  for (const Fruit fruit : {Fruit::Apple, Fruit::Pear, Fruit::Plum})
    EXPECT_EQ(kFruits.find(kFruits[fruit]), fruit);
  EXPECT_EQ(kFruits[Fruit::Plum], "plum");
  EXPECT_EQ(kFruits.find("cherry"), std::nullopt);
  EXPECT_EQ(kFruits.find(""), std::nullopt);
}

}  // namespace
}  // namespace llorch::base
