// Walks a program: scopes, statements, expressions, macros and loops.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "template/ast.h"
#include "template/run.h"
#include "template/value.h"

namespace llorch::jinja {

// Restores a variable at the end of a block.
template <class T>
class Restore {
 public:
  Restore(T& variable, T value) : variable_(variable), old_(std::exchange(variable, value)) {}
  ~Restore() { variable_ = old_; }
  Restore(const Restore&) = delete;
  Restore& operator=(const Restore&) = delete;

 private:
  T& variable_;
  T old_;
};

// The names of one block. A macro sees the block that it was defined in for as long as it can be
// called; such a scope, and those around it, stay until the end of the rendering.
struct Scope {
  Scope* parent = nullptr;  // null: the template's top level, which is Evaluator::globals_
  bool is_captured = false;
  std::vector<std::pair<std::uint32_t, Value>> variables;
};

class Evaluator {
 public:
  // Only the members of `context` that the program names are looked at.
  Evaluator(const Program& program, Run& run, const json::Object& context);

  MarkedText render();

  Value call_macro(const MacroDef& macro, Scope* scope, CallArgs& args);
  // The text of a recursive loop over other elements.
  Value render_loop(const Stmt& loop, Scope* scope, const Value& iterable, int level);
  // Whether an element passes the loop's own `if`.
  bool passes(const Stmt& loop, Scope* scope, const Value& element);

 private:
  enum class Flow : std::uint8_t { Normal, Break, Continue };

  // Makes a fresh scope current while it lives.
  class Enter {
   public:
    Enter(Evaluator& evaluator, Scope* parent);
    ~Enter();
    Enter(const Enter&) = delete;
    Enter& operator=(const Enter&) = delete;

   private:
    Evaluator& evaluator_;
    std::unique_ptr<Scope> scope_;
    Scope* previous_;
  };

  Flow execute(const Body& body);
  Flow execute(const Stmt& statement);
  Flow execute_if(const Stmt& statement);
  void execute_for(const Stmt& statement, Scope* scope, const Value& iterable, int level);
  void execute_call_block(const Stmt& statement);
  void execute_with(const Stmt& statement);
  // The body's text, in a scope of its own.
  MarkedText capture(const Body& body);
  Value filter_block(const Stmt& statement);

  Value evaluate(const Expr& expr);
  Value evaluate_node(const Expr& expr);
  Value evaluate_collection(const Expr& expr);
  Value evaluate_call(const Expr& expr, std::optional<Value> caller);
  // A filter or a test, as `what` says. Without a subject of its own a filter has the block's.
  Value evaluate_native(const Expr& expr, std::string_view what);
  Value evaluate_logic(const Expr& expr);
  Value evaluate_compare(const Expr& expr);
  Value evaluate_concat(const Expr& expr);
  Value evaluate_conditional(const Expr& expr);
  CallArgs evaluate_arguments(const Arguments& arguments);

  Value lookup(std::uint32_t name_id);
  void assign(std::uint32_t name_id, Value value);
  void assign(const Target& target, const Value& value);
  Value make_macro(const MacroDef& macro);
  void capture_scopes(Scope* scope);
  bool may_write(std::size_t bytes);
  void write(const Value& value);
  void write(const MarkedText& text);

  const Program& program_;
  Run& run_;
  std::vector<std::optional<Value>> globals_;  // by name id: the context, functions, top-level sets
  Scope* scope_ = nullptr;                     // innermost; null at the top level
  std::vector<std::unique_ptr<Scope>> captured_;
  std::vector<std::unique_ptr<Scope>> spare_;
  MarkedText* out_ = nullptr;
  const Value* block_subject_ = nullptr;  // what a filter chain without a subject works on
  int depth_ = 0;
};

}  // namespace llorch::jinja
