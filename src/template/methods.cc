// Methods of strings, dicts and lists. Only those that change nothing exist.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "template/builtins.h"
#include "template/format.h"
#include "template/run.h"
#include "template/text.h"

namespace llorch::jinja {
namespace {

const String& self(const Value& subject) {
  return *subject.as_string();
}

// The string that a method is going to read from end to end, paid for.
std::string_view self_text(Run& run, const Value& subject) {
  const std::string_view text = self(subject).text;
  return run.read(text.size()) ? text : std::string_view();
}

// A count or limit from a template: negative means "all".
std::size_t as_limit(Int value) {
  constexpr Int kLargest = Int{1} << 62;
  return value < 0 || value > kLargest ? static_cast<std::size_t>(-1)
                                       : static_cast<std::size_t>(value);
}

// `parts` are stretches of `source`.
Value make_parts(Run& run, const String& source, const std::vector<std::string_view>& parts) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) {
    if (!run.step()) return {};
    items.push_back(run.part(source, part));
  }
  return run.list(std::move(items));
}

template <text::Side kSide>
Value strip(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "strip", call, {"chars"}, 0);
  const std::optional<std::string_view> chars = args.text(0);
  const std::string_view all = self_text(run, subject);
  if (run.failed() || !run.read(chars ? 8 * chars->size() : 0)) return {};
  return run.part(self(subject), text::strip(all, kSide, chars));
}

template <auto kFunction>
Value convert(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "convert", call, {}, 0);
  const std::string_view all = self_text(run, subject);
  return run.failed() ? Value() : run.changed(self(subject), kFunction(all));
}

template <bool kFromRight>
Value split(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "split", call, {"sep", "maxsplit"}, 0);
  const std::optional<std::string_view> separator = args.text(0);
  const std::size_t limit = as_limit(args.integer(1, -1));
  if (run.failed()) return {};
  if (separator && separator->empty()) return run.fail("empty separator");
  const std::string_view all = self_text(run, subject);
  if (!run.charge(all.size())) return {};
  return make_parts(
      run, self(subject),
      kFromRight ? text::rsplit(all, separator, limit) : text::split(all, separator, limit));
}

Value split_lines(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "splitlines", call, {"keepends"}, 0);
  const std::string_view all = self_text(run, subject);
  if (run.failed()) return {};
  return make_parts(run, self(subject), text::split_lines(all, args.flag(0)));
}

template <bool kFromRight>
Value partition(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "partition", call, {"sep"}, 1);
  const std::string_view separator = args.text(0).value_or("");
  if (run.failed()) return {};
  if (separator.empty()) return run.fail("empty separator");
  const std::string_view all = self_text(run, subject);
  if (!run.charge(all.size())) return {};
  const std::size_t hit = kFromRight ? text::rfind(all, separator) : text::find(all, separator);
  std::string_view parts[] = {all, "", ""};
  if (hit != text::kNotFound) {
    parts[0] = all.substr(0, hit);
    parts[1] = all.substr(hit, separator.size());
    parts[2] = all.substr(hit + separator.size());
  } else if (kFromRight) {
    std::swap(parts[0], parts[2]);
  }
  const String& whole = self(subject);
  return run.tuple(
      {run.part(whole, parts[0]), run.part(whole, parts[1]), run.part(whole, parts[2])});
}

// The part of the text between two optional code point positions; without data when they are in the
// wrong order, where not even the empty text is found.
std::string_view window(const Args& args, std::string_view all, std::size_t first) {
  if (!args.has(first) && !args.has(first + 1)) return all;
  const auto length = static_cast<Int>(text::length(all));
  const auto clamp = [&](Int at) { return std::clamp(at < 0 ? at + length : at, Int{0}, length); };
  const Int begin = clamp(args.integer(first, 0));
  const Int end = clamp(args.integer(first + 1, length));
  if (begin > end) return {};
  const std::size_t from = text::byte_offset(all, static_cast<std::size_t>(begin));
  return all.substr(from, text::byte_offset(all, static_cast<std::size_t>(end)) - from);
}

