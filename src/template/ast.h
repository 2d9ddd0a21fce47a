// A parsed template: plain data, immutable once the parser has handed it out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "template/value.h"

namespace llorch::jinja {

enum class ExprKind : std::uint8_t {
  Constant,
  Name,         // name, name_id
  List,         // items
  Tuple,        // items
  Dict,         // items: key, value, key, value, …
  Attribute,    // items[0].name
  Item,         // items[0][items[1]]
  Slice,        // items[0][items[1]:items[2]:items[3]]; the last three may be null
  Call,         // items[0](args)
  Filter,       // items[0]|name(args); items[0] is null in a filter block
  Test,         // items[0] is name(args)
  Not,          // items[0]
  Negate,       // items[0]
  Plus,         // items[0]
  And,          // items
  Or,           // items
  Binary,       // items[0] operators[0] items[1]
  Concat,       // items joined as text
  Compare,      // items[0] operators[0] items[1] operators[1] items[2] …
  Conditional,  // items[1] if items[0] else items[2]; the last may be null
};

enum class Operator : std::uint8_t {
  Add,
  Subtract,
  Multiply,
  Divide,
  FloorDivide,
  Modulo,
  Power,
  Equal,
  NotEqual,
  Less,
  LessEqual,
  Greater,
  GreaterEqual,
  In,
  NotIn,
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Arguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> keywords;
  ExprPtr star;         // *args, or null
  ExprPtr double_star;  // **kwargs, or null
};

struct Expr {
  ExprKind kind = ExprKind::Constant;
  int line = 0;
  int depth = 1;  // levels of expressions below and including this one
  Value constant;
  std::string name;
  std::uint32_t name_id = 0;        // index into Program::names
  NativeFunction native = nullptr;  // of a filter or test; null when there is none of that name
  std::vector<ExprPtr> items;
  std::vector<Operator> operators;
  Arguments args;
};

// What a value can be assigned to: a name, an attribute of a namespace, or several targets.
struct Target {
  std::uint32_t name_id = 0;
  std::string attribute;      // not empty: name.attribute
  std::vector<Target> parts;  // not empty: unpack into these
};

struct Stmt;
using Body = std::vector<Stmt>;

struct MacroDef {
  struct Parameter {
    std::string name;
    std::uint32_t name_id = 0;
    ExprPtr default_value;  // or null
  };
  std::string name;
  std::uint32_t name_id = 0;
  std::vector<Parameter> parameters;
  Body body;
  bool uses_caller = false;
  bool uses_kwargs = false;
  bool uses_varargs = false;
};

enum class StmtKind : std::uint8_t {
  Data,         // text
  Output,       // expr
  If,           // branches; the last may have no condition
  For,          // target in expr if condition: body, else other
  Set,          // target = expr
  SetBlock,     // target = body, through expr (a filter chain or null)
  Macro,        // macro
  CallBlock,    // expr (a call) with macro as its caller
  FilterBlock,  // body through expr
  With,         // assignments, then body in a scope of its own
  Generation,   // body in a scope of its own
  Break,
  Continue,
};

struct Branch {
  ExprPtr condition;  // null: else
  Body body;
};

struct Stmt {
  StmtKind kind = StmtKind::Data;
  int line = 0;
  std::string text;
  ExprPtr expr;
  ExprPtr condition;
  Target target;
  bool is_recursive = false;
  Body body;
  Body other;
  std::vector<Branch> branches;
  std::vector<std::pair<Target, ExprPtr>> assignments;
  std::unique_ptr<MacroDef> macro;
};

// Names that the evaluator itself binds or looks up have fixed ids.
enum FixedName : std::uint32_t {
  kLoopName,
  kCallerName,
  kKwargsName,
  kVarargsName,
  kNumFixedNames
};

struct Program {
  std::vector<std::string> names;
  Body body;
};

}  // namespace llorch::jinja
