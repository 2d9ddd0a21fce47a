// Filters that make or take a string or a number.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include "base/utf8.h"
#include "template/builtins.h"
#include "template/json_writer.h"
#include "template/operators.h"
#include "template/run.h"
#include "template/text.h"

namespace llorch::jinja {
namespace {

// str(value) as a value: a string stays what it is.
Value as_text(Run& run, const Value& value) {
  return value.as_string() != nullptr ? value : run.text(run.to_text(value));
}

// Calls the method of that name on the text of any value, as most text filters do.
Value call_method(Run& run, std::string_view name, const Value& subject, CallArgs& args) {
  const Value text = as_text(run, subject);
  if (run.failed()) return {};
  return find_method(text, name)->function(run, text, args);
}

Value upper(Run& run, const Value& subject, CallArgs& args) {
  return call_method(run, "upper", subject, args);
}
Value lower(Run& run, const Value& subject, CallArgs& args) {
  return call_method(run, "lower", subject, args);
}
Value capitalize(Run& run, const Value& subject, CallArgs& args) {
  return call_method(run, "capitalize", subject, args);
}
Value trim(Run& run, const Value& subject, CallArgs& args) {
  return call_method(run, "strip", subject, args);
}

// Every word's first letter large and the rest small; words end at spaces, hyphens and brackets.
Value title(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "title", call, {}, 0);
  const std::string all = run.to_text(subject);
  std::string out;
  const std::string_view view = all;
  const auto separates = [](char32_t code) {
    return text::is_space(code) || code == U'-' || code == U'(' || code == U'{' || code == U'[' ||
           code == U'<';
  };
  for (std::size_t at = 0; at < view.size();) {
    const std::size_t begin = at;
    const bool separators = separates(text::decode(view, at).code);
    while (at < view.size() && separates(text::decode(view, at).code) == separators) {
      at += text::decode(view, at).bytes;
    }
    const std::string_view word = view.substr(begin, at - begin);
    const std::size_t first = text::decode(word, 0).bytes;
    out += text::upper(word.substr(0, first));
    out += text::lower(word.substr(first));
  }
  return run.text(std::move(out));
}

Value replace(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "replace", call, {"old", "new", "count"}, 2);
  if (run.failed()) return {};
  CallArgs rest;
  rest.positional = {as_text(run, args[0]), as_text(run, args[1]),
                     Value::integer(args.integer(2, -1))};
  return call_method(run, "replace", subject, rest);
}

Value to_string(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "string", call, {}, 0);
  return as_text(run, subject);
}

Value safe(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "safe", call, {}, 0);
  MarkedText text;
  run.append_text(text, subject);
  return run.text(std::move(text), /*is_safe=*/true);
}

Value escape(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "escape", call, {}, 0);
  const String* string = subject.as_string();
  if (string != nullptr && string->is_safe) return subject;
  const Value text = as_text(run, subject);
  if (run.failed() || !run.read(text.as_string()->text.size())) return {};
  return run.changed(*text.as_string(), base::escape_html(text.as_string()->text),
                     /*is_safe=*/true);
}

Value center(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "center", call, {"width"}, 0);
  CallArgs rest;
  rest.positional = {Value::integer(args.integer(0, 80))};
  return run.failed() ? Value() : call_method(run, "center", subject, rest);
}

Value indent(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "indent", call, {"width", "first", "blank"}, 0);
  const String* string = subject.as_string();
  if (string == nullptr) {
    return subject.is_undefined() ? run.fail_undefined(subject)
                                  : run.fail(fmt::format("indent: expected a string, found '{}'",
                                                         subject.type_name()));
  }
  std::string margin;
  if (args.has(0) && args[0].as_string() != nullptr) {
    margin = args[0].as_string()->text;
  } else {
    const Int width = args.integer(0, 4);
    if (width > static_cast<Int>(run.options().limits.max_work_bytes)) {
      return run.fail_limit("indent makes a string too large");
    }
    if (run.charge(width > 0 ? static_cast<std::size_t>(width) : 0)) {
      margin.assign(width > 0 ? static_cast<std::size_t>(width) : 0, ' ');
    }
  }
  if (!run.charge(string->text.size())) return {};
  const std::string source = string->text + "\n";
  const std::vector<std::string_view> lines = text::split_lines(source, false);
  MarkedText out;
  if (args.flag(1)) out.add(margin);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (!run.charge(margin.size() + sizeof(base::TextSpan))) return {};
    if (i > 0) out.add("\n");
    if (i > 0 && (args.flag(2) || !lines[i].empty())) out.add(margin);
    const auto begin = static_cast<std::size_t>(lines[i].data() - source.data());
    out.add(*string, begin, begin + lines[i].size());
  }
  return run.text(std::move(out));
}