template <bool kAtEnd>
Value has_affix(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, kAtEnd ? "endswith" : "startswith", call, {"affix", "start", "end"}, 1);
  // Without a window only the affix is looked at, not the text.
  const bool has_window = args.has(1) || args.has(2);
  const std::string_view all =
      has_window ? window(args, self_text(run, subject), 1) : std::string_view(self(subject).text);
  if (run.failed()) return {};
  const auto matches = [&](const Value& affix) {
    const String* string = affix.as_string();
    if (string == nullptr) {
      run.fail(fmt::format(
          "startswith and endswith: expected a string or a tuple of strings, found '{}'",
          affix.type_name()));
      return false;
    }
    return run.step(1 + string->text.size() / 64) &&
           (kAtEnd ? all.ends_with(string->text) : all.starts_with(string->text));
  };
  const Sequence* tuple = args[0].as_sequence();
  if (tuple == nullptr || tuple->kind != SequenceKind::Tuple)
    return Value::boolean(matches(args[0]));
  return Value::boolean(std::any_of(tuple->items.begin(), tuple->items.end(), matches));
}

Value replace(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "replace", call, {"old", "new", "count"}, 2);
  const std::string_view from = args.text(0).value_or("");
  const std::string_view to = args.text(1).value_or("");
  const String* new_text = args[1].as_string();
  const std::size_t limit = as_limit(args.integer(2, -1));
  if (run.failed()) return {};
  const std::string_view all = self_text(run, subject);
  if (run.failed()) return {};
  // The size is known, and paid for, before the text is built.
  const std::size_t hits = std::min(text::count(all, from), limit);
  if (hits > 0 && to.size() > run.options().limits.max_work_bytes / hits) {
    return run.fail_limit("replacing makes a string too large");
  }
  if (!run.charge(all.size() + hits * (to.size() + sizeof(base::TextSpan)))) return {};
  const String& old_text = self(subject);
  MarkedText out;
  std::size_t at = 0;
  for (std::size_t done = 0; done < hits; ++done) {
    // An empty text is found in front of each character and at the end.
    const std::size_t hit = !from.empty() ? text::find(all, from, at)
                            : done == 0   ? 0
                                          : at + text::decode(all, at).bytes;
    out.add(old_text, at, hit);
    if (new_text != nullptr) out.add(*new_text);
    at = hit + from.size();
  }
  out.add(old_text, at, all.size());
  return run.text(std::move(out));
}

template <bool kFromRight, bool kMustExist>
Value find(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "find", call, {"sub", "start", "end"}, 1);
  const std::string_view part = args.text(0).value_or("");
  const std::string_view all = window(args, self_text(run, subject), 1);
  if (!run.read(all.size() + part.size())) return {};
  const std::size_t hit = all.data() == nullptr ? text::kNotFound
                          : kFromRight          ? text::rfind(all, part)
                                                : text::find(all, part);
  if (hit == text::kNotFound) {
    return kMustExist ? run.fail("substring not found") : Value::integer(-1);
  }
  const std::string_view whole = self(subject).text;
  const auto before = static_cast<std::size_t>(all.data() - whole.data()) + hit;
  return Value::integer(static_cast<Int>(text::length(whole.substr(0, before))));
}

Value count_text(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "count", call, {"sub", "start", "end"}, 1);
  const std::string_view part = args.text(0).value_or("");
  const std::string_view all = window(args, self_text(run, subject), 1);
  if (!run.read(all.size() + part.size())) return {};
  return Value::integer(all.data() == nullptr ? 0 : static_cast<Int>(text::count(all, part)));
}

