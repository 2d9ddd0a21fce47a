// Filters that walk, choose from or order a collection.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "template/ast.h"
#include "template/builtins.h"
#include "template/operators.h"
#include "template/run.h"
#include "template/sort.h"
#include "template/text.h"

namespace llorch::jinja {
namespace {

// The parts of "a.b.0" as keys; an integer stands for itself.
std::vector<Value> attribute_path(Run& run, const Value& attribute) {
  const String* string = attribute.as_string();
  if (string == nullptr) return {attribute};
  std::vector<Value> path;
  for (const std::string_view part : text::split(string->text, ".", text::kNotFound)) {
    const bool is_index =
        !part.empty() && part.size() < 10 &&
        std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    Int index = 0;
    for (const char c : part) index = is_index ? index * 10 + (c - '0') : 0;
    if (!run.step()) return {};
    path.push_back(is_index ? Value::integer(index) : run.text(part));
  }
  return path;
}

Value follow(Run& run, Value value, const std::vector<Value>& path) {
  for (const Value& key : path) {
    if (run.failed()) return {};
    value = run.item(value, key);
  }
  return value;
}

Value folded(Run& run, const Value& value) {
  const String* string = value.as_string();
  if (string == nullptr) return value;
  return run.read(string->text.size()) ? run.text(text::lower(string->text)) : Value();
}

Value length(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "length", call, {}, 0);
  const std::optional<std::size_t> count = run.length(subject);
  return count ? Value::integer(static_cast<Int>(*count)) : Value();
}

Value default_value(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "default", call, {"default_value", "boolean"}, 0);
  if (!subject.is_undefined() && !(args.flag(1) && !subject.is_true())) return subject;
  return args.has(0) ? args[0] : Value::constant("");
}

Value first(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "first", call, {}, 0);
  if (auto* iterator = subject.as_object_of<Iterator>()) {
    if (iterator->next < iterator->items.size()) return iterator->items[iterator->next++];
  } else if (const Sequence* sequence = subject.as_sequence()) {
    if (!sequence->items.empty()) return sequence->items.front();
  } else {
    const std::vector<Value> items = run.elements(subject);
    if (!items.empty()) return items.front();
  }
  return run.undefined("No first item, sequence was empty.");
}

Value last(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "last", call, {}, 0);
  if (subject.as_object() != nullptr) {
    return run.fail(fmt::format("'{}' object is not reversible", subject.type_name()));
  }
  if (const Sequence* sequence = subject.as_sequence()) {
    if (!sequence->items.empty()) return sequence->items.back();
  } else {
    const std::vector<Value> items = run.elements(subject);
    if (!items.empty()) return items.back();
  }
  return run.undefined("No last item, sequence was empty.");
}

Value to_list(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "list", call, {}, 0);
  return run.list(run.elements(subject));
}

Value join(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "join", call, {"d", "attribute"}, 0);
  MarkedText separator;
  if (args.has(0)) run.append_text(separator, args[0]);
  const bool by_attribute = args.has(1) && !args[1].is_none();
  const std::vector<Value> path =
      by_attribute ? attribute_path(run, args[1]) : std::vector<Value>();
  MarkedText out;
  bool is_first = true;
  for (const Value& item : run.elements(subject)) {
    if (!run.step() || !run.charge(separator.text.size())) return {};
    if (!is_first) out.add(separator);
    is_first = false;
    run.append_text(out, follow(run, item, path));
  }
  return run.text(std::move(out));
}

Value items(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "items", call, {}, 0);
  if (subject.is_undefined()) return run.iterator("generator", {});
  const Dict* dict = subject.as_dict();
  if (dict == nullptr) return run.fail("Can only get item pairs from a mapping.");
  std::vector<Value> pairs;
  for (const auto& [key, value] : dict->entries()) pairs.push_back(run.tuple({key, value}));
  return run.iterator("generator", std::move(pairs));
}

Value reverse(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "reverse", call, {}, 0);
  if (subject.as_string() != nullptr) {
    return slice(run, subject, None{}, None{}, Value::integer(-1));
  }
  std::vector<Value> values = run.elements(subject);
  std::reverse(values.begin(), values.end());
  if (subject.as_object() != nullptr) return run.list(std::move(values));
  return run.iterator("list_reverseiterator", std::move(values));
}