Value truncate(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "truncate", call, {"length", "killwords", "end", "leeway"}, 0);
  const Int length = args.integer(0, 255);
  const std::string_view end = args.has(2) ? args.text(2).value_or("") : "...";
  const Int leeway = args.integer(3, 5);
  const std::string all = run.to_text(subject);
  if (run.failed()) return {};
  const auto end_length = static_cast<Int>(text::length(end));
  if (length < end_length || leeway < 0) return run.fail("truncate: length or leeway too small");
  const auto size = static_cast<Int>(text::length(all));
  if (size - leeway <= length) return as_text(run, subject);
  std::string_view kept = std::string_view(all).substr(
      0, text::byte_offset(all, static_cast<std::size_t>(length - end_length)));
  if (!args.flag(1)) kept = kept.substr(0, kept.rfind(' '));
  return run.text(std::string(kept) + std::string(end));
}

Value word_count(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "wordcount", call, {}, 0);
  const std::string all = run.to_text(subject);
  Int words = 0;
  bool in_word = false;
  for (std::size_t at = 0; at < all.size();) {
    const auto [code, bytes] = text::decode(all, at);
    const bool is_word = code == U'_' || text::is_alpha(code) || text::is_numeric(code);
    if (is_word && !in_word) ++words;
    in_word = is_word;
    at += bytes;
  }
  return Value::integer(words);
}

Value format(Run& run, const Value& subject, CallArgs& call) {
  const Value format_value = as_text(run, subject);
  if (run.failed()) return {};
  const String& format = *format_value.as_string();
  if (!call.positional.empty() && !call.keywords.empty()) {
    return run.fail("format: positional and keyword arguments cannot be mixed");
  }
  if (call.keywords.empty()) {
    return percent_format(run, format, run.tuple(std::move(call.positional)));
  }
  std::vector<Dict::Entry> entries;
  for (auto& [name, value] : call.keywords) entries.emplace_back(run.text(name), std::move(value));
  return percent_format(run, format, run.dict(std::move(entries)));
}

Value to_json(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "tojson", call, {"ensure_ascii", "indent", "separators", "sort_keys"}, 0);
  JsonStyle style;
  style.ascii_only = args.flag(0);
  style.sorts_keys = args.flag(3);
  if (args.has(1) && !args[1].is_none()) {
    if (const String* string = args[1].as_string()) {
      style.indent = string->text;
    } else {
      const Int width = std::max(args.integer(1, 0), Int{0});
      if (width > 1024) return run.fail_limit("tojson: indent is too large");
      style.indent = std::string(static_cast<std::size_t>(width), ' ');
    }
    style.item_separator = ",";
  }
  if (args.has(2) && !args[2].is_none()) {
    const Sequence* pair = args[2].as_sequence();
    const bool is_pair = pair != nullptr && pair->items.size() == 2 &&
                         pair->items[0].as_string() != nullptr &&
                         pair->items[1].as_string() != nullptr;
    if (!is_pair) return run.fail("tojson: separators must be two strings");
    style.item_separator = pair->items[0].as_string()->text;
    style.key_separator = pair->items[1].as_string()->text;
  }
  return run.failed() ? Value() : run.text(write_json(run, subject, style));
}

std::optional<double> parse_real(std::string_view text) {
  text = text::strip(text, text::Side::Both);
  std::string digits;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool between = i > 0 && i + 1 < text.size() && text[i - 1] >= '0' && text[i - 1] <= '9' &&
                         text[i + 1] >= '0' && text[i + 1] <= '9';
    if (text[i] == '_' && between) continue;
    digits.push_back(
        static_cast<char>(text[i] >= 'A' && text[i] <= 'Z' ? text[i] | 0x20 : text[i]));
  }
  const bool negative = !digits.empty() && digits[0] == '-';
  if (negative || (!digits.empty() && digits[0] == '+')) digits.erase(0, 1);
  const double infinity = std::numeric_limits<double>::infinity();
  double value = 0;
  if (digits == "inf" || digits == "infinity") {
    value = infinity;
  } else if (digits == "nan") {
    value = std::numeric_limits<double>::quiet_NaN();
  } else {
    if (digits.empty() || (digits[0] != '.' && (digits[0] < '0' || digits[0] > '9')))
      return std::nullopt;
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (parsed.ptr != digits.data() + digits.size()) return std::nullopt;
    if (parsed.ec == std::errc::result_out_of_range) value = std::strtod(digits.c_str(), nullptr);
  }
  return negative ? -value : value;
}

std::optional<Int> parse_integer(std::string_view text, int base) {
  text = text::strip(text, text::Side::Both);
  const bool negative = !text.empty() && text[0] == '-';
  if (negative || (!text.empty() && text[0] == '+')) text.remove_prefix(1);
  if (text.size() > 2 && text[0] == '0') {
    const char letter = static_cast<char>(text[1] | 0x20);
    const int stated = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (stated != 0 && (base == stated || base == 0)) {
      base = stated;
      text.remove_prefix(2);
    }
  }
  if (base == 0) base = 10;
  Int value = 0;
  bool after_digit = false;
  for (const char c : text) {
    if (c == '_' && after_digit) {
      after_digit = false;
      continue;
    }
    const char low = static_cast<char>(c | 0x20);
    const int digit = c >= '0' && c <= '9'       ? c - '0'
                      : low >= 'a' && low <= 'z' ? low - 'a' + 10
                                                 : 99;
    if (digit >= base) return std::nullopt;
    if (__builtin_mul_overflow(value, Int{base}, &value) ||
        __builtin_add_overflow(value, Int{digit}, &value)) {
      return std::nullopt;
    }
    after_digit = true;
  }
  if (!after_digit) return std::nullopt;
  return negative ? -value : value;
}

