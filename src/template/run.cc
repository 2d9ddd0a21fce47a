#include "template/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "template/builtins.h"
#include "template/lexer.h"
#include "template/text.h"

namespace llorch::jinja {
namespace {

// Dict methods that Python's immutable sandbox hides; they hide a key of the same name as well.
constexpr std::string_view kHiddenDictNames[] = {"clear",   "fromkeys",   "pop",
                                                 "popitem", "setdefault", "update"};

std::string object_phrase(const Value& object) {
  if (object.is_none()) return "None";
  return fmt::format("{} object", object.type_name());
}

}  // namespace

std::optional<Value> Object::attribute(Run&, std::string_view) {
  return std::nullopt;
}

Value Object::call(Run& run, CallArgs&) {
  return run.fail(fmt::format("'{}' object is not callable", type_name()));
}

std::optional<Value> Namespace::attribute(Run& run, std::string_view name) {
  if (!run.step(attributes.size() / 8)) return std::nullopt;
  for (const auto& [known, value] : attributes) {
    if (known == name) return value;
  }
  return std::nullopt;
}

void Namespace::set(std::string_view name, Value value) {
  for (auto& [known, old] : attributes) {
    if (known != name) continue;
    old = std::move(value);
    return;
  }
  attributes.emplace_back(std::string(name), std::move(value));
}

Run::~Run() {
  for (const auto& object : namespaces_) static_cast<Namespace&>(*object).attributes.clear();
}

Value Run::fail(std::string_view what) {
  if (!error_) error_ = template_error(ErrorCode::Corrupt, line_, what);
  return {};
}

Value Run::fail_limit(std::string_view what) {
  if (!error_) error_ = template_error(ErrorCode::TooLarge, line_, what);
  return {};
}

Value Run::fail_undefined(const Value& undefined) {
  const auto& message = undefined.undefined().message;
  return fail(message ? std::string_view(*message) : "undefined value");
}

Value Run::raise(std::string message) {
  if (!error_) error_ = Error{ErrorCode::InvalidArgument, std::move(message)};
  return {};
}

bool Run::step(std::size_t count) {
  if (failed()) return false;
  const std::int64_t left = options_.limits.max_steps - steps_;
  if (left < 0 || count > static_cast<std::size_t>(left)) {
    fail_limit(fmt::format("rendering takes more than {} steps", options_.limits.max_steps));
    return false;
  }
  steps_ += static_cast<std::int64_t>(count);
  return steps_ < next_check_ || check_time();
}

bool Run::check_time() {
  constexpr std::int64_t kStepsBetween = 4096;  // about a tenth of a millisecond
  next_check_ = steps_ + kStepsBetween;
  if (options_.limit.stop.stop_requested()) {
    if (!error_) error_ = Error{ErrorCode::Cancelled, "rendering the chat template was cancelled"};
    return false;
  }
  if (!options_.limit.is_over()) return true;
  fail_limit("rendering takes longer than the time that it may take");
  return false;
}

bool Run::charge(std::size_t bytes) {
  if (failed()) return false;
  const std::size_t left = options_.limits.max_work_bytes - work_bytes_;
  if (bytes <= left) {
    work_bytes_ += bytes;
    return true;
  }
  fail_limit(fmt::format("rendering needs more than {} bytes of work space",
                         options_.limits.max_work_bytes));
  return false;
}

Value Run::text(std::string text) {
  return this->text(MarkedText{std::move(text), {}});
}

Value Run::text(MarkedText text, bool is_safe) {
  if (!charge(text.text.size() + text.own.size() * sizeof(base::TextSpan) + sizeof(String)))
    return {};
  return Value(std::make_shared<const String>(String{std::move(text), is_safe}));
}

Value Run::part(const String& source, std::string_view part) {
  MarkedText text;
  if (!part.empty()) {
    const auto begin = static_cast<std::size_t>(part.data() - source.text.data());
    text.add(source, begin, begin + part.size());
  }
  return this->text(std::move(text));
}

Value Run::changed(const String& source, std::string text, bool is_safe) {
  MarkedText out;
  if (source.is_own()) {
    out.add_own(text);
  } else {
    out.text = std::move(text);
  }
  return this->text(std::move(out), is_safe);
}

Value Run::undefined(std::string message) {
  if (!charge(message.size())) return {};
  return Value(Undefined{std::make_shared<const std::string>(std::move(message))});
}

Value Run::sequence(SequenceKind kind, std::vector<Value> items, std::string range_text) {
  if (!charge(sizeof(Sequence) + items.size() * sizeof(Value))) return {};
  auto sequence = std::make_shared<Sequence>();
  sequence->kind = kind;
  for (const Value& item : items) sequence->depth = std::max(sequence->depth, item.depth() + 1);
  sequence->items = std::move(items);
  sequence->range_text = std::move(range_text);
  if (sequence->depth > kMaxValueDepth) return fail_limit("value nested too deeply");
  return Value(Value::SequencePtr(std::move(sequence)));
}

Value Run::iterator(std::string_view type_name, std::vector<Value> items) {
  int depth = 1;
  for (const Value& item : items) depth = std::max(depth, item.depth() + 1);
  if (!charge(items.size() * sizeof(Value))) return {};
  return object(std::make_shared<Iterator>(type_name, std::move(items), depth));
}

Value Run::dict(std::vector<Dict::Entry> entries) {
  std::vector<Dict::Entry> distinct;
  for (Dict::Entry& entry : entries) {
    // Looking through what is there is quadratic, and paid for.
    if (!step(1 + distinct.size() / 8)) return {};
    if (entry.first.as_dict() != nullptr ||
        (entry.first.as_sequence() != nullptr &&
         entry.first.as_sequence()->kind == SequenceKind::List)) {
      return fail(fmt::format("unhashable type: '{}'", entry.first.type_name()));
    }
    const auto same = std::find_if(distinct.begin(), distinct.end(), [&](const Dict::Entry& known) {
      return equals(known.first, entry.first);
    });
    if (same != distinct.end()) {
      same->second = std::move(entry.second);
    } else {
      distinct.push_back(std::move(entry));
    }
  }
  if (!charge(sizeof(Dict) + distinct.size() * sizeof(Dict::Entry))) return {};
  auto dict = std::make_shared<const Dict>(std::move(distinct));
  if (dict->depth() > kMaxValueDepth) return fail_limit("value nested too deeply");
  return Value(std::move(dict));
}

Value Run::object(std::shared_ptr<Object> object) {
  if (!charge(sizeof(Function))) return {};
  if (object->depth > kMaxValueDepth) return fail_limit("value nested too deeply");
  if (dynamic_cast<Namespace*>(object.get()) != nullptr) namespaces_.push_back(object);
  return Value(std::move(object));
}

Value Run::from_json(const json::Value& json) {
  return json_at(json, 0);
}

Value Run::json_at(const json::Value& json, int depth) {
  if (depth > kMaxValueDepth) return fail_limit("value nested too deeply");
  if (json.is_bool()) return Value::boolean(json.get_bool());
  if (json.is_int64()) return Value::integer(json.get_int64());
  if (json.is_uint64()) return Value::integer(static_cast<Int>(json.get_uint64()));
  if (json.is_double()) return Value::real(json.get_double());
  if (json.is_string()) return text(json::view(json.get_string()));
  if (json.is_array()) {
    std::vector<Value> items;
    items.reserve(json.get_array().size());
    for (const json::Value& item : json.get_array()) items.push_back(json_at(item, depth + 1));
    return list(std::move(items));
  }
  if (!json.is_object()) return Value(None{});
  std::vector<Dict::Entry> entries;
  entries.reserve(json.get_object().size());
  for (const auto& member : json.get_object()) {
    const std::string_view key = json::view(member.key());
    entries.emplace_back(text(key), json_member(key, member.value(), depth + 1));
  }
  if (!charge(sizeof(Dict) + entries.size() * sizeof(Dict::Entry))) return {};
  auto dict = std::make_shared<const Dict>(std::move(entries));
  if (dict->depth() > kMaxValueDepth) return fail_limit("value nested too deeply");
  return Value(std::move(dict));
}

// Templates make special tokens of roles ("<|" + message.role + "|>"): a known role is as good as
// the template's own text, and nothing else that a conversation holds is.
Value Run::json_member(std::string_view key, const json::Value& json, int depth) {
  constexpr std::string_view kRoles[] = {"system",    "developer", "user",
                                         "assistant", "tool",      "function"};
  if (key == "role" && json.is_string()) {
    const std::string_view role = json::view(json.get_string());
    if (std::find(std::begin(kRoles), std::end(kRoles), role) != std::end(kRoles))
      return Value::constant(role);
  }
  return json_at(json, depth);
}

std::vector<Value> Run::elements(const Value& value) {
  std::vector<Value> items;
  if (value.is_undefined()) return items;
  if (const Sequence* sequence = value.as_sequence()) {
    if (charge(sequence->items.size() * sizeof(Value))) items = sequence->items;
  } else if (const Dict* dict = value.as_dict()) {
    if (!charge(dict->entries().size() * sizeof(Value))) return items;
    for (const auto& [key, unused] : dict->entries()) items.push_back(key);
  } else if (const String* string = value.as_string()) {
    const std::string_view all = string->text;
    for (std::size_t at = 0; at < all.size() && step();) {
      const std::size_t bytes = text::decode(all, at).bytes;
      items.push_back(part(*string, all.substr(at, bytes)));
      at += bytes;
    }
  } else if (auto* iterator = value.as_object_of<Iterator>()) {
    const auto begin = iterator->items.begin() + static_cast<std::ptrdiff_t>(iterator->next);
    items.assign(begin, iterator->items.end());
    iterator->next = iterator->items.size();
  } else {
    fail(fmt::format("'{}' object is not iterable", value.type_name()));
  }
  return items;
}

std::optional<std::size_t> Run::length(const Value& value) {
  if (value.is_undefined()) return 0;
  if (const String* string = value.as_string())
    return read(string->text.size()) ? std::optional(text::length(string->text)) : std::nullopt;
  if (const Sequence* sequence = value.as_sequence()) return sequence->items.size();
  if (const Dict* dict = value.as_dict()) return dict->entries().size();
  fail(fmt::format("object of type '{}' has no len()", value.type_name()));
  return std::nullopt;
}

Value Run::missing(const Value& object, const Value& key) {
  if (const String* name = key.as_string()) {
    return undefined(
        fmt::format("'{}' has no attribute {}", object_phrase(object), in_quotes(name->text)));
  }
  std::string shown;
  append_repr(shown, key);
  return undefined(fmt::format("{} has no element {}", object_phrase(object), shown));
}

Value Run::method(const Value& object, std::string_view name) {
  const NamedFunction* found = find_method(object, name);
  if (found == nullptr) return {};
  return this->object(std::make_shared<Function>(found->name, found->function, object));
}

Value Run::attribute(const Value& object, std::string_view name) {
  if (object.is_undefined()) return fail_undefined(object);
  if (Object* instance = object.as_object()) {
    if (std::optional<Value> value = instance->attribute(*this, name)) return *value;
    return missing(object, Value::constant(name));
  }
  if (find_method(object, name) != nullptr) return method(object, name);
  if (const Dict* dict = object.as_dict()) {
    if (std::find(std::begin(kHiddenDictNames), std::end(kHiddenDictNames), name) !=
        std::end(kHiddenDictNames)) {
      return undefined(
          fmt::format("access to attribute {} of 'dict' object is unsafe.", in_quotes(name)));
    }
    if (const Value* value = dict->find(name)) return *value;
  }
  return missing(object, Value::constant(name));
}

std::optional<Value> Run::element(const Value& object, const Value& key) {
  if (const Dict* dict = object.as_dict()) {
    const Value* value = find_key(*dict, key);
    return value == nullptr ? std::nullopt : std::optional<Value>(*value);
  }
  const std::optional<Int> integral = key.integral();
  if (!integral) return std::nullopt;
  Int index = *integral;
  if (const Sequence* sequence = object.as_sequence()) {
    const auto size = static_cast<Int>(sequence->items.size());
    if (sequence->kind > SequenceKind::Range) return std::nullopt;
    if (index < 0) index += size;
    if (index < 0 || index >= size) return std::nullopt;
    return sequence->items[static_cast<std::size_t>(index)];
  }
  if (const String* string = object.as_string()) {
    const std::string_view all = string->text;
    if (!read(all.size())) return std::nullopt;
    const auto size = static_cast<Int>(text::length(all));
    if (index < 0) index += size;
    if (index < 0 || index >= size) return std::nullopt;
    const std::size_t at = text::byte_offset(all, static_cast<std::size_t>(index));
    return part(*string, all.substr(at, text::decode(all, at).bytes));
  }
  return std::nullopt;
}

Value Run::item(const Value& object, const Value& key) {
  if (object.is_undefined()) return fail_undefined(object);
  if (std::optional<Value> value = element(object, key)) return *value;
  if (failed()) return {};
  if (const String* name = key.as_string()) {
    if (Object* instance = object.as_object()) {
      if (std::optional<Value> value = instance->attribute(*this, name->text)) return *value;
    } else if (find_method(object, name->text) != nullptr) {
      return method(object, name->text);
    }
  }
  return missing(object, key);
}

Value Run::call(const Value& callee, CallArgs& args) {
  if (!step()) return {};
  if (callee.is_undefined()) return fail_undefined(callee);
  Object* object = callee.as_object();
  if (object == nullptr || !object->is_callable()) {
    return fail(fmt::format("'{}' object is not callable", callee.type_name()));
  }
  return object->call(*this, args);
}

Args::Args(Run& run, std::string_view function, CallArgs& args,
           std::initializer_list<std::string_view> names, std::size_t required)
    : run_(run), function_(function) {
  if (args.positional.size() > names.size()) {
    run.fail(fmt::format("{}() takes at most {} arguments ({} given)", function, names.size(),
                         args.positional.size()));
    return;
  }
  for (std::size_t i = 0; i < args.positional.size(); ++i) {
    values_[i] = std::move(args.positional[i]);
    given_[i] = true;
  }
  for (auto& [name, value] : args.keywords) {
    const auto* const known = std::find(names.begin(), names.end(), name);
    const auto index = static_cast<std::size_t>(known - names.begin());
    if (known == names.end() || given_[index]) {
      run.fail(fmt::format("{}() got {} argument {}", function,
                           known == names.end() ? "an unexpected keyword" : "two values for the",
                           in_quotes(name)));
      return;
    }
    values_[index] = std::move(value);
    given_[index] = true;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (given_[i]) continue;
    run.fail(fmt::format("{}() is missing its argument '{}'", function, *(names.begin() + i)));
    return;
  }
}

bool Args::flag(std::size_t index, bool fallback) const {
  return given_[index] ? values_[index].is_true() : fallback;
}

Int Args::integer(std::size_t index, Int fallback) const {
  if (!given_[index] || values_[index].is_none()) return fallback;
  if (const std::optional<Int> value = values_[index].integral()) return *value;
  if (values_[index].is_undefined()) {
    run_.fail_undefined(values_[index]);
  } else {
    run_.fail(fmt::format("{}(): expected an integer, found '{}'", function_,
                          values_[index].type_name()));
  }
  return fallback;
}

std::optional<std::string_view> Args::text(std::size_t index) const {
  if (!given_[index] || values_[index].is_none()) return std::nullopt;
  if (const String* string = values_[index].as_string()) return std::string_view(string->text);
  run_.fail(
      fmt::format("{}(): expected a string, found '{}'", function_, values_[index].type_name()));
  return std::string_view();
}

}  // namespace llorch::jinja