Value map(Run& run, const Value& subject, CallArgs& call) {
  std::vector<Value> mapped;
  if (!subject.is_true()) return run.iterator("generator", {});
  if (call.positional.empty() && !call.keywords.empty()) {
    const Args args(run, "map", call, {"attribute", "default"}, 1);
    if (run.failed()) return {};
    const std::vector<Value> path = attribute_path(run, args[0]);
    for (const Value& item : run.elements(subject)) {
      if (!run.step()) return {};
      Value value = item;
      for (const Value& key : path) {
        value = run.item(value, key);
        if (value.is_undefined() && args.has(1) && !args[1].is_none()) value = args[1];
        if (run.failed()) return {};
      }
      mapped.push_back(std::move(value));
    }
    return run.iterator("generator", std::move(mapped));
  }
  if (call.positional.empty() || call.positional[0].as_string() == nullptr) {
    return run.fail("map requires a filter argument");
  }
  const std::string name = call.positional[0].as_string()->text;
  const NativeFunction filter = find_filter(name);
  if (filter == nullptr) return run.fail(fmt::format("No filter named {}.", in_quotes(name)));
  call.positional.erase(call.positional.begin());
  for (const Value& item : run.elements(subject)) {
    if (!run.step()) return {};
    CallArgs args = call;
    mapped.push_back(filter(run, item, args));
  }
  return run.iterator("generator", std::move(mapped));
}

template <bool kKeeps, bool kByAttribute>
Value choose(Run& run, const Value& subject, CallArgs& call) {
  if (!subject.is_true()) return run.iterator("generator", {});
  std::vector<Value> path;
  if (kByAttribute) {
    if (call.positional.empty()) return run.fail("Missing parameter for attribute name");
    path = attribute_path(run, call.positional[0]);
    call.positional.erase(call.positional.begin());
  }
  NativeFunction test = nullptr;
  if (!call.positional.empty()) {
    const std::string name = run.to_text(call.positional[0]);
    test = find_test(name);
    if (test == nullptr) return run.fail(fmt::format("No test named {}.", in_quotes(name)));
    call.positional.erase(call.positional.begin());
  }
  std::vector<Value> chosen;
  for (const Value& item : run.elements(subject)) {
    if (!run.step()) return {};
    const Value value = follow(run, item, path);
    CallArgs args = call;
    const bool passes = test == nullptr ? value.is_true() : test(run, value, args).is_true();
    if (passes == kKeeps) chosen.push_back(item);
  }
  return run.iterator("generator", std::move(chosen));
}

Value unique(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "unique", call, {"case_sensitive", "attribute"}, 0);
  const bool by_attribute = args.has(1) && !args[1].is_none();
  const std::vector<Value> path =
      by_attribute ? attribute_path(run, args[1]) : std::vector<Value>();
  std::vector<Value> seen;
  std::vector<Value> kept;
  for (const Value& item : run.elements(subject)) {
    Value key = follow(run, item, path);
    if (!args.flag(0)) key = folded(run, key);
    const bool known = std::any_of(seen.begin(), seen.end(),
                                   [&](const Value& other) { return run.equals(other, key); });
    if (run.failed()) return {};
    if (known) continue;
    seen.push_back(std::move(key));
    kept.push_back(item);
  }
  return run.iterator("generator", std::move(kept));
}

using Keyed = std::pair<Value, Value>;

std::vector<Value> sorted(Run& run, std::vector<Keyed> keyed, bool reverse) {
  stable_sort(keyed, [&](const Keyed& a, const Keyed& b) {
    return reverse ? run.less(b.first, a.first) : run.less(a.first, b.first);
  });
  std::vector<Value> values;
  for (Keyed& entry : keyed) values.push_back(std::move(entry.second));
  return values;
}

Value sort(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "sort", call, {"reverse", "case_sensitive", "attribute"}, 0);
  std::vector<std::vector<Value>> paths;
  if (args.has(2) && args[2].as_string() != nullptr) {
    for (const std::string_view part :
         text::split(args[2].as_string()->text, ",", text::kNotFound)) {
      paths.push_back(attribute_path(run, run.text(part)));
    }
  } else {
    paths.push_back(args.has(2) && !args[2].is_none() ? attribute_path(run, args[2])
                                                      : std::vector<Value>());
  }
  std::vector<Keyed> keyed;
  for (const Value& item : run.elements(subject)) {
    std::vector<Value> keys;
    for (const std::vector<Value>& path : paths) {
      const Value key = follow(run, item, path);
      keys.push_back(args.flag(1) ? key : folded(run, key));
    }
    if (!run.step()) return {};
    keyed.emplace_back(run.list(std::move(keys)), item);
  }
  return run.list(sorted(run, std::move(keyed), args.flag(0)));
}

