#include "template/operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/utf8.h"
#include "template/text.h"

namespace llorch::jinja {
namespace {

constexpr std::string_view kSymbols[] = {
    "+", "-", "*", "/", "//", "%", "** or pow()", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};

constexpr Int kSmallestInt = -(((Int{1} << 126) - 1) * 2 + 1) - 1;

std::string_view symbol(Operator op) {
  return kSymbols[static_cast<std::size_t>(op)];
}

Value fail_operands(Run& run, Operator op, const Value& a, const Value& b) {
  if (a.is_undefined()) return run.fail_undefined(a);
  if (b.is_undefined()) return run.fail_undefined(b);
  const bool sequence = a.as_string() != nullptr || (a.as_sequence() != nullptr &&
                                                     a.as_sequence()->kind <= SequenceKind::Tuple);
  if (op == Operator::Add && sequence) {
    return run.fail(
        fmt::format("can only concatenate {0} (not \"{1}\") to {0}", a.type_name(), b.type_name()));
  }
  return run.fail(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", symbol(op),
                              a.type_name(), b.type_name()));
}

Value fail_overflow(Run& run) {
  return run.fail_limit("integer too large");
}

Int floor_divide(Int a, Int b) {
  const Int quotient = a / b;
  return (a % b != 0 && (a < 0) != (b < 0)) ? quotient - 1 : quotient;
}

Int modulo(Int a, Int b) {
  const Int rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

double real_modulo(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

Value integer_power(Run& run, Int base, Int exponent) {
  if (exponent < 0) {
    if (base == 0) return run.fail("0.0 cannot be raised to a negative power");
    return Value::real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  Int result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result))
      return fail_overflow(run);
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return fail_overflow(run);
  }
  return Value::integer(result);
}

Value integer_arithmetic(Run& run, Operator op, Int a, Int b) {
  Int result = 0;
  const bool divides =
      op == Operator::Divide || op == Operator::FloorDivide || op == Operator::Modulo;
  if (divides && b == 0) {
    return run.fail(op == Operator::Divide ? "division by zero"
                                           : "integer division or modulo by zero");
  }
  // The one quotient that does not fit.
  if (divides && b == -1 && a == kSmallestInt) return fail_overflow(run);
  switch (op) {
    case Operator::Add:
      return __builtin_add_overflow(a, b, &result) ? fail_overflow(run) : Value::integer(result);
    case Operator::Subtract:
      return __builtin_sub_overflow(a, b, &result) ? fail_overflow(run) : Value::integer(result);
    case Operator::Multiply:
      return __builtin_mul_overflow(a, b, &result) ? fail_overflow(run) : Value::integer(result);
    case Operator::Divide:
      return Value::real(
          static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
    case Operator::FloorDivide:
      return Value::integer(floor_divide(a, b));
    case Operator::Modulo:
      return Value::integer(modulo(a, b));
    default:
      return integer_power(run, a, b);
  }
}

Value real_arithmetic(Run& run, Operator op, double a, double b) {
  const bool divides =
      op == Operator::Divide || op == Operator::FloorDivide || op == Operator::Modulo;
  if (divides && b == 0) {
    return run.fail(op == Operator::Divide        ? "float division by zero"
                    : op == Operator::FloorDivide ? "float floor division by zero"
                                                  : "float modulo");
  }
  switch (op) {
    case Operator::Add:
      return Value::real(a + b);
    case Operator::Subtract:
      return Value::real(a - b);
    case Operator::Multiply:
      return Value::real(a * b);
    case Operator::Divide:
      return Value::real(a / b);
    case Operator::FloorDivide:
      return Value::real(std::floor((a - real_modulo(a, b)) / b + 0.5));
    case Operator::Modulo:
      return Value::real(real_modulo(a, b));
    default:
      break;
  }
  if (a == 0 && b < 0) return run.fail("0.0 cannot be raised to a negative power");
  const double power = std::pow(a, b);
  if (std::isnan(power) && !std::isnan(a) && !std::isnan(b)) {
    return run.fail("a negative number cannot be raised to a fractional power");
  }
  if (std::isinf(power) && !std::isinf(a) && !std::isinf(b))
    return run.fail("numerical result out of range");
  return Value::real(power);
}

void add_escaped(MarkedText& out, const String& string) {
  const std::string_view text = string.text;
  std::size_t at = 0;
  for (const base::TextSpan& span : string.own) {
    out.add(base::escape_html(text.substr(at, span.begin - at)));
    out.add_own(base::escape_html(text.substr(span.begin, span.end - span.begin)));
    at = span.end;
  }
  out.add(base::escape_html(text.substr(at)));
}

Value concatenate(Run& run, const Value& a, const Value& b) {
  const String* left = a.as_string();
  const String* right = b.as_string();
  if (left != nullptr && right != nullptr) {
    if (!left->is_safe && !right->is_safe) {
      if (!run.charge(left->text.size() + right->text.size())) return {};
      MarkedText both;
      both.add(*left);
      both.add(*right);
      return run.text(std::move(both));
    }
    if (!run.read(left->text.size() + right->text.size())) return {};
    MarkedText both;
    for (const String* side : {left, right}) {
      if (side->is_safe) {
        both.add(*side);
      } else {
        add_escaped(both, *side);
      }
    }
    return run.text(std::move(both), /*is_safe=*/true);
  }
  const Sequence* first = a.as_sequence();
  const Sequence* second = b.as_sequence();
  const bool lists = first != nullptr && second != nullptr && first->kind == second->kind &&
                     first->kind <= SequenceKind::Tuple;
  if (!lists) return fail_operands(run, Operator::Add, a, b);
  if (!run.charge((first->items.size() + second->items.size()) * sizeof(Value))) return {};
  std::vector<Value> items = first->items;
  items.insert(items.end(), second->items.begin(), second->items.end());
  return run.sequence(first->kind, std::move(items));
}

Value repeat(Run& run, const Value& sequence, Int count) {
  const String* string = sequence.as_string();
  const std::size_t unit = string != nullptr ? string->text.size()
                                             : sequence.as_sequence()->items.size() * sizeof(Value);
  if (count < 0 || unit == 0) count = 0;
  const auto max_bytes = static_cast<Int>(run.options().limits.max_work_bytes);
  if (count > max_bytes || static_cast<Int>(unit) * count > max_bytes) {
    return run.fail_limit("repeating a sequence makes it too large");
  }
  const auto times = static_cast<std::size_t>(count);
  if (!run.charge(unit * times)) return {};
  if (string != nullptr) {
    // Each round may leave a mark as well.
    if (!run.charge(string->own.size() * sizeof(base::TextSpan) * times)) return {};
    MarkedText out;
    out.text.reserve(unit * times);
    for (std::size_t i = 0; i < times; ++i) out.add(*string);
    return run.text(std::move(out), string->is_safe);
  }
  const Sequence& list = *sequence.as_sequence();
  std::vector<Value> items;
  items.reserve(list.items.size() * times);
  for (std::size_t i = 0; i < times; ++i)
    items.insert(items.end(), list.items.begin(), list.items.end());
  return run.sequence(list.kind, std::move(items));
}

bool is_repeatable(const Value& value) {
  return value.as_string() != nullptr ||
         (value.as_sequence() != nullptr && value.as_sequence()->kind <= SequenceKind::Tuple);
}

}  // namespace

Value apply(Run& run, Operator op, const Value& a, const Value& b) {
  const std::optional<Int> left = a.integral();
  const std::optional<Int> right = b.integral();
  if (left && right) return integer_arithmetic(run, op, *left, *right);
  if (a.is_number() && b.is_number()) return real_arithmetic(run, op, a.to_double(), b.to_double());
  if (a.is_undefined() || b.is_undefined()) return fail_operands(run, op, a, b);
  if (op == Operator::Add) return concatenate(run, a, b);
  if (op == Operator::Multiply && is_repeatable(a) && right) return repeat(run, a, *right);
  if (op == Operator::Multiply && is_repeatable(b) && left) return repeat(run, b, *left);
  if (op == Operator::Modulo && a.as_string() != nullptr) {
    return percent_format(run, *a.as_string(), b);
  }
  return fail_operands(run, op, a, b);
}

Value negate(Run& run, const Value& value) {
  if (value.is_undefined()) return run.fail_undefined(value);
  if (const double* real = value.as_real()) return Value::real(-*real);
  if (const std::optional<Int> integer = value.integral()) {
    return integer_arithmetic(run, Operator::Subtract, 0, *integer);
  }
  return run.fail(fmt::format("bad operand type for unary -: '{}'", value.type_name()));
}

bool compare(Run& run, Operator op, const Value& a, const Value& b) {
  switch (op) {
    case Operator::Equal:
      return run.equals(a, b);
    case Operator::NotEqual:
      return !run.equals(a, b);
    case Operator::In:
      return run.contains(b, a);
    case Operator::NotIn:
      return !run.contains(b, a);
    case Operator::Less:
      return run.less(a, b);
    case Operator::Greater:
      return run.less(b, a);
    case Operator::LessEqual:
      break;
    default:
      return a.is_number() && b.is_number() ? run.less(b, a) || run.equals(a, b) : !run.less(a, b);
  }
  return a.is_number() && b.is_number() ? run.less(a, b) || run.equals(a, b) : !run.less(b, a);
}

bool Run::equals(const Value& a, const Value& b) {
  if (!step()) return false;
  if (a.is_number() && b.is_number()) {
    const std::optional<Int> x = a.integral();
    const std::optional<Int> y = b.integral();
    return x && y ? *x == *y : a.to_double() == b.to_double();
  }
  if (const String* x = a.as_string()) {
    const String* y = b.as_string();
    if (y == nullptr || x->text.size() != y->text.size()) return false;
    return x == y || (read(x->text.size()) && x->text == y->text);
  }
  if (a.as_sequence() != nullptr && b.as_sequence() != nullptr) {
    return equal_sequences(*a.as_sequence(), *b.as_sequence());
  }
  if (a.as_dict() != nullptr && b.as_dict() != nullptr)
    return equal_dicts(*a.as_dict(), *b.as_dict());
  return a.is_same(b);
}

bool Run::equal_sequences(const Sequence& a, const Sequence& b) {
  if (a.kind != b.kind || a.items.size() != b.items.size()) return false;
  if (&a == &b) return true;
  for (std::size_t i = 0; i < a.items.size(); ++i) {
    if (!equals(a.items[i], b.items[i])) return false;
  }
  return true;
}

bool Run::equal_dicts(const Dict& a, const Dict& b) {
  if (a.entries().size() != b.entries().size()) return false;
  if (&a == &b) return true;
  for (const auto& [key, value] : a.entries()) {
    const Value* other = find_key(b, key);
    if (other == nullptr || !equals(value, *other)) return false;
  }
  return true;
}

bool Run::less(const Value& a, const Value& b) {
  if (!step()) return false;
  if (a.is_number() && b.is_number()) {
    const std::optional<Int> x = a.integral();
    const std::optional<Int> y = b.integral();
    return x && y ? *x < *y : a.to_double() < b.to_double();
  }
  if (a.as_string() != nullptr && b.as_string() != nullptr) {
    const std::string& x = a.as_string()->text;
    const std::string& y = b.as_string()->text;
    // Bytes of UTF-8 compare as their code points do.
    return read(std::min(x.size(), y.size())) && x < y;
  }
  const Sequence* x = a.as_sequence();
  const Sequence* y = b.as_sequence();
  if (x != nullptr && y != nullptr && x->kind == y->kind && x->kind <= SequenceKind::Tuple) {
    for (std::size_t i = 0; i < x->items.size() && i < y->items.size(); ++i) {
      if (!equals(x->items[i], y->items[i])) return less(x->items[i], y->items[i]);
    }
    return x->items.size() < y->items.size();
  }
  if (a.is_undefined() || b.is_undefined()) {
    fail_undefined(a.is_undefined() ? a : b);
  } else {
    fail(fmt::format("'<' not supported between instances of '{}' and '{}'", a.type_name(),
                     b.type_name()));
  }
  return false;
}

const Value* Run::find_key(const Dict& dict, const Value& key) {
  // Looking a key up compares it a few times.
  if (const String* name = key.as_string())
    return read(4 * name->text.size()) ? dict.find(name->text) : nullptr;
  for (const auto& [known, value] : dict.entries()) {
    if (known.as_string() == nullptr && equals(known, key)) return &value;
    if (failed() || !step()) break;
  }
  return nullptr;
}

bool Run::contains(const Value& container, const Value& value) {
  if (const String* string = container.as_string()) {
    const String* part = value.as_string();
    if (part == nullptr) {
      fail(fmt::format("'in <string>' requires string as left operand, not {}", value.type_name()));
      return false;
    }
    return read(string->text.size() + part->text.size()) &&
           text::find(string->text, part->text) != text::kNotFound;
  }
  if (const Dict* dict = container.as_dict()) return find_key(*dict, value) != nullptr;
  if (const Sequence* sequence = container.as_sequence()) {
    return std::any_of(sequence->items.begin(), sequence->items.end(),
                       [&](const Value& item) { return equals(item, value); });
  }
  if (container.is_undefined()) return false;
  if (container.as_object_of<Iterator>() == nullptr) {
    fail(fmt::format("argument of type '{}' is not iterable", container.type_name()));
    return false;
  }
  const std::vector<Value> items = elements(container);
  return std::any_of(items.begin(), items.end(),
                     [&](const Value& item) { return equals(item, value); });
}

namespace {

struct Indices {
  std::int64_t start = 0, count = 0, step = 1;
};

// Python's slice.indices: absent bounds, negative ones and those outside become positions.
std::optional<Indices> resolve(Run& run, std::size_t length, const Value& start, const Value& stop,
                               const Value& step) {
  const auto size = static_cast<Int>(length);
  for (const Value* bound : {&start, &stop, &step}) {
    if (bound->is_none() || bound->integral()) continue;
    run.fail("slice indices must be integers or None or have an __index__ method");
    return std::nullopt;
  }
  // A stride beyond the sequence has no other effect than one just beyond it.
  const Int by = std::clamp(step.integral().value_or(1), -size - 1, size + 1);
  if (by == 0) {
    run.fail("slice step cannot be zero");
    return std::nullopt;
  }
  const auto clamp = [&](const Value& bound, Int fallback) {
    if (bound.is_none()) return fallback;
    Int at = *bound.integral();
    if (at < 0) at += size;
    return by > 0 ? std::clamp(at, Int{0}, size) : std::clamp(at, Int{-1}, size - 1);
  };
  const Int first = clamp(start, by > 0 ? 0 : size - 1);
  const Int last = clamp(stop, by > 0 ? size : -1);
  const Int distance = by > 0 ? last - first : first - last;
  const Int stride = by > 0 ? by : -by;
  Indices indices;
  indices.start = static_cast<std::int64_t>(first);
  indices.count = distance <= 0 ? 0 : static_cast<std::int64_t>((distance - 1) / stride + 1);
  indices.step = static_cast<std::int64_t>(by);
  return indices;
}

Value slice_text(Run& run, const String& string, const Indices& indices) {
  const std::string_view all = string.text;
  if (!run.read(all.size())) return {};
  if (indices.step == 1) {
    const std::size_t begin = text::byte_offset(all, static_cast<std::size_t>(indices.start));
    const std::string_view rest = all.substr(begin);
    return run.part(
        string, rest.substr(0, text::byte_offset(rest, static_cast<std::size_t>(indices.count))));
  }
  if (!run.charge(all.size() * sizeof(std::string_view))) return {};
  std::vector<std::string_view> characters;
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t bytes = text::decode(all, at).bytes;
    characters.push_back(all.substr(at, bytes));
    at += bytes;
  }
  std::string out;
  for (std::int64_t i = 0; i < indices.count; ++i) {
    out += characters[static_cast<std::size_t>(indices.start + i * indices.step)];
  }
  return run.changed(string, std::move(out));
}

}  // namespace

