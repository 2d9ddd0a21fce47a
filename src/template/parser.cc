#include "template/parser.h"

#include <fmt/format.h>

#include <initializer_list>
#include <utility>

#include "template/expression_parser.h"

namespace llorch::jinja {
namespace {

constexpr std::size_t kMaxSourceBytes = 1U << 20;

using Tags = std::initializer_list<std::string_view>;

// The statement half: what stands between {% and %}.
class StatementParser : public ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Body parse_all() { return parse_body({}); }

 private:
  // Up to one of the tags, which stays current; without tags, up to the end.
  Body parse_body(Tags ends) {
    const Nesting nesting(*this);
    Body body;
    while (!is(TokenKind::End)) {
      const int line = current().line;
      if (is(TokenKind::Data)) {
        Stmt& data = add(body, StmtKind::Data, line);
        data.text = current().text;
        advance();
      } else if (is(TokenKind::VariableBegin)) {
        advance();
        add(body, StmtKind::Output, line).expr = parse_tuple(true);
        expect(TokenKind::VariableEnd, "'}}'");
      } else {
        expect(TokenKind::BlockBegin, "'{%'");
        for (const std::string_view end : ends) {
          if (is_name(end)) return body;
        }
        parse_statement(body, line);
        expect(TokenKind::BlockEnd, "'%}'");
      }
    }
    if (ends.size() != 0) fail_unexpected(fmt::format("{{% {} %}}", *(ends.end() - 1)));
    return body;
  }

  // From the end of the opening tag to the named end tag, which is passed.
  Body parse_block(std::string_view end) {
    skip_operator(":");
    expect(TokenKind::BlockEnd, "'%}'");
    Body body = parse_body({end});
    skip_name(end);
    return body;
  }

  static Stmt& add(Body& body, StmtKind kind, int line) {
    Stmt& statement = body.emplace_back();
    statement.kind = kind;
    statement.line = line;
    return statement;
  }

  void parse_statement(Body& body, int line) {
    const std::string tag = expect_name();
    if (tag == "if") return parse_if(add(body, StmtKind::If, line));
    if (tag == "for") return parse_for(add(body, StmtKind::For, line));
    if (tag == "set") return parse_set(add(body, StmtKind::Set, line));
    if (tag == "macro") return parse_macro(add(body, StmtKind::Macro, line));
    if (tag == "call") return parse_call_block(add(body, StmtKind::CallBlock, line));
    if (tag == "filter") return parse_filter_block(add(body, StmtKind::FilterBlock, line));
    if (tag == "with") return parse_with(add(body, StmtKind::With, line));
    if (tag == "generation") {
      return parse_generation(add(body, StmtKind::Generation, line));
    }
    if (tag == "break" || tag == "continue") {
      if (loops_ == 0) fail(ErrorCode::Corrupt, line, fmt::format("'{}' outside of a loop", tag));
      add(body, tag == "break" ? StmtKind::Break : StmtKind::Continue, line);
      return;
    }
    for (const std::string_view known :
         {"include", "import", "from", "extends", "block", "autoescape", "print", "do", "trans"}) {
      if (tag != known) continue;
      return fail(ErrorCode::Unsupported, line,
                  fmt::format("the tag '{}' is not supported in chat templates", tag));
    }
    fail(ErrorCode::Corrupt, line, fmt::format("unknown or misplaced tag '{}'", tag));
  }

  void parse_if(Stmt& statement) {
    while (true) {
      Branch& branch = statement.branches.emplace_back();
      branch.condition = parse_tuple(false);
      skip_operator(":");
      expect(TokenKind::BlockEnd, "'%}'");
      branch.body = parse_body({"elif", "else", "endif"});
      if (skip_name("elif")) continue;
      if (skip_name("else")) {
        statement.branches.emplace_back().body = parse_block("endif");
        return;
      }
      skip_name("endif");
      return;
    }
  }

  void parse_for(Stmt& statement) {
    statement.target = parse_target("in", false);
    if (!skip_name("in")) fail_unexpected("'in'");
    statement.expr = parse_tuple(false, "recursive");
    if (skip_name("if")) statement.condition = parse_expression();
    statement.is_recursive = skip_name("recursive");
    skip_operator(":");
    expect(TokenKind::BlockEnd, "'%}'");
    ++loops_;
    statement.body = parse_body({"else", "endfor"});
    --loops_;
    if (skip_name("else")) {
      statement.other = parse_block("endfor");
    } else {
      skip_name("endfor");
    }
  }

