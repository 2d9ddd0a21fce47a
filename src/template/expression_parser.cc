#include "template/expression_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "template/builtins.h"

namespace llorch::jinja {
namespace {

// Real templates nest about 20 deep. The bounds keep parsing, evaluating and destroying a program
// within a small stack.
constexpr int kMaxNesting = 400;
constexpr int kMaxExpressionDepth = 200;

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::Data:
      return "template text";
    case TokenKind::VariableBegin:
      return "'{{'";
    case TokenKind::VariableEnd:
      return "'}}'";
    case TokenKind::BlockBegin:
      return "'{%'";
    case TokenKind::BlockEnd:
      return "'%}'";
    case TokenKind::String:
      return "a string";
    case TokenKind::Integer:
      return "an integer";
    case TokenKind::Real:
      return "a float";
    case TokenKind::End:
      return "the end of the template";
    case TokenKind::Name:
    case TokenKind::Operator:
      break;
  }
  return fmt::format("'{}'", token.text);
}

std::optional<Operator> comparison(const Token& token) {
  if (token.kind != TokenKind::Operator) return std::nullopt;
  if (token.text == "==") return Operator::Equal;
  if (token.text == "!=") return Operator::NotEqual;
  if (token.text == "<") return Operator::Less;
  if (token.text == "<=") return Operator::LessEqual;
  if (token.text == ">") return Operator::Greater;
  if (token.text == ">=") return Operator::GreaterEqual;
  return std::nullopt;
}

}  // namespace

ExpressionParser::ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {
  for (const std::string_view fixed : {"loop", "caller", "kwargs", "varargs"}) name_id(fixed);
}

ExpressionParser::Nesting::Nesting(ExpressionParser& parser) : parser_(parser) {
  if (++parser_.nesting_ > kMaxNesting) {
    parser_.fail(ErrorCode::TooLarge, parser_.current().line,
                 fmt::format("nested deeper than {} levels", kMaxNesting));
  }
}

void ExpressionParser::advance() {
  if (at_ + 1 < tokens_.size()) ++at_;
}

bool ExpressionParser::is_name(std::string_view name) const {
  return current().kind == TokenKind::Name && current().text == name;
}

bool ExpressionParser::is_operator(std::string_view op) const {
  return current().kind == TokenKind::Operator && current().text == op;
}

bool ExpressionParser::skip_name(std::string_view name) {
  if (!is_name(name)) return false;
  advance();
  return true;
}

bool ExpressionParser::skip_operator(std::string_view op) {
  if (!is_operator(op)) return false;
  advance();
  return true;
}

void ExpressionParser::expect_operator(std::string_view op) {
  if (!skip_operator(op)) fail_unexpected(fmt::format("'{}'", op));
}

void ExpressionParser::expect(TokenKind kind, std::string_view what) {
  if (!is(kind)) return fail_unexpected(what);
  advance();
}

std::string ExpressionParser::expect_name() {
  std::string name = current().text;
  expect(TokenKind::Name, "a name");
  return name;
}

void ExpressionParser::fail(ErrorCode code, int line, std::string_view what) {
  if (!error_) error_ = template_error(code, line, what);
  at_ = tokens_.size() - 1;
}

void ExpressionParser::fail_unexpected(std::string_view expected) {
  fail(ErrorCode::Corrupt, current().line,
       fmt::format("expected {}, found {}", expected, describe(current())));
}

std::uint32_t ExpressionParser::name_id(std::string_view name) {
  const auto known = name_ids_.find(name);
  if (known != name_ids_.end()) return known->second;
  const auto id = static_cast<std::uint32_t>(names_.size());
  names_.emplace_back(name);
  name_ids_.emplace(std::string(name), id);
  return id;
}

ExprPtr ExpressionParser::make(ExprKind kind, int line) {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = line;
  return expr;
}

ExprPtr ExpressionParser::finish(ExprPtr expr) {
  const auto add = [&expr](const ExprPtr& part) {
    if (part) expr->depth = std::max(expr->depth, part->depth + 1);
  };
  for (const ExprPtr& item : expr->items) add(item);
  for (const ExprPtr& item : expr->args.positional) add(item);
  for (const auto& [name, item] : expr->args.keywords) add(item);
  add(expr->args.star);
  add(expr->args.double_star);
  if (expr->depth > kMaxExpressionDepth) {
    fail(ErrorCode::TooLarge, expr->line,
         fmt::format("expression with more than {} levels", kMaxExpressionDepth));
    return make(ExprKind::Constant, expr->line);
  }
  return expr;
}

