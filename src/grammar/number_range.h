// Numbers between two bounds, digit by digit. Private.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "base/json.h"
#include "grammar/builder.h"

namespace llorch::grammar {

// A number as its digits: no leading zeros in the whole part ("0" for none), no trailing ones in
// the fraction.
struct Decimal {
  bool is_negative = false;
  std::string whole = "0";
  std::string fraction;
};

// The shortest digits that read back as `number` (int64, uint64 or a finite double).
Decimal to_decimal(const json::Value& number);

// -1, 0 or 1 as a < b, a == b, a > b.
int compare(const Decimal& a, const Decimal& b);

struct NumberBound {
  Decimal value;
  bool is_open = false;  // the bound itself is excluded
};

struct NumberRange {
  bool is_integer = false;
  std::optional<NumberBound> low;
  std::optional<NumberBound> high;
};

// Digits of a number with a bound; so many that a double tells all of them apart.
inline constexpr std::size_t kMaxBoundedDigits = 15;

// The numbers of `range` with at most kMaxBoundedDigits digits and without exponent, each written
// in every way but with superfluous leading zeros.
void add_number_range(Builder& builder, RuleId rule, NodeId from, NodeId to, NumberRange range);

}  // namespace llorch::grammar
