// Expressions: from a node of the tree to a value.
#include <fmt/format.h>

#include <utility>

#include "template/builtins.h"
#include "template/evaluator.h"
#include "template/operators.h"

namespace llorch::jinja {

Value Evaluator::evaluate(const Expr& expr) {
  const Restore<int> deeper(depth_, depth_ + 1);
  if (!run_.step()) return {};
  if (depth_ > run_.options().limits.max_depth) {
    return run_.fail_limit(
        fmt::format("recursion deeper than {} levels", run_.options().limits.max_depth));
  }
  Value value = evaluate_node(expr);
  return run_.failed() ? Value() : value;
}

Value Evaluator::evaluate_node(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::Constant:
      return expr.constant;
    case ExprKind::Name:
      return lookup(expr.name_id);
    case ExprKind::List:
    case ExprKind::Tuple:
    case ExprKind::Dict:
      return evaluate_collection(expr);
    case ExprKind::Call:
      return evaluate_call(expr, std::nullopt);
    case ExprKind::Filter:
      return evaluate_native(expr, "filter");
    case ExprKind::Test:
      return evaluate_native(expr, "test");
    case ExprKind::And:
    case ExprKind::Or:
      return evaluate_logic(expr);
    case ExprKind::Compare:
      return evaluate_compare(expr);
    case ExprKind::Concat:
      return evaluate_concat(expr);
    case ExprKind::Conditional:
      return evaluate_conditional(expr);
    default:
      break;
  }
  const Value first = evaluate(*expr.items[0]);
  if (run_.failed()) return {};
  run_.set_line(expr.line);
  switch (expr.kind) {
    case ExprKind::Attribute:
      return run_.attribute(first, expr.name);
    case ExprKind::Not:
      return Value::boolean(!first.is_true());
    case ExprKind::Negate:
      return negate(run_, first);
    case ExprKind::Plus: {
      if (first.is_undefined()) return run_.fail_undefined(first);
      if (!first.is_number()) {
        return run_.fail(fmt::format("bad operand type for unary +: '{}'", first.type_name()));
      }
      return first.integral() ? Value::integer(*first.integral()) : first;
    }
    default:
      break;
  }
  const auto part = [&](std::size_t i) {
    return expr.items[i] ? evaluate(*expr.items[i]) : Value(None{});
  };
  const Value second = part(1);
  if (run_.failed()) return {};
  if (expr.kind == ExprKind::Item) return run_.item(first, second);
  if (expr.kind == ExprKind::Binary) return apply(run_, expr.operators[0], first, second);
  const Value stop = part(2);
  const Value step = part(3);
  return run_.failed() ? Value() : slice(run_, first, second, stop, step);
}

Value Evaluator::evaluate_collection(const Expr& expr) {
  std::vector<Value> items;
  items.reserve(expr.items.size());
  for (const ExprPtr& item : expr.items) {
    items.push_back(evaluate(*item));
    if (run_.failed()) return {};
  }
  if (expr.kind == ExprKind::List) return run_.list(std::move(items));
  if (expr.kind == ExprKind::Tuple) return run_.tuple(std::move(items));
  std::vector<Dict::Entry> entries;
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    entries.emplace_back(std::move(items[i]), std::move(items[i + 1]));
  }
  return run_.dict(std::move(entries));
}

CallArgs Evaluator::evaluate_arguments(const Arguments& arguments) {
  CallArgs args;
  for (const ExprPtr& expr : arguments.positional) {
    args.positional.push_back(evaluate(*expr));
    if (run_.failed()) return args;
  }
  for (const auto& [name, expr] : arguments.keywords) {
    args.keywords.emplace_back(name, evaluate(*expr));
    if (run_.failed()) return args;
  }
  if (arguments.star) {
    for (Value& value : run_.elements(evaluate(*arguments.star))) {
      args.positional.push_back(std::move(value));
    }
  }
  if (arguments.double_star && !run_.failed()) {
    const Value mapping = evaluate(*arguments.double_star);
    const Dict* dict = mapping.as_dict();
    if (dict == nullptr) {
      run_.fail("argument after ** must be a mapping");
      return args;
    }
    for (const auto& [key, value] : dict->entries()) {
      if (!run_.step()) return args;
      args.keywords.emplace_back(run_.to_text(key), value);
    }
  }
  return args;
}

Value Evaluator::evaluate_call(const Expr& expr, std::optional<Value> caller) {
  const Value callee = evaluate(*expr.items[0]);
  if (run_.failed()) return {};
  CallArgs args = evaluate_arguments(expr.args);
  if (run_.failed()) return {};
  if (caller) args.keywords.emplace_back("caller", std::move(*caller));
  run_.set_line(expr.line);
  return run_.call(callee, args);
}

Value Evaluator::evaluate_native(const Expr& expr, std::string_view what) {
  const Value subject = expr.items[0] ? evaluate(*expr.items[0]) : *block_subject_;
  if (run_.failed()) return {};
  CallArgs args = evaluate_arguments(expr.args);
  if (run_.failed()) return {};
  run_.set_line(expr.line);
  if (expr.native == nullptr)
    return run_.fail(fmt::format("No {} named {}.", what, in_quotes(expr.name)));
  return expr.native(run_, subject, args);
}

Value Evaluator::evaluate_logic(const Expr& expr) {
  const bool stops_at = expr.kind == ExprKind::Or;
  Value value;
  for (const ExprPtr& item : expr.items) {
    value = evaluate(*item);
    if (run_.failed() || value.is_true() == stops_at) break;
  }
  return value;
}

Value Evaluator::evaluate_compare(const Expr& expr) {
  Value left = evaluate(*expr.items[0]);
  for (std::size_t i = 0; i < expr.operators.size() && !run_.failed(); ++i) {
    Value right = evaluate(*expr.items[i + 1]);
    if (run_.failed()) return {};
    run_.set_line(expr.line);
    if (!compare(run_, expr.operators[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Evaluator::evaluate_concat(const Expr& expr) {
  MarkedText text;
  for (const ExprPtr& item : expr.items) {
    run_.append_text(text, evaluate(*item));
    if (run_.failed()) return {};
  }
  return run_.text(std::move(text));
}

Value Evaluator::evaluate_conditional(const Expr& expr) {
  const bool taken = evaluate(*expr.items[0]).is_true();
  if (run_.failed()) return {};
  if (taken) return evaluate(*expr.items[1]);
  if (expr.items[2]) return evaluate(*expr.items[2]);
  return run_.undefined(fmt::format(
      "the inline if-expression on line {} evaluated to false and no else section was defined.",
      expr.line));
}

}  // namespace llorch::jinja