ExprPtr ExpressionParser::binary(ExprPtr left, Operator op, ExprPtr right, int line) {
  ExprPtr expr = make(ExprKind::Binary, line);
  expr->operators.push_back(op);
  expr->items.push_back(std::move(left));
  expr->items.push_back(std::move(right));
  return finish(std::move(expr));
}

ExprPtr ExpressionParser::parse_conditional() {
  const Nesting nesting(*this);
  const int line = current().line;
  ExprPtr expr = parse_or();
  while (skip_name("if")) {
    ExprPtr whole = make(ExprKind::Conditional, line);
    whole->items.push_back(parse_or());
    whole->items.push_back(std::move(expr));
    whole->items.push_back(skip_name("else") ? parse_conditional() : nullptr);
    expr = finish(std::move(whole));
  }
  return expr;
}

ExprPtr ExpressionParser::parse_chain(ExprKind kind,
                                      bool (ExpressionParser::*skips)(std::string_view),
                                      std::string_view between,
                                      ExprPtr (ExpressionParser::*parse_item)()) {
  ExprPtr first = (this->*parse_item)();
  const int line = current().line;
  if (!(this->*skips)(between)) return first;
  ExprPtr expr = make(kind, line);
  expr->items.push_back(std::move(first));
  do {
    expr->items.push_back((this->*parse_item)());
  } while ((this->*skips)(between));
  return finish(std::move(expr));
}

ExprPtr ExpressionParser::parse_or() {
  return parse_chain(ExprKind::Or, &ExpressionParser::skip_name, "or",
                     &ExpressionParser::parse_and);
}

ExprPtr ExpressionParser::parse_and() {
  return parse_chain(ExprKind::And, &ExpressionParser::skip_name, "and",
                     &ExpressionParser::parse_not);
}

ExprPtr ExpressionParser::parse_not() {
  const Nesting nesting(*this);
  const int line = current().line;
  if (!skip_name("not")) return parse_compare();
  ExprPtr expr = make(ExprKind::Not, line);
  expr->items.push_back(parse_not());
  return finish(std::move(expr));
}

ExprPtr ExpressionParser::parse_compare() {
  const int line = current().line;
  ExprPtr first = parse_sum();
  ExprPtr expr = make(ExprKind::Compare, line);
  while (true) {
    if (const std::optional<Operator> op = comparison(current())) {
      advance();
      expr->operators.push_back(*op);
    } else if (skip_name("in")) {
      expr->operators.push_back(Operator::In);
    } else if (is_name("not") && peek().kind == TokenKind::Name && peek().text == "in") {
      advance();
      advance();
      expr->operators.push_back(Operator::NotIn);
    } else {
      break;
    }
    expr->items.push_back(parse_sum());
  }
  if (expr->operators.empty()) return first;
  expr->items.insert(expr->items.begin(), std::move(first));
  return finish(std::move(expr));
}

ExprPtr ExpressionParser::parse_sum() {
  ExprPtr left = parse_concat();
  while (is_operator("+") || is_operator("-")) {
    const int line = current().line;
    const Operator op = is_operator("+") ? Operator::Add : Operator::Subtract;
    advance();
    left = binary(std::move(left), op, parse_concat(), line);
  }
  return left;
}

ExprPtr ExpressionParser::parse_concat() {
  return parse_chain(ExprKind::Concat, &ExpressionParser::skip_operator, "~",
                     &ExpressionParser::parse_product);
}

ExprPtr ExpressionParser::parse_product() {
  ExprPtr left = parse_power();
  while (is_operator("*") || is_operator("/") || is_operator("//") || is_operator("%")) {
    const int line = current().line;
    const Operator op = is_operator("*")    ? Operator::Multiply
                        : is_operator("/")  ? Operator::Divide
                        : is_operator("//") ? Operator::FloorDivide
                                            : Operator::Modulo;
    advance();
    left = binary(std::move(left), op, parse_power(), line);
  }
  return left;
}

ExprPtr ExpressionParser::parse_power() {
  ExprPtr left = parse_unary(true);
  while (is_operator("**")) {
    const int line = current().line;
    advance();
    left = binary(std::move(left), Operator::Power, parse_unary(true), line);
  }
  return left;
}

