#include "template/evaluator.h"

#include <fmt/format.h>

#include <algorithm>

#include "template/builtins.h"
#include "template/loop.h"
#include "template/operators.h"

namespace llorch::jinja {
namespace {

class Macro : public Object {
 public:
  Macro(Evaluator& evaluator, const MacroDef& definition, Scope* scope)
      : Object(0), evaluator_(evaluator), definition_(definition), scope_(scope) {}
  std::string_view type_name() const override { return "Macro"; }
  bool is_callable() const override { return true; }
  Value call(Run&, CallArgs& args) override {
    return evaluator_.call_macro(definition_, scope_, args);
  }
  std::optional<Value> attribute(Run& run, std::string_view name) override {
    if (name == "name") return run.text(definition_.name);
    return std::nullopt;
  }

 private:
  Evaluator& evaluator_;
  const MacroDef& definition_;
  Scope* scope_;  // where it was defined
};

}  // namespace

Evaluator::Evaluator(const Program& program, Run& run, const json::Object& context)
    : program_(program), run_(run), globals_(program.names.size()) {
  for (std::size_t id = 0; id < program.names.size(); ++id) {
    const std::string& name = program.names[id];
    if (const auto word = run_.options().special_tokens.find(name);
        word != run_.options().special_tokens.end()) {
      globals_[id] = Value::constant(word->second);
    } else if (const json::Value* value = context.if_contains(name)) {
      globals_[id] = run_.from_json(*value);
    } else if (const NamedFunction* function = find_global(name)) {
      globals_[id] =
          run_.object(std::make_shared<Function>(function->name, function->function, Value()));
    }
  }
}

MarkedText Evaluator::render() {
  MarkedText out;
  out_ = &out;
  execute(program_.body);
  return out;
}

Evaluator::Enter::Enter(Evaluator& evaluator, Scope* parent)
    : evaluator_(evaluator), previous_(evaluator.scope_) {
  if (evaluator_.spare_.empty()) {
    scope_ = std::make_unique<Scope>();
  } else {
    scope_ = std::move(evaluator_.spare_.back());
    evaluator_.spare_.pop_back();
  }
  scope_->parent = parent;
  evaluator_.scope_ = scope_.get();
}

Evaluator::Enter::~Enter() {
  evaluator_.scope_ = previous_;
  if (scope_->is_captured) {
    evaluator_.captured_.push_back(std::move(scope_));
  } else {
    scope_->variables.clear();
    evaluator_.spare_.push_back(std::move(scope_));
  }
}

void Evaluator::capture_scopes(Scope* scope) {
  constexpr std::size_t kScopeBytes = 512;  // about what a scope with a few variables takes
  if (scope != nullptr && !scope->is_captured) run_.charge(kScopeBytes);
  for (; scope != nullptr && !scope->is_captured; scope = scope->parent) scope->is_captured = true;
}

Value Evaluator::lookup(std::uint32_t name_id) {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    for (const auto& [id, value] : scope->variables) {
      if (id == name_id) return value;
    }
  }
  if (globals_[name_id]) return *globals_[name_id];
  return run_.undefined(fmt::format("{} is undefined", in_quotes(program_.names[name_id])));
}

void Evaluator::assign(std::uint32_t name_id, Value value) {
  if (scope_ == nullptr) {
    globals_[name_id] = std::move(value);
    return;
  }
  for (auto& [id, old] : scope_->variables) {
    if (id != name_id) continue;
    old = std::move(value);
    return;
  }
  run_.step(scope_->variables.size() / 16);
  scope_->variables.emplace_back(name_id, std::move(value));
}

void Evaluator::assign(const Target& target, const Value& value) {
  if (!target.attribute.empty()) {
    const Value object = lookup(target.name_id);
    auto* space = object.as_object_of<Namespace>();
    if (space == nullptr) {
      run_.fail("cannot assign attribute on non-namespace object");
      return;
    }
    if (run_.step(space->attributes.size() / 8)) space->set(target.attribute, value);
    return;
  }
  if (target.parts.empty()) return assign(target.name_id, value);
  const std::vector<Value> values = run_.elements(value);
  if (run_.failed()) return;
  if (values.size() != target.parts.size()) {
    run_.fail(values.size() < target.parts.size()
                  ? fmt::format("not enough values to unpack (expected {}, got {})",
                                target.parts.size(), values.size())
                  : fmt::format("too many values to unpack (expected {})", target.parts.size()));
    return;
  }
  for (std::size_t i = 0; i < values.size(); ++i) assign(target.parts[i], values[i]);
}

