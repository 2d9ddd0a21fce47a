#include "template/json_writer.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "template/sort.h"
#include "template/text.h"

namespace llorch::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(Run& run, const JsonStyle& style) : run_(run), style_(style) {}

  std::string write(const Value& value) {
    append(value, 0);
    return std::move(out_);
  }

 private:
  void append(const Value& value, std::size_t level) {
    if (!run_.step()) return;
    const Sequence* sequence = value.as_sequence();
    if (value.is_none() || value.is_number()) {
      out_ += scalar(value);
    } else if (const String* string = value.as_string()) {
      append_string(string->text);
    } else if (const Dict* dict = value.as_dict()) {
      append_dict(*dict, level);
    } else if (sequence != nullptr && sequence->kind <= SequenceKind::Tuple) {
      append_list(*sequence, level);
    } else {
      run_.fail(fmt::format("Object of type {} is not JSON serializable", value.type_name()));
    }
  }

  static std::string scalar(const Value& value) {
    if (value.is_none()) return "null";
    if (const bool* flag = value.as_bool()) return *flag ? "true" : "false";
    if (const Int* integer = value.as_int()) return integer_text(*integer);
    const double real = *value.as_real();
    if (std::isnan(real)) return "NaN";
    if (std::isinf(real)) return real < 0 ? "-Infinity" : "Infinity";
    return real_text(real);
  }

  void append_escape(std::uint32_t unit) { out_ += fmt::format("\\u{:04x}", unit); }

  void append_string(std::string_view text) {
    if (!run_.charge(text.size())) return;
    out_.push_back('"');
    for (std::size_t at = 0; at < text.size();) {
      const auto [code, bytes] = text::decode(text, at);
      const auto number = static_cast<std::uint32_t>(code);
      constexpr std::string_view kPlain = "\"\\\n\r\t\f\b";
      constexpr std::string_view kLetters = "\"\\nrtfb";
      const std::size_t known =
          number < 0x80 ? kPlain.find(static_cast<char>(code)) : std::string_view::npos;
      if (known != std::string_view::npos) {
        out_.push_back('\\');
        out_.push_back(kLetters[known]);
      } else if (number < 0x20) {
        append_escape(number);
      } else if (number < 0x80 || !style_.ascii_only) {
        if (number == 0x7F && style_.ascii_only) {
          out_.push_back('\x7f');
        } else {
          out_ += text.substr(at, bytes);
        }
      } else if (number < 0x10000) {
        append_escape(number);
      } else {
        append_escape(0xD800 + ((number - 0x10000) >> 10));
        append_escape(0xDC00 + ((number - 0x10000) & 0x3FF));
      }
      at += bytes;
    }
    out_.push_back('"');
  }

  void append_break(std::size_t level) {
    if (!style_.indent || !run_.charge(style_.indent->size() * level)) return;
    out_.push_back('\n');
    for (std::size_t i = 0; i < level; ++i) out_ += *style_.indent;
  }

  void append_list(const Sequence& list, std::size_t level) {
    if (list.items.empty()) {
      out_ += "[]";
      return;
    }
    out_.push_back('[');
    for (std::size_t i = 0; i < list.items.size() && !run_.failed(); ++i) {
      if (i > 0 && run_.charge(style_.item_separator.size())) out_ += style_.item_separator;
      append_break(level + 1);
      append(list.items[i], level + 1);
    }
    append_break(level);
    out_.push_back(']');
  }

  void append_dict(const Dict& dict, std::size_t level) {
    if (dict.entries().empty()) {
      out_ += "{}";
      return;
    }
    std::vector<Dict::Entry> entries = dict.entries();
    if (style_.sorts_keys) {
      stable_sort(entries, [this](const Dict::Entry& a, const Dict::Entry& b) {
        return run_.less(a.first, b.first);
      });
    }
    out_.push_back('{');
    bool first = true;
    for (const auto& [key, value] : entries) {
      if (run_.failed()) return;
      if (!first && run_.charge(style_.item_separator.size())) out_ += style_.item_separator;
      first = false;
      append_break(level + 1);
      append_key(key);
      if (run_.charge(style_.key_separator.size())) out_ += style_.key_separator;
      append(value, level + 1);
    }
    append_break(level);
    out_.push_back('}');
  }

  void append_key(const Value& key) {
    if (const String* string = key.as_string()) return append_string(string->text);
    if (key.is_none() || key.is_number()) return append_string(scalar(key));
    run_.fail(fmt::format("keys must be str, int, float, bool or None, not {}", key.type_name()));
  }

  Run& run_;
  const JsonStyle& style_;
  std::string out_;
};

}  // namespace

std::string write_json(Run& run, const Value& value, const JsonStyle& style) {
  return JsonWriter(run, style).write(value);
}

}  // namespace llorch::jinja
