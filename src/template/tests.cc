// Tests: what may stand behind "is".
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "template/ast.h"
#include "template/builtins.h"
#include "template/operators.h"
#include "template/run.h"
#include "template/text.h"

namespace llorch::jinja {
namespace {

template <auto kPredicate>
Value simple(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "test", call, {}, 0);
  return Value::boolean(kPredicate(subject));
}

bool is_defined(const Value& value) {
  return !value.is_undefined();
}
bool is_undefined(const Value& value) {
  return value.is_undefined();
}
bool is_none(const Value& value) {
  return value.is_none();
}
bool is_boolean(const Value& value) {
  return value.as_bool() != nullptr;
}
bool is_false(const Value& value) {
  return value.as_bool() != nullptr && !*value.as_bool();
}
bool is_true(const Value& value) {
  return value.as_bool() != nullptr && *value.as_bool();
}
bool is_integer(const Value& value) {
  return value.as_int() != nullptr;
}
bool is_float(const Value& value) {
  return value.as_real() != nullptr;
}
bool is_number(const Value& value) {
  return value.is_number();
}
bool is_string(const Value& value) {
  return value.as_string() != nullptr;
}
bool is_mapping(const Value& value) {
  return value.as_dict() != nullptr;
}
bool is_escaped(const Value& value) {
  return value.as_string() != nullptr && value.as_string()->is_safe;
}

// In Python an undefined value has a length, can be walked and can be called, if only to fail.
bool is_sequence(const Value& value) {
  const Sequence* sequence = value.as_sequence();
  return value.is_undefined() || value.as_string() != nullptr || value.as_dict() != nullptr ||
         (sequence != nullptr && sequence->kind <= SequenceKind::Range);
}
bool is_iterable(const Value& value) {
  return value.is_undefined() || value.as_string() != nullptr || value.as_dict() != nullptr ||
         value.as_sequence() != nullptr || value.as_object_of<Iterator>() != nullptr;
}
bool is_callable(const Value& value) {
  return value.is_undefined() || (value.as_object() != nullptr && value.as_object()->is_callable());
}

Value is_lower(Run& run, const Value& subject, CallArgs&) {
  return Value::boolean(text::all_lower(run.to_text(subject)));
}
Value is_upper(Run& run, const Value& subject, CallArgs&) {
  return Value::boolean(text::all_upper(run.to_text(subject)));
}

Value remainder_is(Run& run, const Value& subject, const Value& divisor, Int wanted) {
  const Value rest = apply(run, Operator::Modulo, subject, divisor);
  return Value::boolean(!run.failed() && run.equals(rest, Value::integer(wanted)));
}

Value is_odd(Run& run, const Value& subject, CallArgs&) {
  return remainder_is(run, subject, Value::integer(2), 1);
}
Value is_even(Run& run, const Value& subject, CallArgs&) {
  return remainder_is(run, subject, Value::integer(2), 0);
}
Value is_divisible(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "divisibleby", call, {"num"}, 1);
  return run.failed() ? Value() : remainder_is(run, subject, args[0], 0);
}

template <Operator kOperator>
Value compares(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "test", call, {"other"}, 1);
  return run.failed() ? Value() : Value::boolean(compare(run, kOperator, subject, args[0]));
}

Value is_same(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "sameas", call, {"other"}, 1);
  return Value::boolean(subject.is_same(args[0]));
}

Value is_filter(Run& run, const Value& subject, CallArgs&) {
  return Value::boolean(find_filter(run.to_text(subject)) != nullptr);
}
Value is_test(Run& run, const Value& subject, CallArgs&) {
  return Value::boolean(find_test(run.to_text(subject)) != nullptr);
}

constexpr NamedFunction kTests[] = {
    {"defined", simple<is_defined>},
    {"undefined", simple<is_undefined>},
    {"none", simple<is_none>},
    {"boolean", simple<is_boolean>},
    {"false", simple<is_false>},
    {"true", simple<is_true>},
    {"integer", simple<is_integer>},
    {"float", simple<is_float>},
    {"number", simple<is_number>},
    {"string", simple<is_string>},
    {"mapping", simple<is_mapping>},
    {"sequence", simple<is_sequence>},
    {"iterable", simple<is_iterable>},
    {"callable", simple<is_callable>},
    {"escaped", simple<is_escaped>},
    {"lower", is_lower},
    {"upper", is_upper},
    {"odd", is_odd},
    {"even", is_even},
    {"divisibleby", is_divisible},
    {"sameas", is_same},
    {"filter", is_filter},
    {"test", is_test},
    {"in", compares<Operator::In>},
    {"==", compares<Operator::Equal>},
    {"eq", compares<Operator::Equal>},
    {"equalto", compares<Operator::Equal>},
    {"!=", compares<Operator::NotEqual>},
    {"ne", compares<Operator::NotEqual>},
    {">", compares<Operator::Greater>},
    {"gt", compares<Operator::Greater>},
    {"greaterthan", compares<Operator::Greater>},
    {">=", compares<Operator::GreaterEqual>},
    {"ge", compares<Operator::GreaterEqual>},
    {"<", compares<Operator::Less>},
    {"lt", compares<Operator::Less>},
    {"lessthan", compares<Operator::Less>},
    {"<=", compares<Operator::LessEqual>},
    {"le", compares<Operator::LessEqual>},
};

}  // namespace

NativeFunction find_test(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kTests), std::end(kTests),
                                         [&](const NamedFunction& f) { return f.name == name; });
  return found == std::end(kTests) ? nullptr : found->function;
}

}  // namespace llorch::jinja
