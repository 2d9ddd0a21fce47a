#include "base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/monotonic_resource.hpp>
#include <boost/json/value_stack.hpp>
#include <charconv>
#include <cmath>
#include <iterator>
#include <vector>

#include "base/utf8.h"

namespace llorch::json {
namespace {

using BoostView = boost::json::string_view;
using BoostError = boost::json::error_code;

// Builds the value from the parser's events. Refuses numbers beyond double, which Boost makes
// infinite, and duplicate keys, of which it keeps the last: those only when asked to, because the
// search doubles the time. The explanation is in `failure`.
class Handler {
 public:
  // Boost looks these up by name. NOLINTBEGIN(readability-identifier-naming)
  static constexpr std::size_t max_array_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_object_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_string_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_key_size = static_cast<std::size_t>(-1);
  // NOLINTEND(readability-identifier-naming)

  Handler(bool find_duplicates, boost::json::storage_ptr storage)
      : find_duplicates_(find_duplicates), storage_(std::move(storage)) {}

  std::string failure;
  std::size_t num_keys = 0;  // of all objects, duplicates included

  bool on_document_begin(BoostError&) {
    stack_.reset(storage_);
    return true;
  }
  bool on_document_end(BoostError&) { return true; }
  bool on_array_begin(BoostError&) { return true; }
  bool on_array_end(std::size_t count, BoostError&) {
    stack_.push_array(count);
    return true;
  }
  bool on_object_begin(BoostError&) { return true; }
  bool on_object_end(std::size_t count, BoostError& error) {
    num_keys += count;
    if (find_duplicates_ && !forget_keys(count)) return fail(error);
    stack_.push_object(count);
    return true;
  }
  bool on_string_part(BoostView part, std::size_t, BoostError&) {
    stack_.push_chars(part);
    return true;
  }
  bool on_string(BoostView part, std::size_t, BoostError&) {
    stack_.push_string(part);
    return true;
  }
  bool on_key_part(BoostView part, std::size_t, BoostError&) {
    if (find_duplicates_) key_.append(part.data(), part.size());
    stack_.push_chars(part);
    return true;
  }
  bool on_key(BoostView part, std::size_t, BoostError&) {
    if (find_duplicates_) {
      key_.append(part.data(), part.size());
      keys_.push_back(std::move(key_));
      key_.clear();
    }
    stack_.push_key(part);
    return true;
  }
  bool on_number_part(BoostView, BoostError&) { return true; }
  bool on_int64(std::int64_t number, BoostView, BoostError&) {
    stack_.push_int64(number);
    return true;
  }
  bool on_uint64(std::uint64_t number, BoostView, BoostError&) {
    stack_.push_uint64(number);
    return true;
  }
  // `text` is the whole number because the whole document is one buffer. Boost's own conversion may
  // be off by the last bit; from_chars is exact.
  bool on_double(double rough, BoostView text, BoostError& error) {
    double number = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
    if (parsed.ec == std::errc::result_out_of_range) number = std::abs(rough) < 1 ? 0.0 : HUGE_VAL;
    if (!std::isfinite(number)) {
      failure = "the number is beyond the range of a double";
      return fail(error);
    }
    stack_.push_double(number);
    return true;
  }
  bool on_bool(bool flag, BoostError&) {
    stack_.push_bool(flag);
    return true;
  }
  bool on_null(BoostError&) {
    stack_.push_null();
    return true;
  }
  bool on_comment_part(BoostView, BoostError&) { return true; }
  bool on_comment(BoostView, BoostError&) { return true; }

  Value release() { return stack_.release(); }

 private:
  static bool fail(BoostError& error) {
    error = boost::json::error::syntax;
    return false;
  }

  // Drops the last `count` keys, those of the object that ends here. Sorting instead of hashing: no
  // input can make it quadratic.
  bool forget_keys(std::size_t count) {
    const auto first = keys_.end() - static_cast<std::ptrdiff_t>(count);
    std::sort(first, keys_.end());
    const auto twice = std::adjacent_find(first, keys_.end());
    if (twice != keys_.end()) {
      failure =
          fmt::format("the key {} occurs twice in the object that ends here", base::quoted(*twice));
      return false;
    }
    keys_.erase(first, keys_.end());
    return true;
  }

  const bool find_duplicates_;
  const boost::json::storage_ptr storage_;
  boost::json::value_stack stack_;
  std::string key_;                // the parts so far of the key being read
  std::vector<std::string> keys_;  // of all open objects, innermost last
};

Error error_at(std::string_view text, std::size_t offset, std::string_view what) {
  const std::string_view before = text.substr(0, offset);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const std::size_t newline = before.rfind('\n');
  const std::size_t column = newline == std::string_view::npos ? offset : offset - newline - 1;
  return {ErrorCode::InvalidArgument,
          fmt::format("JSON line {}, column {} (byte {}): {}", line, column + 1, offset, what)};
}

void append_string(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) >= 0x20) {
          out += c;
        } else {
          fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
        }
    }
  }
  out += '"';
}

void append_double(std::string& out, double number) {
  if (!std::isfinite(number)) {
    out += "null";
    return;
  }
  const std::size_t begin = out.size();
  fmt::format_to(std::back_inserter(out), "{}", number);
  if (out.find_first_of(".e", begin) == std::string::npos) out += ".0";
}