std::optional<Int> truncated(double value) {
  if (!(std::fabs(value) < 1.0e38)) return std::nullopt;
  return static_cast<Int>(value);
}

Value to_integer(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "int", call, {"default", "base"}, 0);
  const Int base = args.integer(1, 10);
  if (run.failed()) return {};
  if (base != 0 && (base < 2 || base > 36)) return run.fail("int: base must be 0 or 2 to 36");
  if (subject.is_undefined()) return run.fail_undefined(subject);
  std::optional<Int> value = subject.integral();
  if (const String* string = subject.as_string()) {
    if (!run.read(string->text.size())) return {};
    value = parse_integer(string->text, static_cast<int>(base));
    const std::optional<double> real = parse_real(string->text);
    if (!value && real && std::isinf(*real))
      return run.fail("cannot convert float infinity to integer");
    if (!value && real) value = truncated(*real);
  } else if (const double* real = subject.as_real()) {
    if (std::isinf(*real)) return run.fail("cannot convert float infinity to integer");
    value = truncated(*real);
  }
  if (value) return Value::integer(*value);
  return args.has(0) ? args[0] : Value::integer(0);
}

Value to_real(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "float", call, {"default"}, 0);
  if (subject.is_undefined()) return run.fail_undefined(subject);
  if (subject.is_number()) return Value::real(subject.to_double());
  if (const String* string = subject.as_string()) {
    if (!run.read(string->text.size())) return {};
    if (const std::optional<double> value = parse_real(string->text)) return Value::real(*value);
  }
  return args.has(0) ? args[0] : Value::real(0.0);
}

Value absolute(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "abs", call, {}, 0);
  if (subject.is_undefined()) return run.fail_undefined(subject);
  if (const double* real = subject.as_real()) return Value::real(std::fabs(*real));
  const std::optional<Int> integer = subject.integral();
  if (!integer)
    return run.fail(fmt::format("bad operand type for abs(): '{}'", subject.type_name()));
  return *integer < 0 ? negate(run, subject) : Value::integer(*integer);
}

// Rounds as Python does: the exact decimal value, ties to even.
double round_to(double value, int digits) {
  char buffer[512];
  if (digits >= 0) {
    std::snprintf(buffer, sizeof buffer, "%.*f", digits, value);
    return std::strtod(buffer, nullptr);
  }
  const double unit = std::pow(10.0, -digits);
  return std::nearbyint(value / unit) * unit;
}

Value round(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "round", call, {"precision", "method"}, 0);
  const Int precision = std::clamp(args.integer(0, 0), Int{-30}, Int{100});
  const std::string_view method = args.has(1) ? args.text(1).value_or("") : "common";
  if (run.failed()) return {};
  if (subject.is_undefined()) return run.fail_undefined(subject);
  if (!subject.is_number()) {
    return run.fail(fmt::format("type {} doesn't define __round__ method", subject.type_name()));
  }
  if (method == "common") {
    if (subject.as_real() == nullptr && precision >= 0) return Value::integer(*subject.integral());
    const double rounded = round_to(subject.to_double(), static_cast<int>(precision));
    if (subject.as_real() != nullptr) return Value::real(rounded);
    return Value::integer(truncated(rounded).value_or(0));
  }
  if (method != "ceil" && method != "floor")
    return run.fail("method must be common, ceil or floor");
  const double unit = std::pow(10.0, static_cast<double>(precision));
  const double scaled = subject.to_double() * unit;
  return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

constexpr NamedFunction kFilters[] = {
    {"upper", upper},       {"lower", lower},     {"capitalize", capitalize}, {"trim", trim},
    {"title", title},       {"replace", replace}, {"string", to_string},      {"safe", safe},
    {"escape", escape},     {"e", escape},        {"center", center},         {"indent", indent},
    {"truncate", truncate}, {"format", format},   {"wordcount", word_count},  {"tojson", to_json},
    {"int", to_integer},    {"float", to_real},   {"abs", absolute},          {"round", round},
};

}  // namespace

NativeFunction find_text_filter(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kFilters), std::end(kFilters),
                                         [&](const NamedFunction& f) { return f.name == name; });
  return found == std::end(kFilters) ? nullptr : found->function;
}

NativeFunction find_filter(std::string_view name) {
  const NativeFunction function = find_text_filter(name);
  return function != nullptr ? function : find_sequence_filter(name);
}

}  // namespace llorch::jinja
