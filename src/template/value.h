// The values a template works on, with Python's meaning: strings, numbers, lists and dicts are
// immutable and shared; objects are what only templates have (macros, loops, namespaces, methods).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "template/marked_text.h"

namespace llorch::jinja {

class Run;
class Value;

// Wide enough for every integer that JSON can carry; arithmetic that leaves it is an error.
__extension__ typedef __int128 Int;

struct None {};
// A name or item that does not exist. Prints as nothing; most other uses fail with the message.
struct Undefined {
  std::shared_ptr<const std::string> message;
};
struct String : MarkedText {
  bool is_safe = false;  // went through `safe` or `escape`: adding to it escapes the other side
};

// How many containers lie within one another at most: bounds every recursion over a value.
inline constexpr int kMaxValueDepth = 128;

enum class SequenceKind : std::uint8_t { List, Tuple, Range, DictKeys, DictValues, DictItems };
std::string_view type_name(SequenceKind kind);
struct Sequence {
  SequenceKind kind = SequenceKind::List;
  int depth = 1;
  std::vector<Value> items;
  std::string range_text;  // "range(0, 3)" where kind is Range
};

class Dict {
 public:
  using Entry = std::pair<Value, Value>;
  // `entries` have distinct keys.
  explicit Dict(std::vector<Entry> entries);
  const std::vector<Entry>& entries() const { return entries_; }
  const Value* find(std::string_view key) const;
  int depth() const { return depth_; }

 private:
  std::vector<Entry> entries_;        // in insertion order
  std::vector<std::uint32_t> order_;  // entries with string keys, sorted by key; empty when few
  int depth_ = 1;
};

struct CallArgs {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keywords;
};

// Filters, tests, methods and global functions all look like this.
using NativeFunction = Value (*)(Run& run, const Value& subject, CallArgs& args);

class Object {
 public:
  explicit Object(int own_depth) : depth(own_depth) {}
  virtual ~Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual std::string_view type_name() const = 0;
  virtual std::optional<Value> attribute(Run& run, std::string_view name);
  virtual bool is_callable() const { return false; }
  virtual Value call(Run& run, CallArgs& args);

  const int depth;
};

class Value {
 public:
  using StringPtr = std::shared_ptr<const String>;
  using SequencePtr = std::shared_ptr<const Sequence>;
  using DictPtr = std::shared_ptr<const Dict>;
  using ObjectPtr = std::shared_ptr<Object>;

  Value() : state_(Undefined{}) {}
  Value(Undefined undefined) : state_(std::move(undefined)) {}
  Value(None none) : state_(none) {}
  Value(StringPtr string) : state_(std::move(string)) {}
  Value(SequencePtr sequence) : state_(std::move(sequence)) {}
  Value(DictPtr dict) : state_(std::move(dict)) {}
  Value(ObjectPtr object) : state_(std::move(object)) {}
  static Value boolean(bool value) { return Value(State(value)); }
  static Value integer(Int value) { return Value(State(value)); }
  static Value real(double value) { return Value(State(value)); }
  // A constant of the program, which is the template's own text; strings made while rendering go
  // through Run::text, which counts them.
  static Value constant(std::string_view text);

  bool is_undefined() const { return std::holds_alternative<Undefined>(state_); }
  bool is_none() const { return std::holds_alternative<None>(state_); }
  const bool* as_bool() const { return std::get_if<bool>(&state_); }
  const Int* as_int() const { return std::get_if<Int>(&state_); }
  const double* as_real() const { return std::get_if<double>(&state_); }
  const String* as_string() const { return pointee<StringPtr>(); }
  const Sequence* as_sequence() const { return pointee<SequencePtr>(); }
  const Dict* as_dict() const { return pointee<DictPtr>(); }
  Object* as_object() const;
  template <class T>
  T* as_object_of() const {
    return dynamic_cast<T*>(as_object());
  }
  const Undefined& undefined() const { return std::get<Undefined>(state_); }

  bool is_number() const {
    return as_bool() != nullptr || as_int() != nullptr || as_real() != nullptr;
  }
  // Of a bool or an integer, as Python counts bool among the integers.
  std::optional<Int> integral() const;
  // Of any number.
  double to_double() const;
  bool is_true() const;
  int depth() const;
  // Same object, not merely equal.
  bool is_same(const Value& other) const;
  // Python's name: "str", "NoneType", "dict_items", …
  std::string_view type_name() const;

 private:
  using State =
      std::variant<Undefined, None, bool, Int, double, StringPtr, SequencePtr, DictPtr, ObjectPtr>;
  explicit Value(State state) : state_(std::move(state)) {}
  template <class Ptr>
  const typename Ptr::element_type* pointee() const {
    const Ptr* ptr = std::get_if<Ptr>(&state_);
    return ptr == nullptr ? nullptr : ptr->get();
  }

  State state_;
};

// What Python's repr writes for a float: the shortest digits that read back the same.
std::string real_text(double value);
std::string integer_text(Int value);
// Python's repr of a string: quotes, escapes for what cannot be printed.
void append_quoted(std::string& out, std::string_view text);
std::string in_quotes(std::string_view text);

}  // namespace llorch::jinja