bool Evaluator::may_write(std::size_t bytes) {
  if (run_.failed()) return false;
  const std::size_t limit = run_.options().limits.max_output_bytes;
  if (bytes > limit - std::min(out_->text.size(), limit)) {
    run_.fail_limit(fmt::format("output of more than {} bytes", limit));
    return false;
  }
  return run_.charge(bytes);
}

void Evaluator::write(const MarkedText& text) {
  if (may_write(text.text.size()) && run_.charge(text.own.size() * sizeof(base::TextSpan)))
    out_->add(text);
}

void Evaluator::write(const Value& value) {
  if (const String* string = value.as_string())
    return write(static_cast<const MarkedText&>(*string));
  const std::string text = run_.to_text(value);
  if (may_write(text.size())) out_->add(text);
}

Evaluator::Flow Evaluator::execute(const Body& body) {
  for (const Stmt& statement : body) {
    const Flow flow = execute(statement);
    if (run_.failed()) return Flow::Normal;
    if (flow != Flow::Normal) return flow;
  }
  return Flow::Normal;
}

Evaluator::Flow Evaluator::execute(const Stmt& statement) {
  const Restore<int> deeper(depth_, depth_ + 1);
  run_.set_line(statement.line);
  if (!run_.step()) return Flow::Normal;
  if (depth_ > run_.options().limits.max_depth) {
    run_.fail_limit(
        fmt::format("recursion deeper than {} levels", run_.options().limits.max_depth));
    return Flow::Normal;
  }
  switch (statement.kind) {
    case StmtKind::Data:
      if (may_write(statement.text.size())) out_->add_own(statement.text);
      break;
    case StmtKind::Output:
      write(evaluate(*statement.expr));
      break;
    case StmtKind::If:
      return execute_if(statement);
    case StmtKind::For: {
      const Value iterable = evaluate(*statement.expr);
      if (!run_.failed()) execute_for(statement, scope_, iterable, 0);
      break;
    }
    case StmtKind::Set:
      assign(statement.target, evaluate(*statement.expr));
      break;
    case StmtKind::SetBlock:
      assign(statement.target, filter_block(statement));
      break;
    case StmtKind::Macro:
      assign(statement.macro->name_id, make_macro(*statement.macro));
      break;
    case StmtKind::CallBlock:
      execute_call_block(statement);
      break;
    case StmtKind::FilterBlock:
      write(filter_block(statement));
      break;
    case StmtKind::With:
      execute_with(statement);
      break;
    case StmtKind::Generation:
      write(capture(statement.body));
      break;
    case StmtKind::Break:
      return Flow::Break;
    case StmtKind::Continue:
      return Flow::Continue;
  }
  return Flow::Normal;
}

Evaluator::Flow Evaluator::execute_if(const Stmt& statement) {
  for (const Branch& branch : statement.branches) {
    const bool taken = !branch.condition || evaluate(*branch.condition).is_true();
    if (run_.failed()) return Flow::Normal;
    if (taken) return execute(branch.body);
  }
  return Flow::Normal;
}

void Evaluator::execute_for(const Stmt& statement, Scope* scope, const Value& iterable, int level) {
  if (statement.is_recursive) capture_scopes(scope);
  auto loop = std::make_shared<Loop>(*this, statement, scope, run_.elements(iterable), level);
  const Value loop_value = run_.object(loop);
  bool any = false;
  while (!run_.failed() && loop->advance()) {
    any = true;
    if (!run_.step()) break;
    const Enter enter(*this, scope);
    assign(statement.target, loop->current());
    assign(kLoopName, loop_value);
    if (execute(statement.body) == Flow::Break) break;
  }
  loop->finish();
  if (any || run_.failed()) return;
  const Enter enter(*this, scope);
  execute(statement.other);
}