  void parse_set(Stmt& statement) {
    statement.target = parse_target("", true);
    if (skip_operator("=")) {
      statement.expr = parse_tuple(true);
      return;
    }
    statement.kind = StmtKind::SetBlock;
    if (is_operator("|")) statement.expr = parse_filters(nullptr, false);
    statement.body = parse_enclosed("endset");
  }

  // A body that no break or continue can leave, because it is rendered apart.
  Body parse_enclosed(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    Body body = parse_block(end);
    loops_ = loops;
    return body;
  }

  void parse_parameters(MacroDef& macro) {
    expect_operator("(");
    while (!is_operator(")") && !is(TokenKind::End)) {
      MacroDef::Parameter& parameter = macro.parameters.emplace_back();
      const int line = current().line;
      parameter.name = expect_name();
      parameter.name_id = name_id(parameter.name);
      const bool default_before = macro.parameters.size() > 1 &&
                                  macro.parameters[macro.parameters.size() - 2].default_value;
      if (skip_operator("=")) {
        parameter.default_value = parse_expression();
      } else if (default_before) {
        fail(ErrorCode::Corrupt, line, "a parameter without a default follows one with a default");
      }
      if (!skip_operator(",")) break;
    }
    expect_operator(")");
  }

  void parse_macro_body(MacroDef& macro, std::string_view end) {
    open_macros_.push_back(&macro);
    macro.body = parse_enclosed(end);
    open_macros_.pop_back();
    for (const MacroDef::Parameter& parameter : macro.parameters) {
      if (parameter.name_id == kCallerName) macro.uses_caller = false;
      if (parameter.name_id == kKwargsName) macro.uses_kwargs = false;
      if (parameter.name_id == kVarargsName) macro.uses_varargs = false;
    }
  }

  void parse_macro(Stmt& statement) {
    statement.macro = std::make_unique<MacroDef>();
    statement.macro->name = expect_name();
    statement.macro->name_id = name_id(statement.macro->name);
    parse_parameters(*statement.macro);
    parse_macro_body(*statement.macro, "endmacro");
  }

  void parse_call_block(Stmt& statement) {
    statement.macro = std::make_unique<MacroDef>();
    statement.macro->name = "caller";
    if (is_operator("(")) parse_parameters(*statement.macro);
    const int line = current().line;
    statement.expr = parse_expression();
    if (statement.expr->kind != ExprKind::Call) {
      fail(ErrorCode::Corrupt, line, "expected a call behind 'call'");
    }
    parse_macro_body(*statement.macro, "endcall");
  }

  void parse_filter_block(Stmt& statement) {
    statement.expr = parse_filters(nullptr, true);
    statement.body = parse_enclosed("endfilter");
  }

  void parse_with(Stmt& statement) {
    while (!is(TokenKind::BlockEnd) && !is(TokenKind::End)) {
      Target target = parse_target("", false);
      expect_operator("=");
      statement.assignments.emplace_back(std::move(target), parse_expression());
      if (!skip_operator(",")) break;
    }
    statement.body = parse_block("endwith");
  }

  void parse_generation(Stmt& statement) { statement.body = parse_enclosed("endgeneration"); }

  int loops_ = 0;  // loops that a break here could leave
};

}  // namespace

Result<std::shared_ptr<const Program>> parse_program(std::string_view source) {
  if (source.size() > kMaxSourceBytes) {
    return Error{ErrorCode::TooLarge,
                 fmt::format("chat template of {} bytes: at most {} are allowed", source.size(),
                             kMaxSourceBytes)};
  }
  Result<std::vector<Token>> tokens = tokenize(source);
  if (!tokens.ok()) return tokens.error();
  StatementParser parser(tokens.take());
  auto program = std::make_shared<Program>();
  program->body = parser.parse_all();
  if (parser.error()) return *parser.error();
  program->names = parser.take_names();
  return std::shared_ptr<const Program>(std::move(program));
}

}  // namespace llorch::jinja