Value dict_sort(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "dictsort", call, {"case_sensitive", "by", "reverse"}, 0);
  const std::string_view by = args.has(1) ? args.text(1).value_or("") : "key";
  if (by != "key" && by != "value")
    return run.fail("You can only sort by either \"key\" or \"value\"");
  const Dict* dict = subject.as_dict();
  if (subject.is_undefined()) return run.fail_undefined(subject);
  if (dict == nullptr) {
    return run.fail(fmt::format("'{}' object has no attribute 'items'", subject.type_name()));
  }
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : dict->entries()) {
    if (!run.step()) return {};
    const Value& criterion = by == "key" ? key : value;
    keyed.emplace_back(args.flag(0) ? criterion : folded(run, criterion), run.tuple({key, value}));
  }
  return run.list(sorted(run, std::move(keyed), args.flag(2)));
}

template <bool kLargest>
Value extreme(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, kLargest ? "max" : "min", call, {"case_sensitive", "attribute"}, 0);
  const bool by_attribute = args.has(1) && !args[1].is_none();
  const std::vector<Value> path =
      by_attribute ? attribute_path(run, args[1]) : std::vector<Value>();
  const std::vector<Value> values = run.elements(subject);
  if (values.empty()) return run.undefined("No aggregated item, sequence was empty.");
  Value best;
  Value best_key;
  for (std::size_t i = 0; i < values.size() && !run.failed(); ++i) {
    Value key = follow(run, values[i], path);
    if (!args.flag(0)) key = folded(run, key);
    if (i > 0 && !(kLargest ? run.less(best_key, key) : run.less(key, best_key))) continue;
    best = values[i];
    best_key = std::move(key);
  }
  return best;
}

Value sum(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "sum", call, {"attribute", "start"}, 0);
  const bool by_attribute = args.has(0) && !args[0].is_none();
  const std::vector<Value> path =
      by_attribute ? attribute_path(run, args[0]) : std::vector<Value>();
  Value total = args.has(1) ? args[1] : Value::integer(0);
  for (const Value& item : run.elements(subject)) {
    if (!run.step()) return {};
    total = apply(run, Operator::Add, total, follow(run, item, path));
  }
  return total;
}

Value batch(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "batch", call, {"linecount", "fill_with"}, 1);
  const Int size = args.integer(0, 1);
  if (size < 1 || size > 100'000) return run.fail("batch: expected a size from 1 to 100000");
  const auto count = static_cast<std::size_t>(size);
  std::vector<Value> rows;
  std::vector<Value> row;
  for (const Value& item : run.elements(subject)) {
    if (row.size() == count) rows.push_back(run.list(std::exchange(row, {})));
    row.push_back(item);
  }
  if (!row.empty()) {
    const bool fills = args.has(1) && !args[1].is_none();
    if (fills && run.charge(count * sizeof(Value))) row.resize(count, args[1]);
    rows.push_back(run.list(std::move(row)));
  }
  return run.iterator("generator", std::move(rows));
}

Value attribute(Run& run, const Value& subject, CallArgs& call) {
  const Args args(run, "attr", call, {"name"}, 1);
  const std::string_view name = args.text(0).value_or("");
  if (run.failed()) return {};
  // Attributes only, never keys: of plain data these are the methods.
  if (subject.as_object() != nullptr || find_method(subject, name) != nullptr) {
    return run.attribute(subject, name);
  }
  return run.undefined(
      fmt::format("'{} object' has no attribute {}", subject.type_name(), in_quotes(name)));
}

constexpr NamedFunction kFilters[] = {
    {"length", length},
    {"count", length},
    {"default", default_value},
    {"d", default_value},
    {"first", first},
    {"last", last},
    {"list", to_list},
    {"join", join},
    {"items", items},
    {"reverse", reverse},
    {"map", map},
    {"select", choose<true, false>},
    {"reject", choose<false, false>},
    {"selectattr", choose<true, true>},
    {"rejectattr", choose<false, true>},
    {"unique", unique},
    {"sort", sort},
    {"dictsort", dict_sort},
    {"min", extreme<false>},
    {"max", extreme<true>},
    {"sum", sum},
    {"batch", batch},
    {"attr", attribute},
};

}  // namespace

NativeFunction find_sequence_filter(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kFilters), std::end(kFilters),
                                         [&](const NamedFunction& f) { return f.name == name; });
  return found == std::end(kFilters) ? nullptr : found->function;
}

}  // namespace llorch::jinja
