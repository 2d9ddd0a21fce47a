#include "template/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

#include "template/text.h"

namespace llorch::jinja {
namespace {

constexpr std::size_t kScanUpTo = 8;  // entries; a longer dict gets a sorted index

constexpr std::string_view kSequenceNames[] = {"list",      "tuple",       "range",
                                               "dict_keys", "dict_values", "dict_items"};

}  // namespace

std::string_view type_name(SequenceKind kind) {
  return kSequenceNames[static_cast<std::size_t>(kind)];
}

Dict::Dict(std::vector<Entry> entries) : entries_(std::move(entries)) {
  for (const auto& [key, value] : entries_) {
    depth_ = std::max({depth_, key.depth() + 1, value.depth() + 1});
  }
  if (entries_.size() <= kScanUpTo) return;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].first.as_string() != nullptr) order_.push_back(static_cast<std::uint32_t>(i));
  }
  std::sort(order_.begin(), order_.end(), [this](std::uint32_t a, std::uint32_t b) {
    return entries_[a].first.as_string()->text < entries_[b].first.as_string()->text;
  });
}

const Value* Dict::find(std::string_view key) const {
  if (entries_.size() <= kScanUpTo) {
    for (const auto& [name, value] : entries_) {
      const String* text = name.as_string();
      if (text != nullptr && text->text == key) return &value;
    }
    return nullptr;
  }
  const auto found = std::lower_bound(
      order_.begin(), order_.end(), key, [this](std::uint32_t i, std::string_view wanted) {
        return std::string_view(entries_[i].first.as_string()->text) < wanted;
      });
  if (found == order_.end() || entries_[*found].first.as_string()->text != key) return nullptr;
  return &entries_[*found].second;
}

Value Value::constant(std::string_view text) {
  String string;
  string.add_own(text);
  return Value(std::make_shared<const String>(std::move(string)));
}

Object* Value::as_object() const {
  const ObjectPtr* ptr = std::get_if<ObjectPtr>(&state_);
  return ptr == nullptr ? nullptr : ptr->get();
}

std::optional<Int> Value::integral() const {
  if (const Int* integer = as_int()) return *integer;
  if (const bool* flag = as_bool()) return Int{*flag ? 1 : 0};
  return std::nullopt;
}

double Value::to_double() const {
  if (const double* real = as_real()) return *real;
  return static_cast<double>(integral().value_or(0));
}

bool Value::is_true() const {
  if (is_undefined() || is_none()) return false;
  if (const bool* flag = as_bool()) return *flag;
  if (const Int* integer = as_int()) return *integer != 0;
  if (const double* real = as_real()) return *real != 0.0;
  if (const String* string = as_string()) return !string->text.empty();
  if (const Sequence* sequence = as_sequence()) return !sequence->items.empty();
  if (const Dict* dict = as_dict()) return !dict->entries().empty();
  return true;
}

int Value::depth() const {
  if (const Sequence* sequence = as_sequence()) return sequence->depth;
  if (const Dict* dict = as_dict()) return dict->depth();
  if (const Object* object = as_object()) return object->depth;
  return 0;
}

bool Value::is_same(const Value& other) const {
  if (state_.index() != other.state_.index()) return false;
  if (as_string() != nullptr) return as_string() == other.as_string();
  if (as_sequence() != nullptr) return as_sequence() == other.as_sequence();
  if (as_dict() != nullptr) return as_dict() == other.as_dict();
  if (as_object() != nullptr) return as_object() == other.as_object();
  if (as_bool() != nullptr) return *as_bool() == *other.as_bool();
  if (as_int() != nullptr) return *as_int() == *other.as_int();
  if (as_real() != nullptr) return *as_real() == *other.as_real();
  return true;
}

std::string_view Value::type_name() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (as_bool() != nullptr) return "bool";
  if (as_int() != nullptr) return "int";
  if (as_real() != nullptr) return "float";
  if (const String* string = as_string()) return string->is_safe ? "Markup" : "str";
  if (const Sequence* sequence = as_sequence()) return jinja::type_name(sequence->kind);
  if (as_dict() != nullptr) return "dict";
  return as_object()->type_name();
}

std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string_view shortest(buffer, static_cast<std::size_t>(end.ptr - buffer));
  const std::size_t e = shortest.find('e');
  int exponent = 0;
  const std::size_t digits_at = shortest[e + 1] == '+' ? e + 2 : e + 1;
  std::from_chars(shortest.data() + digits_at, shortest.data() + shortest.size(), exponent);
  if (exponent < -4 || exponent >= 16) {
    return fmt::format("{}e{}{:02}", shortest.substr(0, e), exponent < 0 ? '-' : '+',
                       std::abs(exponent));
  }
  const auto fixed = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed);
  std::string text(buffer, fixed.ptr);
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

std::string integer_text(Int value) {
  return fmt::format("{}", value);
}

void append_quoted(std::string& out, std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const bool has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  out.push_back(quote);
  for (std::size_t at = 0; at < text.size();) {
    const auto [code, bytes] = text::decode(text, at);
    const auto number = static_cast<std::uint32_t>(code);
    if (code == U'\n') {
      out += "\\n";
    } else if (code == U'\r') {
      out += "\\r";
    } else if (code == U'\t') {
      out += "\\t";
    } else if (code == U'\\' || number == static_cast<unsigned char>(quote)) {
      out.push_back('\\');
      out.push_back(static_cast<char>(code));
    } else if (text::is_printable(code)) {
      out += text.substr(at, bytes);
    } else if (number < 0x100) {
      out += fmt::format("\\x{:02x}", number);
    } else if (number < 0x10000) {
      out += fmt::format("\\u{:04x}", number);
    } else {
      out += fmt::format("\\U{:08x}", number);
    }
    at += bytes;
  }
  out.push_back(quote);
}

std::string in_quotes(std::string_view text) {
  std::string out;
  append_quoted(out, text);
  return out;
}

}  // namespace llorch::jinja