bool Evaluator::passes(const Stmt& loop, Scope* scope, const Value& element) {
  if (!run_.step()) return false;
  const Enter enter(*this, scope);
  assign(loop.target, element);
  return evaluate(*loop.condition).is_true();
}

Value Evaluator::render_loop(const Stmt& loop, Scope* scope, const Value& iterable, int level) {
  MarkedText text;
  const Restore<MarkedText*> out(out_, &text);
  execute_for(loop, scope, iterable, level);
  return run_.text(std::move(text));
}

MarkedText Evaluator::capture(const Body& body) {
  MarkedText text;
  const Restore<MarkedText*> out(out_, &text);
  const Enter enter(*this, scope_);
  execute(body);
  return text;
}

Value Evaluator::filter_block(const Stmt& statement) {
  const Value text = run_.text(capture(statement.body));
  if (!statement.expr || run_.failed()) return text;
  const Restore<const Value*> subject(block_subject_, &text);
  return evaluate(*statement.expr);
}

void Evaluator::execute_with(const Stmt& statement) {
  std::vector<Value> values;
  for (const auto& [target, expr] : statement.assignments) values.push_back(evaluate(*expr));
  const Enter enter(*this, scope_);
  for (std::size_t i = 0; i < values.size(); ++i) assign(statement.assignments[i].first, values[i]);
  execute(statement.body);
}

Value Evaluator::make_macro(const MacroDef& macro) {
  capture_scopes(scope_);
  return run_.object(std::make_shared<Macro>(*this, macro, scope_));
}

void Evaluator::execute_call_block(const Stmt& statement) {
  const Value result = evaluate_call(*statement.expr, make_macro(*statement.macro));
  write(result);
}

Value Evaluator::call_macro(const MacroDef& macro, Scope* scope, CallArgs& args) {
  const auto take_keyword = [&](std::string_view name) -> std::optional<Value> {
    if (!run_.step(args.keywords.size() / 8)) return std::nullopt;
    for (auto it = args.keywords.begin(); it != args.keywords.end(); ++it) {
      if (it->first != name) continue;
      Value value = std::move(it->second);
      args.keywords.erase(it);
      return value;
    }
    return std::nullopt;
  };
  const Enter enter(*this, scope);
  for (std::size_t i = 0; i < macro.parameters.size() && !run_.failed(); ++i) {
    const MacroDef::Parameter& parameter = macro.parameters[i];
    std::optional<Value> value = i < args.positional.size()
                                     ? std::optional<Value>(args.positional[i])
                                     : take_keyword(parameter.name);
    if (!value && parameter.default_value) value = evaluate(*parameter.default_value);
    if (!value) {
      value =
          run_.undefined(fmt::format("parameter {} was not provided", in_quotes(parameter.name)));
    }
    assign(parameter.name_id, std::move(*value));
  }
  if (macro.uses_caller) {
    std::optional<Value> caller = take_keyword("caller");
    assign(kCallerName, caller ? std::move(*caller) : run_.undefined("No caller defined"));
  }
  if (macro.uses_kwargs) {
    std::vector<Dict::Entry> entries;
    for (auto& [name, value] : args.keywords)
      entries.emplace_back(run_.text(name), std::move(value));
    assign(kKwargsName, run_.dict(std::move(entries)));
  } else if (!args.keywords.empty()) {
    return run_.fail(fmt::format("macro {} takes no keyword argument {}", in_quotes(macro.name),
                                 in_quotes(args.keywords.front().first)));
  }
  const std::size_t count = macro.parameters.size();
  if (macro.uses_varargs) {
    const std::size_t bound = std::min(count, args.positional.size());
    assign(kVarargsName, run_.tuple({args.positional.begin() + static_cast<std::ptrdiff_t>(bound),
                                     args.positional.end()}));
  } else if (args.positional.size() > count) {
    return run_.fail(
        fmt::format("macro {} takes not more than {} argument(s)", in_quotes(macro.name), count));
  }
  MarkedText text;
  const Restore<MarkedText*> out(out_, &text);
  execute(macro.body);
  return run_.text(std::move(text));
}

}  // namespace llorch::jinja