void append_value(std::string& out, const Value& value) {
  switch (value.kind()) {
    case boost::json::kind::null:
      out += "null";
      return;
    case boost::json::kind::bool_:
      out += value.get_bool() ? "true" : "false";
      return;
    case boost::json::kind::int64:
      fmt::format_to(std::back_inserter(out), "{}", value.get_int64());
      return;
    case boost::json::kind::uint64:
      fmt::format_to(std::back_inserter(out), "{}", value.get_uint64());
      return;
    case boost::json::kind::double_:
      append_double(out, value.get_double());
      return;
    case boost::json::kind::string:
      append_string(out, view(value.get_string()));
      return;
    case boost::json::kind::array: {
      out += '[';
      bool first = true;
      for (const Value& element : value.get_array()) {
        if (!first) out += ',';
        first = false;
        append_value(out, element);
      }
      out += ']';
      return;
    }
    case boost::json::kind::object: {
      out += '{';
      bool first = true;
      for (const auto& field : value.get_object()) {
        if (!first) out += ',';
        first = false;
        append_string(out, view(field.key()));
        out += ':';
        append_value(out, field.value());
      }
      out += '}';
      return;
    }
  }
}

bool is_surrogate_escape(std::string_view text) {
  return text.size() >= 4 && text[0] == '\\' && text[1] == 'u' && (text[2] | 0x20) == 'd' &&
         std::string_view("89abcdefABCDEF").find(text[3]) != std::string_view::npos;
}

// Boost calls nearly everything a syntax error. What is really wrong in front of `offset` or there,
// where that can be said.
Error syntax_error(std::string_view text, std::size_t offset, std::string_view what) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  constexpr std::size_t kEscape = 6;    // \uXXXX
  constexpr std::size_t kSequence = 4;  // bytes of a character at most
  if (offset == 0 && text.starts_with(kMark))
    return error_at(text, 0, "the text begins with a byte order mark; leave it out");
  if (offset >= kEscape && is_surrogate_escape(text.substr(offset - kEscape, kEscape)))
    return error_at(text, offset - kEscape, "half of a surrogate pair, which is no character");
  if (offset >= text.size()) return error_at(text, offset, what);
  const unsigned char byte = static_cast<unsigned char>(text[offset]);
  if (byte < 0x20)
    return error_at(text, offset, "a control character; strings escape it, as in \\n");
  bool is_character = false;
  for (std::size_t size = 1; size <= kSequence; ++size)
    is_character = is_character || base::is_valid_utf8(text.substr(offset, size));
  if (!is_character || !base::is_valid_utf8(text.substr(0, offset)))
    return error_at(text, offset, "the text is not UTF-8 here");
  return error_at(text, offset, what);
}

Result<Value> parse_once(std::string_view text, const Limits& limits, bool find_duplicates,
                         std::size_t& num_keys) {
  boost::json::parse_options options;
  options.max_depth = limits.max_depth;
  boost::json::storage_ptr storage;
  if (limits.in_one_block)
    storage = boost::json::make_shared_resource<boost::json::monotonic_resource>(text.size());
  boost::json::basic_parser<Handler> parser(options, find_duplicates, storage);
  BoostError error;
  const std::size_t used = parser.write_some(false, text.data(), text.size(), error);
  num_keys = parser.handler().num_keys;
  if (error == boost::json::error::too_deep) {
    return error_at(text, used,
                    fmt::format("nested deeper than the {} levels allowed", limits.max_depth));
  }
  if (error) {
    const std::string& failure = parser.handler().failure;
    return failure.empty() ? syntax_error(text, used, error.message())
                           : error_at(text, used, failure);
  }
  if (used != text.size()) return error_at(text, used, "more text behind the end of the document");
  return parser.handler().release();
}

std::size_t count_keys(const Value& value) {
  std::size_t count = 0;
  if (const Object* object = value.if_object()) {
    count = object->size();
    for (const auto& field : *object) count += count_keys(field.value());
  } else if (const Array* array = value.if_array()) {
    for (const Value& element : *array) count += count_keys(element);
  }
  return count;
}

}  // namespace

Result<Value> parse(std::string_view text, const Limits& limits) {
  if (text.size() > limits.max_bytes) {
    return Error{ErrorCode::TooLarge,
                 fmt::format("JSON text of {} bytes, more than the {} allowed here", text.size(),
                             limits.max_bytes)};
  }
  std::size_t num_keys = 0;
  Result<Value> value = parse_once(text, limits, false, num_keys);
  // Fewer keys than were read: some objects had one twice, and a second pass says which and where.
  if (value.ok() && count_keys(*value) != num_keys) return parse_once(text, limits, true, num_keys);
  return value;
}

std::string serialize(const Value& value) {
  std::string out;
  append_value(out, value);
  return out;
}

std::string_view kind_name(const Value& value) {
  switch (value.kind()) {
    case boost::json::kind::null:
      return "null";
    case boost::json::kind::bool_:
      return "a boolean";
    case boost::json::kind::int64:
    case boost::json::kind::uint64:
      return "an integer";
    case boost::json::kind::double_:
      return "a number";
    case boost::json::kind::string:
      return "a string";
    case boost::json::kind::array:
      return "an array";
    case boost::json::kind::object:
      return "an object";
  }
  return "unknown";
}

}  // namespace llorch::json
