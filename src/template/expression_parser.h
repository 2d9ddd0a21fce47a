// The expression half of the parser, and the token cursor that both halves share.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "template/ast.h"
#include "template/lexer.h"

namespace llorch::jinja {

// After the first error the cursor stands on the End token for good, so that every loop ends, and
// the functions return harmless placeholders; the caller asks error() once.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens);

  const std::optional<Error>& error() const { return error_; }
  std::vector<std::string> take_names() { return std::move(names_); }

 protected:
  // Counts one level of nesting while it lives.
  class Nesting {
   public:
    explicit Nesting(ExpressionParser& parser);
    ~Nesting() { --parser_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    ExpressionParser& parser_;
  };

  const Token& current() const { return tokens_[at_]; }
  const Token& peek() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  void advance();
  bool is(TokenKind kind) const { return current().kind == kind; }
  bool is_name(std::string_view name) const;
  bool is_operator(std::string_view op) const;
  bool skip_name(std::string_view name);
  bool skip_operator(std::string_view op);
  void expect_operator(std::string_view op);
  void expect(TokenKind kind, std::string_view what);
  std::string expect_name();
  void fail(ErrorCode code, int line, std::string_view what);
  void fail_unexpected(std::string_view expected);
  std::uint32_t name_id(std::string_view name);

  ExprPtr make(ExprKind kind, int line);
  // Checks the depth that the parts give the whole.
  ExprPtr finish(ExprPtr expr);

  ExprPtr parse_expression() { return parse_conditional(); }
  ExprPtr parse_or();
  // Several expressions with commas are a tuple. `ends_at` is a name that ends it, or empty.
  ExprPtr parse_tuple(bool with_conditional, std::string_view ends_at = "");
  ExprPtr parse_filters(ExprPtr subject, bool starts_inline);
  Target parse_target(std::string_view ends_at, bool allows_attribute);

  // Macros whose bodies are being parsed, outermost first: they learn which special names they use.
  std::vector<MacroDef*> open_macros_;

 private:
  ExprPtr parse_conditional();
  // Items with `between` between them, which `skips` skips: one expression with all of them, or the
  // item where there is one.
  ExprPtr parse_chain(ExprKind kind, bool (ExpressionParser::*skips)(std::string_view),
                      std::string_view between, ExprPtr (ExpressionParser::*parse_item)());
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filters);
  ExprPtr parse_primary();
  ExprPtr parse_string();
  ExprPtr parse_name();
  ExprPtr parse_parenthesis();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr expr);
  ExprPtr parse_subscript(ExprPtr expr);
  ExprPtr parse_filter_or_test(ExprPtr expr);
  ExprPtr parse_test(ExprPtr subject);
  ExprPtr parse_call(ExprPtr callee);
  Arguments parse_arguments();
  Target parse_single_target();
  std::string parse_dotted_name();
  ExprPtr binary(ExprPtr left, Operator op, ExprPtr right, int line);

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int nesting_ = 0;
  std::vector<std::string> names_;
  std::map<std::string, std::uint32_t, std::less<>> name_ids_;
  std::optional<Error> error_;
};

}  // namespace llorch::jinja