Value join(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "join", call, {"iterable"}, 1);
  if (run.failed()) return {};
  const std::vector<Value> items = run.elements(args[0]);
  MarkedText out;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const String* part = items[i].as_string();
    if (part == nullptr) {
      return run.fail(fmt::format("sequence item {}: expected str instance, {} found", i,
                                  items[i].type_name()));
    }
    if (!run.charge(part->text.size() + self(subject).text.size())) return {};
    if (i > 0) out.add(self(subject));
    out.add(*part);
  }
  return run.text(std::move(out));
}

enum class Padding { Left, Right, Both };

template <Padding kPadding>
Value justify(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "justify", call, {"width", "fillchar"}, 1);
  const Int width = args.integer(0, 0);
  const std::string_view fill = args.text(1).value_or(" ");
  if (run.failed()) return {};
  if (text::length(fill) != 1)
    return run.fail("The fill character must be exactly one character long");
  const std::string_view all = self_text(run, subject);
  if (run.failed()) return {};
  const auto length = static_cast<Int>(text::length(all));
  if (width <= length) return subject;
  const Int missing = width - length;
  if (missing > static_cast<Int>(run.options().limits.max_work_bytes) / 4) {
    return run.fail_limit("padding makes a string too large");
  }
  // Python puts the odd character of a centred text to the left when the width is odd.
  const Int left = kPadding == Padding::Left    ? missing
                   : kPadding == Padding::Right ? 0
                                                : missing / 2 + (missing & width & 1);
  if (!run.charge(static_cast<std::size_t>(missing) * fill.size())) return {};
  std::string out;
  for (Int i = 0; i < left; ++i) out += fill;
  out += all;
  for (Int i = left; i < missing; ++i) out += fill;
  return run.text(std::move(out));
}

Value zero_fill(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "zfill", call, {"width"}, 1);
  const std::string_view digits = self(subject).text;
  const bool has_sign = !digits.empty() && (digits[0] == '-' || digits[0] == '+');
  CallArgs padding;
  const Int width = std::max(args.integer(0, 0), Int{0});
  padding.positional = {Value::integer(width - (has_sign ? 1 : 0)), Value::constant("0")};
  if (run.failed()) return {};
  const Value padded =
      justify<Padding::Left>(run, run.text(digits.substr(has_sign ? 1 : 0)), padding);
  if (run.failed() || !has_sign) return padded;
  return run.text(std::string(1, digits[0]) + padded.as_string()->text);
}

template <bool kAtEnd>
Value remove_affix(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, kAtEnd ? "removesuffix" : "removeprefix", call, {"affix"}, 1);
  const std::string_view affix = args.text(0).value_or("");
  std::string_view all = self(subject).text;
  if (!run.read(affix.size())) return {};
  if (kAtEnd && all.ends_with(affix)) all.remove_suffix(affix.size());
  if (!kAtEnd && all.starts_with(affix)) all.remove_prefix(affix.size());
  return run.part(self(subject), all);
}

Value format(Run& run, const Value& subject, CallArgs& call) {
  return brace_format(run, self(subject), call);
}

template <auto kPredicate>
Value all_characters(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "is", call, {}, 0);
  const std::string_view all = self_text(run, subject);
  bool holds = !all.empty();
  for (std::size_t at = 0; holds && at < all.size();) {
    const auto [code, bytes] = text::decode(all, at);
    holds = kPredicate(code);
    at += bytes;
  }
  return Value::boolean(holds);
}

template <auto kPredicate>
Value whole_text(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "is", call, {}, 0);
  return Value::boolean(kPredicate(self_text(run, subject)));
}

bool is_alphanumeric(char32_t code) {
  return text::is_alpha(code) || text::is_numeric(code);
}

Value dict_get(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "get", call, {"key", "default"}, 1);
  if (run.failed()) return {};
  const Value* value = run.find_key(*subject.as_dict(), args[0]);
  if (value != nullptr) return *value;
  return args.has(1) ? args[1] : Value(None{});
}