ExprPtr ExpressionParser::parse_unary(bool with_filters) {
  const Nesting nesting(*this);
  const int line = current().line;
  ExprPtr expr;
  if (is_operator("-") || is_operator("+")) {
    expr = make(is_operator("-") ? ExprKind::Negate : ExprKind::Plus, line);
    advance();
    expr->items.push_back(parse_unary(false));
    expr = finish(std::move(expr));
  } else {
    expr = parse_primary();
  }
  expr = parse_postfix(std::move(expr));
  return with_filters ? parse_filter_or_test(std::move(expr)) : std::move(expr);
}

ExprPtr ExpressionParser::parse_primary() {
  const int line = current().line;
  if (is(TokenKind::Name)) return parse_name();
  if (is(TokenKind::String)) return parse_string();
  if (is(TokenKind::Integer) || is(TokenKind::Real)) {
    ExprPtr expr = make(ExprKind::Constant, line);
    expr->constant =
        is(TokenKind::Integer) ? Value::integer(current().integer) : Value::real(current().real);
    advance();
    return expr;
  }
  if (is_operator("(")) return parse_parenthesis();
  if (is_operator("[")) return parse_list();
  if (is_operator("{")) return parse_dict();
  fail_unexpected("an expression");
  return make(ExprKind::Constant, line);
}

ExprPtr ExpressionParser::parse_name() {
  const Token token = current();
  advance();
  const std::string& name = token.text;
  ExprPtr expr = make(ExprKind::Constant, token.line);
  if (name == "true" || name == "True") {
    expr->constant = Value::boolean(true);
  } else if (name == "false" || name == "False") {
    expr->constant = Value::boolean(false);
  } else if (name == "none" || name == "None") {
    expr->constant = Value(None{});
  } else {
    expr->kind = ExprKind::Name;
    expr->name = name;
    expr->name_id = name_id(name);
    for (MacroDef* macro : open_macros_) {
      macro->uses_caller = macro->uses_caller || expr->name_id == kCallerName;
      macro->uses_kwargs = macro->uses_kwargs || expr->name_id == kKwargsName;
      macro->uses_varargs = macro->uses_varargs || expr->name_id == kVarargsName;
    }
  }
  return expr;
}

ExprPtr ExpressionParser::parse_string() {
  ExprPtr expr = make(ExprKind::Constant, current().line);
  std::string text;
  while (is(TokenKind::String)) {
    text += current().text;
    advance();
  }
  expr->constant = Value::constant(text);
  return expr;
}

ExprPtr ExpressionParser::parse_parenthesis() {
  const Nesting nesting(*this);
  const int line = current().line;
  advance();
  ExprPtr expr;
  if (is_operator(")")) {
    expr = make(ExprKind::Tuple, line);
  } else {
    expr = parse_tuple(true);
  }
  expect_operator(")");
  return expr;
}

ExprPtr ExpressionParser::parse_tuple(bool with_conditional, std::string_view ends_at) {
  const Nesting nesting(*this);
  const int line = current().line;
  const auto parse = [&] { return with_conditional ? parse_conditional() : parse_or(); };
  ExprPtr first = parse();
  if (!is_operator(",")) return first;
  ExprPtr expr = make(ExprKind::Tuple, line);
  expr->items.push_back(std::move(first));
  while (skip_operator(",")) {
    const bool ends = is(TokenKind::VariableEnd) || is(TokenKind::BlockEnd) || is_operator(")") ||
                      (!ends_at.empty() && is_name(ends_at));
    if (ends) break;
    expr->items.push_back(parse());
  }
  return finish(std::move(expr));
}

ExprPtr ExpressionParser::parse_list() {
  const Nesting nesting(*this);
  ExprPtr expr = make(ExprKind::List, current().line);
  advance();
  while (!is_operator("]") && !is(TokenKind::End)) {
    expr->items.push_back(parse_expression());
    if (!skip_operator(",")) break;
  }
  expect_operator("]");
  return finish(std::move(expr));
}

ExprPtr ExpressionParser::parse_dict() {
  const Nesting nesting(*this);
  ExprPtr expr = make(ExprKind::Dict, current().line);
  advance();
  while (!is_operator("}") && !is(TokenKind::End)) {
    expr->items.push_back(parse_expression());
    expect_operator(":");
    expr->items.push_back(parse_expression());
    if (!skip_operator(",")) break;
  }
  expect_operator("}");
  return finish(std::move(expr));
}

}  // namespace llorch::jinja
