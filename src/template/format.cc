#include "template/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>

#include "template/operators.h"
#include "template/text.h"

namespace llorch::jinja {
namespace {

constexpr std::size_t kMaxWidth = 100'000;
constexpr std::size_t kMaxPrecision = 400;

struct Spec {
  std::string fill = " ";
  char align = '\0';  // '<', '>', '^', '=' or none
  char sign = '-';    // '-', '+' or ' '
  bool alternate = false;
  bool groups = false;  // thousands by commas
  std::size_t width = 0;
  std::optional<std::size_t> precision;
  char type = '\0';
};

// Reads decimal digits at `at` and moves behind them.
std::optional<std::size_t> read_number(std::string_view text, std::size_t& at) {
  std::size_t value = 0;
  const auto parsed = std::from_chars(text.data() + at, text.data() + text.size(), value);
  if (parsed.ec != std::errc()) return std::nullopt;
  at = static_cast<std::size_t>(parsed.ptr - text.data());
  return value;
}

bool within_bounds(Run& run, const Spec& spec) {
  if (spec.width <= kMaxWidth && spec.precision.value_or(0) <= kMaxPrecision) return true;
  run.fail_limit("width or precision of a format is too large");
  return false;
}

std::string pad(std::string body, const Spec& spec, char default_align) {
  const std::size_t length = text::length(body);
  if (length >= spec.width) return body;
  const std::size_t missing = spec.width - length;
  const char align = spec.align == '\0' ? default_align : spec.align;
  std::size_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  std::string out;
  std::size_t keep = 0;
  if (align == '=' && !body.empty() && (body[0] == '-' || body[0] == '+' || body[0] == ' '))
    keep = 1;
  out += body.substr(0, keep);
  for (std::size_t i = 0; i < left; ++i) out += spec.fill;
  out += body.substr(keep);
  for (std::size_t i = left; i < missing; ++i) out += spec.fill;
  return out;
}

std::string with_groups(std::string digits) {
  const std::size_t end = std::min(digits.find('.'), digits.size());
  for (std::size_t at = end; at > 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

std::string with_sign(bool negative, const Spec& spec, std::string digits) {
  if (negative || spec.sign != '-') digits.insert(digits.begin(), negative ? '-' : spec.sign);
  return digits;
}

std::string format_integer(Int value, const Spec& spec) {
  __extension__ using Unsigned = unsigned __int128;
  const bool negative = value < 0;
  const Unsigned magnitude =
      negative ? Unsigned{0} - static_cast<Unsigned>(value) : static_cast<Unsigned>(value);
  std::string digits;
  switch (spec.type) {
    case 'x':
      digits = spec.alternate ? fmt::format("{:#x}", magnitude) : fmt::format("{:x}", magnitude);
      break;
    case 'X':
      digits = spec.alternate ? fmt::format("{:#X}", magnitude) : fmt::format("{:X}", magnitude);
      break;
    case 'b':
      digits = spec.alternate ? fmt::format("{:#b}", magnitude) : fmt::format("{:b}", magnitude);
      break;
    case 'o':
      digits = fmt::format("{}{:o}", spec.alternate ? "0o" : "", magnitude);
      break;
    default:
      digits = fmt::format("{}", magnitude);
  }
  if (spec.groups) digits = with_groups(std::move(digits));
  return with_sign(negative, spec, std::move(digits));
}

std::string format_real(double value, const Spec& spec) {
  char type = spec.type;
  double magnitude = std::fabs(value);
  const bool percent = type == '%';
  if (percent) {
    magnitude *= 100;
    type = 'f';
  }
  std::string digits;
  if (!std::isfinite(value)) {
    digits = std::isnan(value) ? "nan" : "inf";
  } else if (type == '\0' && !spec.precision) {
    digits = real_text(magnitude);
  } else {
    const char format[] = {'%', '.', '*', type == '\0' ? 'g' : type, '\0'};
    char buffer[1024];
    const int size = std::snprintf(buffer, sizeof buffer, format,
                                   static_cast<int>(spec.precision.value_or(6)), magnitude);
    digits.assign(buffer, static_cast<std::size_t>(std::max(size, 0)));
  }
  if (spec.groups) digits = with_groups(std::move(digits));
  if (percent) digits += '%';
  return with_sign(std::signbit(value) && !std::isnan(value), spec, std::move(digits));
}

bool is_real_type(char type) {
  return std::string_view("eEfFgG%").find(type) != std::string_view::npos;
}
bool is_integer_type(char type) {
  return std::string_view("dxXob").find(type) != std::string_view::npos;
}

// "%s" % x
class PercentFormatter {
 public:
  PercentFormatter(Run& run, const String& format, const Value& arguments)
      : run_(run), source_(format), format_(format.text), arguments_(arguments) {
    const Sequence* sequence = arguments.as_sequence();
    is_tuple_ = sequence != nullptr && sequence->kind == SequenceKind::Tuple;
  }

  Value format() {
    MarkedText out;
    if (!run_.read(format_.size())) return {};
    for (std::size_t at = 0; at < format_.size() && !run_.failed();) {
      const std::size_t mark = std::min(format_.find('%', at), format_.size());
      out.add(source_, at, mark);
      if ((at = mark) == format_.size()) break;
      ++at;
      conversion(at, out);
      if (!run_.charge(out.text.size() / 64)) return {};
    }
    if (run_.failed()) return {};
    const bool all_used = is_tuple_ ? next_ == arguments_.as_sequence()->items.size()
                                    : next_ == 1 || arguments_.as_dict() != nullptr;
    if (!all_used) return run_.fail("not all arguments converted during string formatting");
    return run_.text(std::move(out));
  }

 private:
  Value argument() {
    if (is_tuple_) {
      const auto& items = arguments_.as_sequence()->items;
      if (next_ < items.size()) return items[next_++];
    } else if (next_ == 0) {
      ++next_;
      return arguments_;
    }
    return run_.fail("not enough arguments for format string");
  }

  void conversion(std::size_t& at, MarkedText& out) {
    Spec spec;
    std::optional<Value> named;
    if (at < format_.size() && format_[at] == '(') {
      const std::size_t end = format_.find(')', at);
      const Dict* dict = arguments_.as_dict();
      if (end == std::string_view::npos || dict == nullptr) {
        run_.fail("format requires a mapping");
        return;
      }
      const Value* value = dict->find(format_.substr(at + 1, end - at - 1));
      if (value == nullptr) {
        run_.fail(fmt::format("no value for {}", in_quotes(format_.substr(at + 1, end - at - 1))));
        return;
      }
      named = *value;
      at = end + 1;
    }
    for (; at < format_.size(); ++at) {
      const char c = format_[at];
      if (c == '-') {
        spec.align = '<';
      } else if (c == '0') {
        if (spec.align != '<') spec.align = '=';
        spec.fill = "0";
      } else if (c == '+' || (c == ' ' && spec.sign != '+')) {
        spec.sign = c;
      } else if (c == '#') {
        spec.alternate = true;
      } else if (c != ' ') {
        break;
      }
    }
    if (spec.align == '<') spec.fill = " ";
    spec.width = read_number(format_, at).value_or(0);
    if (at < format_.size() && format_[at] == '.') {
      ++at;
      spec.precision = read_number(format_, at).value_or(0);
    }
    if (!within_bounds(run_, spec)) return;
    if (at >= format_.size()) {
      run_.fail("incomplete format");
      return;
    }
    spec.type = format_[at++];
    if (spec.type == '%') return out.add(source_, at - 1, at);
    const Value value = named ? *named : argument();
    // A string that goes in as it is keeps its marks.
    if (spec.type == 's' && spec.width == 0 && !spec.precision) {
      if (!run_.failed()) run_.append_text(out, value);
    } else {
      out.add(convert(value, spec));
    }
  }

  std::string convert(const Value& value, Spec spec) {
    if (run_.failed()) return {};
    if (spec.type == 'i' || spec.type == 'u') spec.type = 'd';
    if (spec.type == 's' || spec.type == 'r') {
      std::string body;
      if (spec.type == 's') {
        run_.append_text(body, value);
      } else {
        run_.append_repr(body, value);
      }
      if (spec.precision) body.resize(text::byte_offset(body, *spec.precision));
      if (spec.align == '=') spec.align = '\0', spec.fill = " ";
      return pad(std::move(body), spec, '>');
    }
    if (is_integer_type(spec.type) && spec.type != 'b' && value.is_number()) {
      const double* real = value.as_real();
      if (real != nullptr && (spec.type != 'd' || !(std::fabs(*real) < 1e37))) {
        run_.fail(fmt::format("%{} format: an integer is required, not float", spec.type));
        return {};
      }
      const Int integer = real != nullptr ? static_cast<Int>(*real) : *value.integral();
      return pad(format_integer(integer, spec), spec, '>');
    }
    if (is_real_type(spec.type) && value.is_number()) {
      if (!spec.precision) spec.precision = 6;
      return pad(format_real(value.to_double(), spec), spec, '>');
    }
    run_.fail(fmt::format("%{} format does not take '{}'", spec.type, value.type_name()));
    return {};
  }

  Run& run_;
  const String& source_;
  std::string_view format_;
  const Value& arguments_;
  bool is_tuple_ = false;
  std::size_t next_ = 0;
};

// "{}".format(x)
class BraceFormatter {
 public:
  BraceFormatter(Run& run, const String& format, const CallArgs& args)
      : run_(run), source_(format), format_(format.text), args_(args) {}

  Value format() {
    MarkedText out;
    if (!run_.read(format_.size())) return {};
    for (std::size_t at = 0; at < format_.size() && !run_.failed();) {
      const std::size_t mark = std::min(format_.find_first_of("{}", at), format_.size());
      out.add(source_, at, mark);
      if ((at = mark) == format_.size()) break;
      const char c = format_[at++];
      const bool doubled = at < format_.size() && format_[at] == c;
      if (doubled) {
        out.add(source_, at, at + 1);
        ++at;
      } else if (c == '}') {
        return run_.fail("Single '}' encountered in format string");
      } else {
        const std::size_t end = format_.find('}', at);
        if (end == std::string_view::npos) return run_.fail("expected '}' before end of string");
        field(format_.substr(at, end - at), out);
        at = end + 1;
      }
      if (!run_.charge(out.text.size() / 64)) return {};
    }
    return run_.failed() ? Value() : run_.text(std::move(out));
  }

 private:
  void field(std::string_view body, MarkedText& out) {
    if (body.find('{') != std::string_view::npos) {
      run_.fail("nested fields in a format string are not supported");
      return;
    }
    const std::size_t colon = body.find(':');
    std::string_view name = body.substr(0, colon);
    const std::string_view spec = colon == std::string_view::npos ? "" : body.substr(colon + 1);
    char conversion = '\0';
    if (const std::size_t mark = name.find('!'); mark != std::string_view::npos) {
      conversion = mark + 1 < name.size() ? name[mark + 1] : '?';
      name = name.substr(0, mark);
    }
    Value value = resolve(name);
    if (run_.failed()) return;
    if (conversion == 'r') {
      std::string shown;
      run_.append_repr(shown, value);
      value = run_.text(std::move(shown));
    } else if (conversion == 's') {
      if (value.as_string() == nullptr) value = run_.text(run_.to_text(value));
    } else if (conversion != '\0') {
      run_.fail("unknown conversion in a format string");
    }
    if (run_.failed()) return;
    if (spec.empty()) return run_.append_text(out, value);
    out.add(convert(value, spec));
  }

  Value resolve(std::string_view name) {
    std::size_t at = 0;
    while (at < name.size() && name[at] != '.' && name[at] != '[') ++at;
    const std::string_view first = name.substr(0, at);
    Value value = argument(first);
    while (at < name.size() && !run_.failed()) {
      if (name[at] == '[') {
        const std::size_t end = name.find(']', at);
        if (end == std::string_view::npos) return run_.fail("missing ']' in format string");
        std::size_t index_at = at + 1;
        const std::optional<std::size_t> index = read_number(name, index_at);
        value = index && index_at == end
                    ? run_.item(value, Value::integer(static_cast<Int>(*index)))
                    : run_.item(value, Value::constant(name.substr(at + 1, end - at - 1)));
        at = end + 1;
      } else if (name[at] == '.') {
        std::size_t end = at + 1;
        while (end < name.size() && name[end] != '.' && name[end] != '[') ++end;
        value = run_.attribute(value, name.substr(at + 1, end - at - 1));
        at = end;
      } else {
        return run_.fail("only '.' or '[' may follow ']' in a format field");
      }
    }
    return value;
  }

  Value argument(std::string_view name) {
    std::size_t at = 0;
    std::optional<std::size_t> index = name.empty() ? next_++ : read_number(name, at);
    if (index && at == name.size()) {
      if (*index < args_.positional.size()) return args_.positional[*index];
      return run_.fail("Replacement index out of range for positional args tuple");
    }
    for (const auto& [known, value] : args_.keywords) {
      if (known == name) return value;
    }
    return run_.fail(fmt::format("no value for {} in a format string", in_quotes(name)));
  }

  static bool is_align(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

  bool parse_spec(std::string_view text, Spec& spec) {
    std::size_t at = 0;
    if (!text.empty()) {
      const std::size_t bytes = text::decode(text, 0).bytes;
      if (bytes < text.size() && is_align(text[bytes])) {
        spec.fill = text.substr(0, bytes);
        spec.align = text[bytes];
        at = bytes + 1;
      } else if (is_align(text[0])) {
        spec.align = text[at++];
      }
    }
    const auto next_is = [&](char c) { return at < text.size() && text[at] == c; };
    if (next_is('+') || next_is('-') || next_is(' ')) spec.sign = text[at++];
    if (next_is('#')) spec.alternate = true, ++at;
    if (next_is('0') && spec.align == '\0') spec.fill = "0", spec.align = '=', ++at;
    spec.width = read_number(text, at).value_or(0);
    if (next_is(',')) spec.groups = true, ++at;
    if (next_is('.')) {
      ++at;
      spec.precision = read_number(text, at);
      if (!spec.precision) return false;
    }
    if (at < text.size()) spec.type = text[at++];
    return at == text.size();
  }

  std::string convert(const Value& value, std::string_view spec_text) {
    Spec spec;
    if (!parse_spec(spec_text, spec)) {
      run_.fail(fmt::format("invalid format specifier {}", in_quotes(spec_text)));
      return {};
    }
    if (!within_bounds(run_, spec)) return {};
    if (value.is_number()) {
      if (is_real_type(spec.type) || (value.as_real() != nullptr && spec.type == '\0')) {
        return pad(format_real(value.to_double(), spec), spec, '>');
      }
      if (value.as_real() == nullptr && (spec.type == '\0' || is_integer_type(spec.type))) {
        return pad(format_integer(*value.integral(), spec), spec, '>');
      }
    } else if (value.as_string() != nullptr && (spec.type == '\0' || spec.type == 's')) {
      std::string body = run_.to_text(value);
      if (spec.precision) body.resize(text::byte_offset(body, *spec.precision));
      return pad(std::move(body), spec, '<');
    }
    run_.fail(
        fmt::format("unsupported format {} for '{}'", in_quotes(spec_text), value.type_name()));
    return {};
  }

  Run& run_;
  const String& source_;
  std::string_view format_;
  const CallArgs& args_;
  std::size_t next_ = 0;
};

}  // namespace

Value percent_format(Run& run, const String& format, const Value& arguments) {
  return PercentFormatter(run, format, arguments).format();
}

Value brace_format(Run& run, const String& format, const CallArgs& args) {
  return BraceFormatter(run, format, args).format();
}

}  // namespace llorch::jinja