template <SequenceKind kKind>
Value dict_view(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "items", call, {}, 0);
  std::vector<Value> items;
  for (const auto& [key, value] : subject.as_dict()->entries()) {
    if (!run.step()) return {};
    items.push_back(kKind == SequenceKind::DictKeys     ? key
                    : kKind == SequenceKind::DictValues ? value
                                                        : run.tuple({key, value}));
  }
  return run.sequence(kKind, std::move(items));
}

Value copy(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "copy", call, {}, 0);
  return subject;  // values never change
}

Value list_index(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "index", call, {"value"}, 1);
  const std::vector<Value>& items = subject.as_sequence()->items;
  for (std::size_t i = 0; i < items.size() && !run.failed(); ++i) {
    if (run.equals(items[i], args[0])) return Value::integer(static_cast<Int>(i));
  }
  return run.fail("the value is not in the list");
}

Value list_count(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "count", call, {"value"}, 1);
  Int hits = 0;
  for (const Value& item : subject.as_sequence()->items) hits += run.equals(item, args[0]) ? 1 : 0;
  return Value::integer(hits);
}

constexpr NamedFunction kStringMethods[] = {
    {"split", split<false>},
    {"rsplit", split<true>},
    {"splitlines", split_lines},
    {"partition", partition<false>},
    {"rpartition", partition<true>},
    {"strip", strip<text::Side::Both>},
    {"lstrip", strip<text::Side::Left>},
    {"rstrip", strip<text::Side::Right>},
    {"startswith", has_affix<false>},
    {"endswith", has_affix<true>},
    {"removeprefix", remove_affix<false>},
    {"removesuffix", remove_affix<true>},
    {"replace", replace},
    {"upper", convert<text::upper>},
    {"lower", convert<text::lower>},
    {"title", convert<text::title>},
    {"capitalize", convert<text::capitalize>},
    {"find", find<false, false>},
    {"rfind", find<true, false>},
    {"index", find<false, true>},
    {"rindex", find<true, true>},
    {"count", count_text},
    {"join", join},
    {"format", format},
    {"ljust", justify<Padding::Right>},
    {"rjust", justify<Padding::Left>},
    {"center", justify<Padding::Both>},
    {"zfill", zero_fill},
    {"isalpha", all_characters<text::is_alpha>},
    {"isdigit", all_characters<text::is_digit>},
    {"isnumeric", all_characters<text::is_numeric>},
    {"isalnum", all_characters<is_alphanumeric>},
    {"isspace", all_characters<text::is_space>},
    {"isupper", whole_text<text::all_upper>},
    {"islower", whole_text<text::all_lower>},
};

constexpr NamedFunction kDictMethods[] = {
    {"get", dict_get},
    {"items", dict_view<SequenceKind::DictItems>},
    {"keys", dict_view<SequenceKind::DictKeys>},
    {"values", dict_view<SequenceKind::DictValues>},
    {"copy", copy},
};

constexpr NamedFunction kListMethods[] = {
    {"index", list_index},
    {"count", list_count},
    {"copy", copy},
};

template <std::size_t N>
const NamedFunction* search(const NamedFunction (&table)[N], std::string_view name) {
  const auto* const found = std::find_if(std::begin(table), std::end(table),
                                         [&](const NamedFunction& f) { return f.name == name; });
  return found == std::end(table) ? nullptr : found;
}

}  // namespace

const NamedFunction* find_method(const Value& object, std::string_view name) {
  if (object.as_string() != nullptr) return search(kStringMethods, name);
  if (object.as_dict() != nullptr) return search(kDictMethods, name);
  if (const Sequence* sequence = object.as_sequence()) {
    if (sequence->kind == SequenceKind::List) return search(kListMethods, name);
    if (sequence->kind == SequenceKind::Tuple && name != "copy") return search(kListMethods, name);
  }
  return nullptr;
}

}  // namespace llorch::jinja