Value slice(Run& run, const Value& object, const Value& start, const Value& stop,
            const Value& step) {
  if (object.is_undefined()) return run.fail_undefined(object);
  const String* string = object.as_string();
  const Sequence* sequence = object.as_sequence();
  const bool sliceable =
      string != nullptr || (sequence != nullptr && sequence->kind <= SequenceKind::Range);
  if (!sliceable) {
    // Jinja takes the failure of object[slice] for a missing element.
    return run.undefined(fmt::format("{} object has no element slice", object.type_name()));
  }
  if (string != nullptr && !run.read(string->text.size())) return {};
  const std::size_t length =
      string != nullptr ? text::length(string->text) : sequence->items.size();
  const std::optional<Indices> indices = resolve(run, length, start, stop, step);
  if (!indices) return {};
  if (string != nullptr) return slice_text(run, *string, *indices);
  if (!run.charge(static_cast<std::size_t>(indices->count) * sizeof(Value))) return {};
  std::vector<Value> items;
  for (std::int64_t i = 0; i < indices->count; ++i) {
    items.push_back(sequence->items[static_cast<std::size_t>(indices->start + i * indices->step)]);
  }
  const bool is_tuple = sequence->kind == SequenceKind::Tuple;
  return is_tuple ? run.tuple(std::move(items)) : run.list(std::move(items));
}

}  // namespace llorch::jinja
