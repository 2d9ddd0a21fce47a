// What stands behind an expression (attributes, subscripts, filters, tests, calls), and what is
// assigned to.
#include <fmt/format.h>

#include <utility>

#include "template/builtins.h"
#include "template/expression_parser.h"

namespace llorch::jinja {

ExprPtr ExpressionParser::parse_postfix(ExprPtr expr) {
  while (true) {
    if (is_operator(".")) {
      const int line = current().line;
      advance();
      if (is(TokenKind::Integer)) {
        ExprPtr index = make(ExprKind::Constant, line);
        index->constant = Value::integer(current().integer);
        advance();
        ExprPtr item = make(ExprKind::Item, line);
        item->items.push_back(std::move(expr));
        item->items.push_back(std::move(index));
        expr = finish(std::move(item));
        continue;
      }
      ExprPtr attribute = make(ExprKind::Attribute, line);
      attribute->name = expect_name();
      attribute->items.push_back(std::move(expr));
      expr = finish(std::move(attribute));
    } else if (is_operator("[")) {
      expr = parse_subscript(std::move(expr));
    } else if (is_operator("(")) {
      expr = parse_call(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr ExpressionParser::parse_subscript(ExprPtr expr) {
  const Nesting nesting(*this);
  ExprPtr whole = make(ExprKind::Item, current().line);
  advance();
  whole->items.push_back(std::move(expr));
  const auto bound = [this]() -> ExprPtr {
    return is_operator(":") || is_operator("]") ? nullptr : parse_expression();
  };
  ExprPtr first = bound();
  if (is_operator(":")) {
    whole->kind = ExprKind::Slice;
    advance();
    whole->items.push_back(std::move(first));
    whole->items.push_back(bound());
    whole->items.push_back(skip_operator(":") ? bound() : nullptr);
  } else if (!first) {
    fail_unexpected("an index");
    whole->items.push_back(make(ExprKind::Constant, whole->line));
  } else {
    whole->items.push_back(std::move(first));
  }
  expect_operator("]");
  return finish(std::move(whole));
}

ExprPtr ExpressionParser::parse_filter_or_test(ExprPtr expr) {
  while (true) {
    if (is_operator("|")) {
      expr = parse_filters(std::move(expr), false);
    } else if (is_name("is")) {
      expr = parse_test(std::move(expr));
    } else if (is_operator("(")) {
      expr = parse_call(std::move(expr));
    } else {
      return expr;
    }
  }
}

std::string ExpressionParser::parse_dotted_name() {
  std::string name = expect_name();
  while (skip_operator(".")) name += "." + expect_name();
  return name;
}

ExprPtr ExpressionParser::parse_filters(ExprPtr subject, bool starts_inline) {
  while (starts_inline || is_operator("|")) {
    if (!starts_inline) advance();
    starts_inline = false;
    ExprPtr filter = make(ExprKind::Filter, current().line);
    filter->name = parse_dotted_name();
    filter->native = find_filter(filter->name);
    filter->items.push_back(std::move(subject));
    if (is_operator("(")) filter->args = parse_arguments();
    subject = finish(std::move(filter));
  }
  return subject;
}

ExprPtr ExpressionParser::parse_test(ExprPtr subject) {
  ExprPtr test = make(ExprKind::Test, current().line);
  advance();
  const bool negated = skip_name("not");
  test->name = parse_dotted_name();
  test->native = find_test(test->name);
  test->items.push_back(std::move(subject));
  const bool has_operand = is(TokenKind::String) || is(TokenKind::Integer) || is(TokenKind::Real) ||
                           is_operator("[") || is_operator("{") ||
                           (is(TokenKind::Name) && !is_name("else") && !is_name("or") &&
                            !is_name("and") && !is_name("if"));
  if (is_operator("(")) {
    test->args = parse_arguments();
  } else if (is_name("is")) {
    fail_unexpected("the end of the test: tests cannot be chained");
  } else if (has_operand) {
    test->args.positional.push_back(parse_postfix(parse_primary()));
  }
  test = finish(std::move(test));
  if (!negated) return test;
  ExprPtr expr = make(ExprKind::Not, test->line);
  expr->items.push_back(std::move(test));
  return finish(std::move(expr));
}

ExprPtr ExpressionParser::parse_call(ExprPtr callee) {
  ExprPtr call = make(ExprKind::Call, current().line);
  call->items.push_back(std::move(callee));
  call->args = parse_arguments();
  return finish(std::move(call));
}

Arguments ExpressionParser::parse_arguments() {
  const Nesting nesting(*this);
  Arguments args;
  const int line = current().line;
  expect_operator("(");
  while (!is_operator(")") && !is(TokenKind::End)) {
    bool in_order = args.double_star == nullptr;
    if (skip_operator("*")) {
      in_order = in_order && args.star == nullptr;
      args.star = parse_expression();
    } else if (skip_operator("**")) {
      args.double_star = parse_expression();
    } else if (is(TokenKind::Name) && peek().kind == TokenKind::Operator && peek().text == "=") {
      std::string name = expect_name();
      advance();
      args.keywords.emplace_back(std::move(name), parse_expression());
    } else {
      in_order = in_order && args.star == nullptr && args.keywords.empty();
      args.positional.push_back(parse_expression());
    }
    if (!in_order) fail(ErrorCode::Corrupt, line, "arguments of a call in the wrong order");
    if (!skip_operator(",")) break;
  }
  expect_operator(")");
  return args;
}

Target ExpressionParser::parse_single_target() {
  const Nesting nesting(*this);
  if (skip_operator("(")) {
    Target target = parse_target("", false);
    expect_operator(")");
    return target;
  }
  Target target;
  const int line = current().line;
  const std::string name = expect_name();
  for (const std::string_view word : {"true", "false", "none", "True", "False", "None"}) {
    if (name == word) fail(ErrorCode::Corrupt, line, fmt::format("cannot assign to '{}'", name));
  }
  target.name_id = name_id(name);
  return target;
}

Target ExpressionParser::parse_target(std::string_view ends_at, bool allows_attribute) {
  Target first = parse_single_target();
  if (allows_attribute && skip_operator(".")) {
    first.attribute = expect_name();
    return first;
  }
  if (!is_operator(",")) return first;
  Target target;
  target.parts.push_back(std::move(first));
  while (skip_operator(",")) {
    if (is_operator("=") || is_operator(")") || (!ends_at.empty() && is_name(ends_at))) break;
    target.parts.push_back(parse_single_target());
  }
  return target;
}

}  // namespace llorch::jinja
