// Values as text, the way Python's str() and repr() write them.
#include <fmt/format.h>

#include <utility>

#include "template/run.h"

namespace llorch::jinja {

std::string Run::to_text(const Value& value) {
  std::string out;
  append_text(out, value);
  return out;
}

void Run::append_text(std::string& out, const Value& value) {
  if (value.is_undefined()) return;
  if (const String* string = value.as_string()) {
    if (charge(string->text.size())) out += string->text;
    return;
  }
  append_repr(out, value);
}

void Run::append_text(MarkedText& out, const Value& value) {
  if (const String* string = value.as_string()) {
    if (charge(string->text.size())) out.add(*string);
    return;
  }
  append_text(out.text, value);
}

void Run::append_repr(std::string& out, const Value& value) {
  if (!step()) return;
  // A namespace can hold itself, so depth() alone does not bound this recursion.
  if (repr_depth_ >= 2 * kMaxValueDepth) {
    fail_limit("value nested too deeply");
    return;
  }
  ++repr_depth_;
  if (value.is_undefined()) {
    out += "Undefined";
  } else if (value.is_none()) {
    out += "None";
  } else if (const bool* flag = value.as_bool()) {
    out += *flag ? "True" : "False";
  } else if (const Int* integer = value.as_int()) {
    out += integer_text(*integer);
  } else if (const double* real = value.as_real()) {
    out += real_text(*real);
  } else if (const String* string = value.as_string()) {
    if (string->is_safe) out += "Markup(";
    if (charge(string->text.size())) append_quoted(out, string->text);
    if (string->is_safe) out += ")";
  } else if (const Sequence* sequence = value.as_sequence()) {
    append_sequence(out, *sequence);
  } else if (const Dict* dict = value.as_dict()) {
    append_entries(out, *dict);
  } else {
    append_object(out, value);
  }
  --repr_depth_;
}

void Run::append_sequence(std::string& out, const Sequence& sequence) {
  if (sequence.kind == SequenceKind::Range) {
    out += sequence.range_text;
    return;
  }
  const bool is_tuple = sequence.kind == SequenceKind::Tuple;
  const bool is_view = sequence.kind != SequenceKind::List && !is_tuple;
  if (is_view) out += fmt::format("{}(", type_name(sequence.kind));
  out += is_tuple ? "(" : "[";
  for (std::size_t i = 0; i < sequence.items.size() && !failed(); ++i) {
    if (i > 0) out += ", ";
    append_repr(out, sequence.items[i]);
  }
  if (is_tuple && sequence.items.size() == 1) out += ",";
  out += is_tuple ? ")" : "]";
  if (is_view) out += ")";
}

void Run::append_entries(std::string& out, const Dict& dict) {
  out += "{";
  bool first = true;
  for (const auto& [key, value] : dict.entries()) {
    if (failed()) return;
    if (!first) out += ", ";
    first = false;
    append_repr(out, key);
    out += ": ";
    append_repr(out, value);
  }
  out += "}";
}

void Run::append_object(std::string& out, const Value& value) {
  const auto* space = value.as_object_of<Namespace>();
  if (space == nullptr) {
    out += fmt::format("<{} object>", value.type_name());
    return;
  }
  out += "<Namespace {";
  bool first = true;
  for (const auto& [name, attribute] : space->attributes) {
    if (!first) out += ", ";
    first = false;
    append_quoted(out, name);
    out += ": ";
    append_repr(out, attribute);
  }
  out += "}>";
}

}  // namespace llorch::jinja
