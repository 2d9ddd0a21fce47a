// One rendering's state below the evaluator: its budget, its first failure, and the making of
// values, which is where the budget is charged. Filters, tests and methods see only this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "template/chat_template.h"
#include "template/value.h"

namespace llorch::jinja {

// A failure is sticky: the first one is kept, every later step is refused, and whoever loops asks
// failed() or step(). Functions that failed return an undefined value that nobody looks at.
class Run {
 public:
  explicit Run(const RenderOptions& options) : options_(options) {}
  ~Run();
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  const RenderOptions& options() const { return options_; }
  bool failed() const { return error_.has_value(); }
  const Error& error() const { return *error_; }
  Value fail(std::string_view what);
  Value fail_limit(std::string_view what);
  Value fail_undefined(const Value& undefined);
  // raise_exception(): the message is the template's own.
  Value raise(std::string message);
  void set_line(int line) { line_ = line; }

  // False, and failed, when the budget is spent.
  bool step(std::size_t count = 1);
  bool charge(std::size_t bytes);                                       // that are made
  bool read(std::size_t bytes) { return step(bytes / kBytesPerStep); }  // that are looked at

  // Text of users, or of unclear origin.
  Value text(std::string text);
  Value text(std::string_view text) { return this->text(std::string(text)); }
  // Text with the marks that it has.
  Value text(MarkedText text, bool is_safe = false);
  // `part` is a stretch of source.text and keeps its marks.
  Value part(const String& source, std::string_view part);
  // What was made of `source` by changing its characters: the template's own if all of that was.
  Value changed(const String& source, std::string text, bool is_safe = false);
  Value undefined(std::string message);
  Value list(std::vector<Value> items) { return sequence(SequenceKind::List, std::move(items)); }
  Value tuple(std::vector<Value> items) { return sequence(SequenceKind::Tuple, std::move(items)); }
  Value sequence(SequenceKind kind, std::vector<Value> items, std::string range_text = "");
  // What Python calls a generator: can be walked once.
  Value iterator(std::string_view type_name, std::vector<Value> items);
  // Later entries replace earlier ones of the same key.
  Value dict(std::vector<Dict::Entry> entries);
  Value object(std::shared_ptr<Object> object);
  Value from_json(const json::Value& json);

  // The elements that a for loop would see; a failure where the value cannot be walked. Uses up an
  // iterator.
  std::vector<Value> elements(const Value& value);
  // len(); nothing, and a failure, where Python has none.
  std::optional<std::size_t> length(const Value& value);

  // str(value), and repr(value) behind `out`.
  std::string to_text(const Value& value);
  void append_text(std::string& out, const Value& value);
  void append_text(MarkedText& out, const Value& value);  // with its marks
  void append_repr(std::string& out, const Value& value);

  // object.name and object[key]: data first or methods first, as Jinja does; undefined where
  // neither.
  Value attribute(const Value& object, std::string_view name);
  Value item(const Value& object, const Value& key);
  Value call(const Value& callee, CallArgs& args);

  // Python's == and <. Comparing what has no order is a failure.
  bool equals(const Value& a, const Value& b);
  bool less(const Value& a, const Value& b);
  const Value* find_key(const Dict& dict, const Value& key);
  bool contains(const Value& container, const Value& value);

 private:
  void append_entries(std::string& out, const Dict& dict);
  void append_sequence(std::string& out, const Sequence& sequence);
  void append_object(std::string& out, const Value& value);
  bool equal_sequences(const Sequence& a, const Sequence& b);
  bool equal_dicts(const Dict& a, const Dict& b);
  Value json_at(const json::Value& json, int depth);
  Value json_member(std::string_view key, const json::Value& json, int depth);
  Value method(const Value& object, std::string_view name);
  std::optional<Value> element(const Value& object, const Value& key);
  Value missing(const Value& object, const Value& key);

  bool check_time();

  static constexpr std::size_t kBytesPerStep = 64;

  const RenderOptions& options_;
  std::optional<Error> error_;
  int line_ = 0;
  int repr_depth_ = 0;
  std::int64_t steps_ = 0;
  std::int64_t next_check_ = 0;  // of the clock, in steps
  std::size_t work_bytes_ = 0;
  // Namespaces can hold themselves; the run breaks such circles at its end.
  std::vector<std::shared_ptr<Object>> namespaces_;
};

class Iterator : public Object {
 public:
  Iterator(std::string_view type, std::vector<Value> values, int own_depth)
      : Object(own_depth), items(std::move(values)), type_(type) {}
  std::string_view type_name() const override { return type_; }

  std::vector<Value> items;
  std::size_t next = 0;

 private:
  std::string_view type_;
};

class Namespace : public Object {
 public:
  Namespace() : Object(0) {}
  std::string_view type_name() const override { return "Namespace"; }
  std::optional<Value> attribute(Run& run, std::string_view name) override;
  void set(std::string_view name, Value value);

  std::vector<std::pair<std::string, Value>> attributes;
};

// A native function, alone or bound to the value whose method it is.
class Function : public Object {
 public:
  Function(std::string_view name, NativeFunction native, Value subject)
      : Object(subject.depth() + 1), name_(name), native_(native), subject_(std::move(subject)) {}
  std::string_view type_name() const override { return "builtin_function_or_method"; }
  bool is_callable() const override { return true; }
  Value call(Run& run, CallArgs& args) override { return native_(run, subject_, args); }
  std::string_view name() const { return name_; }

 private:
  std::string_view name_;  // of a table that lives for ever
  NativeFunction native_;
  Value subject_;
};

// Arguments by position or name, in the order of `names`. Too many, too few or unknown ones fail.
class Args {
 public:
  static constexpr std::size_t kMaxNames = 6;
  Args(Run& run, std::string_view function, CallArgs& args,
       std::initializer_list<std::string_view> names, std::size_t required);

  bool has(std::size_t index) const { return given_[index]; }
  const Value& operator[](std::size_t index) const { return values_[index]; }
  bool flag(std::size_t index, bool fallback = false) const;
  Int integer(std::size_t index, Int fallback) const;             // fails on another type
  std::optional<std::string_view> text(std::size_t index) const;  // nothing when absent or None

 private:
  Run& run_;
  std::string_view function_;
  Value values_[kMaxNames];
  bool given_[kMaxNames] = {};
};

}  // namespace llorch::jinja
