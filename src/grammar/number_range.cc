#include "grammar/number_range.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <string_view>
#include <tuple>

namespace llorch::grammar {

namespace {

// |a| against |b|.
int compare_magnitudes(const Decimal& a, const Decimal& b) {
  if (a.whole.size() != b.whole.size()) return a.whole.size() < b.whole.size() ? -1 : 1;
  // Fractions have no trailing zeros: a proper prefix is the smaller one.
  const int whole = a.whole.compare(b.whole);
  const int order = whole != 0 ? whole : a.fraction.compare(b.fraction);
  return (order > 0) - (order < 0);
}

bool is_zero(const Decimal& number) {
  return number.whole == "0" && number.fraction.empty();
}

// The magnitudes of `low` to `high`, at or above zero.
class MagnitudeWriter {
 public:
  struct Ends {
    NodeId from = 0;
    NodeId to = 0;
  };
  MagnitudeWriter(Builder& builder, RuleId rule, Ends ends, const NumberRange& range)
      : builder_(builder), rule_(rule), ends_(ends), range_(range) {}

  void write() {
    for (std::size_t length = low().whole.size(); length <= high().whole.size(); ++length) {
      length_ = length;
      nodes_.clear();
      const State first = {.is_at_low = length == low().whole.size(),
                           .is_at_high = length == high().whole.size()};
      add_digits(ends_.from, first);
    }
  }

 private:
  // After `digits` digits, of which the first length_ are the whole part. At a bound: all digits so
  // far are the bound's.
  struct State {
    std::size_t digits = 0;
    bool is_at_low = false;
    bool is_at_high = false;
    bool operator<(const State& other) const {
      return std::tie(digits, is_at_low, is_at_high) <
             std::tie(other.digits, other.is_at_low, other.is_at_high);
    }
  };

  const Decimal& low() const { return range_.low->value; }
  const Decimal& high() const { return range_.high->value; }

  char digit_of(const Decimal& bound, std::size_t index) const {
    if (index < length_) return bound.whole[index];
    const std::size_t after = index - length_;
    return after < bound.fraction.size() ? bound.fraction[after] : '0';
  }

  bool is_rest_zero(const Decimal& bound, std::size_t index) const {
    return index - length_ >= bound.fraction.size();
  }

  bool may_end(const State& state) const {
    if (state.digits < length_) return false;
    if (state.is_at_low && (!is_rest_zero(low(), state.digits) || range_.low->is_open))
      return false;
    return !(state.is_at_high && is_rest_zero(high(), state.digits) && range_.high->is_open);
  }

  void add_digits(NodeId from, const State& state) {
    const bool is_leading = state.digits == 0 && length_ > 1;
    const char low_digit = state.is_at_low ? digit_of(low(), state.digits) : is_leading ? '1' : '0';
    const char high_digit = state.is_at_high ? digit_of(high(), state.digits) : '9';
    for (char digit = low_digit; digit <= high_digit; ++digit) {
      const State next = {.digits = state.digits + 1,
                          .is_at_low = state.is_at_low && digit == low_digit,
                          .is_at_high = state.is_at_high && digit == high_digit};
      builder_.add_byte(from, digit, node_of(next));
    }
  }

  // Recursion ends at kMaxBoundedDigits.
  NodeId node_of(const State& state) {
    if (const auto found = nodes_.find(state); found != nodes_.end()) return found->second;
    const NodeId node = builder_.add_node(rule_);
    nodes_[state] = node;
    if (may_end(state)) builder_.add_epsilon(node, ends_.to);
    NodeId from = node;
    if (state.digits == length_) {
      if (range_.is_integer) return node;
      from = builder_.add_node(rule_);
      builder_.add_byte(node, '.', from);
    }
    if (state.digits < std::max(length_, kMaxBoundedDigits)) add_digits(from, state);
    return node;
  }

  Builder& builder_;
  RuleId rule_;
  Ends ends_;
  const NumberRange& range_;
  std::size_t length_ = 0;
  std::map<State, NodeId> nodes_;
};

void add_magnitudes(Builder& builder, NodeId from, NodeId to, const NumberRange& range,
                    RuleId rule) {
  const int order = compare_magnitudes(range.low->value, range.high->value);
  if (order > 0 || (order == 0 && (range.low->is_open || range.high->is_open))) return;
  MagnitudeWriter(builder, rule, {from, to}, range).write();
}

}  // namespace

Decimal to_decimal(const json::Value& number) {
  Decimal result;
  if (!number.is_double()) {
    result.whole = json::serialize(number);
    result.is_negative = result.whole.starts_with('-');
    if (result.is_negative) result.whole.erase(0, 1);
    return result;
  }
  result.is_negative = std::signbit(number.get_double());
  // fmt's default is the shortest digits, in either notation; put the point where it belongs.
  std::string text = fmt::format("{}", std::abs(number.get_double()));
  long exponent = 0;
  if (const std::size_t e = text.find('e'); e != std::string::npos) {
    exponent = std::strtol(text.c_str() + e + 1, nullptr, 10);
    text.resize(e);
  }
  const std::size_t point = std::min(text.find('.'), text.size());
  std::string whole = text.substr(0, point);
  std::string fraction = point < text.size() ? text.substr(point + 1) : "";
  for (; exponent > 0; --exponent) {
    whole += fraction.empty() ? '0' : fraction.front();
    if (!fraction.empty()) fraction.erase(0, 1);
  }
  for (; exponent < 0; ++exponent) {
    fraction.insert(0, 1, whole.empty() ? '0' : whole.back());
    if (!whole.empty()) whole.pop_back();
  }
  whole.erase(0, std::min(whole.find_first_not_of('0'), whole.size()));
  fraction.erase(fraction.find_last_not_of('0') + 1);
  result.whole = whole.empty() ? "0" : whole;
  result.fraction = fraction;
  return result;
}

int compare(const Decimal& a, const Decimal& b) {
  if (is_zero(a) && is_zero(b)) return 0;
  const bool a_negative = a.is_negative && !is_zero(a);
  const bool b_negative = b.is_negative && !is_zero(b);
  if (a_negative != b_negative) return a_negative ? -1 : 1;
  return a_negative ? compare_magnitudes(b, a) : compare_magnitudes(a, b);
}

void add_number_range(Builder& builder, RuleId rule, NodeId from, NodeId to, NumberRange range) {
  const std::string nines(kMaxBoundedDigits, '9');
  const NumberBound lowest = {.value = {.is_negative = true, .whole = nines}};
  const NumberBound highest = {.value = {.whole = nines}};
  if (!range.low || compare(range.low->value, lowest.value) < 0) range.low = lowest;
  if (!range.high || compare(range.high->value, highest.value) > 0) range.high = highest;
  const NumberBound zero;
  const int low_sign = compare(range.low->value, zero.value);
  const int high_sign = compare(range.high->value, zero.value);
  if (high_sign >= 0) {
    NumberRange above = range;
    if (low_sign < 0) above.low = zero;
    add_magnitudes(builder, from, to, above, rule);
  }
  if (low_sign < 0) {
    NumberRange below = {.is_integer = range.is_integer, .low = range.high, .high = range.low};
    if (high_sign > 0) below.low = zero;
    const NodeId minus = builder.add_node(rule);
    builder.add_byte(from, '-', minus);
    add_magnitudes(builder, minus, to, below, rule);
  }
}

}  // namespace llorch::grammar
