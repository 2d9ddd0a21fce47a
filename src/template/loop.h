// The `loop` of a for statement, and the walk itself: elements are tested by the loop's own `if`
// only when they are reached, so that what the body changes counts.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "template/ast.h"
#include "template/run.h"
#include "template/value.h"

namespace llorch::jinja {

class Evaluator;
struct Scope;

class Loop : public Object, public std::enable_shared_from_this<Loop> {
 public:
  Loop(Evaluator& evaluator, const Stmt& statement, Scope* scope, std::vector<Value> elements,
       int level);

  // Moves to the next element; false at the end.
  bool advance();
  const Value& current() const { return *current_; }
  // Lets go of everything: a loop that a template kept could otherwise hold itself.
  void finish();

  std::string_view type_name() const override { return "LoopContext"; }
  std::optional<Value> attribute(Run& run, std::string_view name) override;
  bool is_callable() const override { return true; }
  Value call(Run& run, CallArgs& args) override;

  Value cycle(Run& run, CallArgs& args);
  Value changed(Run& run, CallArgs& args);

 private:
  std::optional<Value> pull();
  bool has_next();
  std::int64_t length();

  Evaluator& evaluator_;
  const Stmt& statement_;
  Scope* scope_;
  std::vector<Value> elements_;
  std::size_t next_ = 0;
  bool tested_ = false;  // what is left in elements_ has passed the test
  int level_;
  std::int64_t index0_ = -1;
  std::optional<std::int64_t> length_;
  std::optional<Value> before_, current_, after_;
  std::optional<Value> last_changed_;
  bool finished_ = false;
};

}  // namespace llorch::jinja
