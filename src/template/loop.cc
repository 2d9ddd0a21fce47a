#include "template/loop.h"

#include <algorithm>
#include <utility>

#include "template/evaluator.h"

namespace llorch::jinja {
namespace {

int depth_of(const std::vector<Value>& elements) {
  int depth = 1;
  for (const Value& element : elements) depth = std::max(depth, element.depth() + 1);
  return depth;
}

class LoopMethod : public Object {
 public:
  LoopMethod(std::shared_ptr<Loop> loop, bool cycles)
      : Object(loop->depth + 1), loop_(std::move(loop)), cycles_(cycles) {}
  std::string_view type_name() const override { return "method"; }
  bool is_callable() const override { return true; }
  Value call(Run& run, CallArgs& args) override {
    return cycles_ ? loop_->cycle(run, args) : loop_->changed(run, args);
  }

 private:
  std::shared_ptr<Loop> loop_;
  bool cycles_;
};

}  // namespace

Loop::Loop(Evaluator& evaluator, const Stmt& statement, Scope* scope, std::vector<Value> elements,
           int level)
    : Object(depth_of(elements)),
      evaluator_(evaluator),
      statement_(statement),
      scope_(scope),
      elements_(std::move(elements)),
      level_(level) {}

std::optional<Value> Loop::pull() {
  while (next_ < elements_.size()) {
    Value element = std::move(elements_[next_++]);
    if (tested_ || !statement_.condition || evaluator_.passes(statement_, scope_, element)) {
      return element;
    }
  }
  return std::nullopt;
}

bool Loop::has_next() {
  if (!after_) after_ = pull();
  return after_.has_value();
}

bool Loop::advance() {
  std::optional<Value> element = after_ ? std::exchange(after_, std::nullopt) : pull();
  if (!element) return false;
  ++index0_;
  before_ = std::move(current_);
  current_ = std::move(element);
  return true;
}

void Loop::finish() {
  // A length that nobody asked for is not worth testing what a break left over.
  if (!length_) length_ = statement_.condition ? index0_ + 1 : length();
  finished_ = true;
  elements_.clear();
  next_ = 0;
  before_.reset();
  current_.reset();
  after_.reset();
  last_changed_.reset();
}

std::int64_t Loop::length() {
  if (length_) return *length_;
  if (!statement_.condition) {
    length_ = static_cast<std::int64_t>(elements_.size());
    return *length_;
  }
  std::vector<Value> left;
  while (std::optional<Value> element = pull()) left.push_back(std::move(*element));
  length_ = static_cast<std::int64_t>(left.size()) + index0_ + 1 + (after_ ? 1 : 0);
  elements_ = std::move(left);
  next_ = 0;
  tested_ = true;
  return *length_;
}

std::optional<Value> Loop::attribute(Run& run, std::string_view name) {
  if (name == "index") return Value::integer(index0_ + 1);
  if (name == "index0") return Value::integer(index0_);
  if (name == "first") return Value::boolean(index0_ == 0);
  if (name == "last") return Value::boolean(!has_next());
  if (name == "length") return Value::integer(length());
  if (name == "revindex") return Value::integer(length() - index0_);
  if (name == "revindex0") return Value::integer(length() - index0_ - 1);
  if (name == "depth") return Value::integer(level_ + 1);
  if (name == "depth0") return Value::integer(level_);
  if (name == "previtem") return before_ ? *before_ : run.undefined("there is no previous item");
  if (name == "nextitem") return has_next() ? *after_ : run.undefined("there is no next item");
  if (name != "cycle" && name != "changed") return std::nullopt;
  return run.object(std::make_shared<LoopMethod>(shared_from_this(), name == "cycle"));
}

Value Loop::cycle(Run& run, CallArgs& args) {
  if (args.positional.empty()) return run.fail("no items for cycling given");
  const auto index = static_cast<std::size_t>(std::max<std::int64_t>(index0_, 0));
  return args.positional[index % args.positional.size()];
}

Value Loop::changed(Run& run, CallArgs& args) {
  const Value now = run.tuple(std::move(args.positional));
  if (run.failed()) return {};
  if (last_changed_ && run.equals(*last_changed_, now)) return Value::boolean(false);
  if (!finished_) last_changed_ = now;
  return Value::boolean(true);
}

Value Loop::call(Run& run, CallArgs& args) {
  if (!statement_.is_recursive) {
    return run.fail("The loop must have the 'recursive' marker to be called recursively.");
  }
  const Args bound(run, "loop", args, {"iterable"}, 1);
  if (run.failed()) return {};
  return evaluator_.render_loop(statement_, scope_, bound[0], level_ + 1);
}

}  // namespace llorch::jinja
