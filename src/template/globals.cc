// Functions that every template can call, and the objects that they make.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <iterator>
#include <string>
#include <utility>

#include "template/builtins.h"
#include "template/run.h"

namespace llorch::jinja {
namespace {

constexpr Int kMaxRange = 100'000;  // the bound of Jinja's sandbox

Value raise_exception(Run& run, const Value&, CallArgs& call) {
  const Args args(run, "raise_exception", call, {"message"}, 1);
  return run.failed() ? Value() : run.raise(run.to_text(args[0]));
}

Value range(Run& run, const Value&, CallArgs& call) {
  const Args args(run, "range", call, {"start", "stop", "step"}, 1);
  const Int start = args.has(1) ? args.integer(0, 0) : 0;
  const Int stop = args.integer(args.has(1) ? 1 : 0, 0);
  const Int step = args.integer(2, 1);
  for (std::size_t i = 0; i < 3; ++i) {
    if (!args.has(i) || !args[i].is_none()) continue;
    return run.fail("'NoneType' object cannot be interpreted as an integer");
  }
  if (run.failed()) return {};
  if (step == 0) return run.fail("range() arg 3 must not be zero");
  constexpr Int kFar = Int{1} << 100;
  for (const Int bound : {start, stop, step}) {
    if (bound > kFar || bound < -kFar) return run.fail_limit("range() of too large a number");
  }
  const Int distance = step > 0 ? stop - start : start - stop;
  const Int stride = step > 0 ? step : -step;
  const Int count = distance <= 0 ? 0 : (distance - 1) / stride + 1;
  if (count > kMaxRange) {
    return run.fail_limit(
        fmt::format("range of {} elements: at most {} are allowed", count, kMaxRange));
  }
  std::vector<Value> items;
  for (Int i = 0; i < count; ++i) items.push_back(Value::integer(start + i * step));
  std::string shown = fmt::format("range({}, {}", start, stop);
  if (step != 1) shown += fmt::format(", {}", step);
  return run.sequence(SequenceKind::Range, std::move(items), shown + ")");
}

// dict(pairs or mapping, name=value, …)
std::vector<Dict::Entry> dict_entries(Run& run, CallArgs& call) {
  std::vector<Dict::Entry> entries;
  if (call.positional.size() > 1) run.fail("dict expected at most 1 argument");
  if (!call.positional.empty()) {
    if (const Dict* dict = call.positional[0].as_dict()) {
      entries = dict->entries();
    } else {
      for (const Value& pair : run.elements(call.positional[0])) {
        std::vector<Value> parts = run.elements(pair);
        if (run.failed()) return {};
        if (parts.size() != 2) {
          run.fail("dictionary update sequence elements must have length 2");
          return {};
        }
        entries.emplace_back(std::move(parts[0]), std::move(parts[1]));
      }
    }
  }
  for (auto& [name, value] : call.keywords) entries.emplace_back(run.text(name), std::move(value));
  return entries;
}

Value make_dict(Run& run, const Value&, CallArgs& call) {
  return run.dict(dict_entries(run, call));
}

Value make_namespace(Run& run, const Value&, CallArgs& call) {
  auto space = std::make_shared<Namespace>();
  for (auto& [key, value] : dict_entries(run, call)) {
    if (!run.step(1 + space->attributes.size() / 8) || !run.charge(2 * sizeof(Value))) return {};
    if (const String* name = key.as_string()) space->set(name->text, std::move(value));
  }
  return run.object(std::move(space));
}

class Cycler : public Object, public std::enable_shared_from_this<Cycler> {
 public:
  Cycler(std::vector<Value> items, int own_depth) : Object(own_depth), items_(std::move(items)) {}
  std::string_view type_name() const override { return "Cycler"; }
  std::optional<Value> attribute(Run& run, std::string_view name) override;
  Value next() {
    Value value = items_[at_];
    at_ = (at_ + 1) % items_.size();
    return value;
  }
  void reset() { at_ = 0; }

 private:
  std::vector<Value> items_;
  std::size_t at_ = 0;
};

// next and reset of a cycler.
class CyclerMethod : public Object {
 public:
  CyclerMethod(std::shared_ptr<Cycler> cycler, bool advances)
      : Object(cycler->depth + 1), cycler_(std::move(cycler)), advances_(advances) {}
  std::string_view type_name() const override { return "method"; }
  bool is_callable() const override { return true; }
  Value call(Run&, CallArgs&) override {
    if (advances_) return cycler_->next();
    cycler_->reset();
    return None{};
  }

 private:
  std::shared_ptr<Cycler> cycler_;
  bool advances_;
};

std::optional<Value> Cycler::attribute(Run& run, std::string_view name) {
  if (name == "current") return items_[at_];
  if (name != "next" && name != "reset") return std::nullopt;
  return run.object(std::make_shared<CyclerMethod>(shared_from_this(), name == "next"));
}

class Joiner : public Object {
 public:
  explicit Joiner(Value separator)
      : Object(separator.depth() + 1), separator_(std::move(separator)) {}
  std::string_view type_name() const override { return "Joiner"; }
  bool is_callable() const override { return true; }
  Value call(Run&, CallArgs&) override {
    return std::exchange(used_, true) ? separator_ : Value::constant("");
  }

 private:
  Value separator_;
  bool used_ = false;
};

Value make_joiner(Run& run, const Value&, CallArgs& call) {
  const Args args(run, "joiner", call, {"sep"}, 0);
  return run.object(std::make_shared<Joiner>(args.has(0) ? args[0] : Value::constant(", ")));
}

Value make_cycler(Run& run, const Value&, CallArgs& call) {
  if (call.positional.empty()) return run.fail("at least one item has to be provided");
  int depth = 1;
  for (const Value& item : call.positional) depth = std::max(depth, item.depth() + 1);
  return run.object(std::make_shared<Cycler>(std::move(call.positional), depth));
}

constexpr std::array<std::string_view, 12> kMonths = {
    "January", "February", "March",     "April",   "May",      "June",
    "July",    "August",   "September", "October", "November", "December"};
constexpr std::array<std::string_view, 7> kDays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                   "Thursday", "Friday", "Saturday"};

// One conversion of strftime in the C locale; nothing for a letter that we do not know.
std::optional<std::string> date_part(char letter, bool pads, std::chrono::local_seconds now) {
  const auto day = std::chrono::floor<std::chrono::days>(now);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss<std::chrono::seconds> time(now - day);
  const unsigned weekday = std::chrono::weekday(day).c_encoding();
  const int year = static_cast<int>(date.year());
  const auto month = static_cast<unsigned>(date.month());
  const auto hour = static_cast<unsigned>(time.hours().count());
  const auto two = [pads](unsigned number) { return fmt::format("{:0{}}", number, pads ? 2 : 1); };
  const std::chrono::local_days new_year(date.year() / std::chrono::January / 1);
  const auto day_of_year = static_cast<unsigned>((day - new_year).count()) + 1;
  switch (letter) {
    case 'Y':
      return fmt::format("{}", year);
    case 'y':
      return two(static_cast<unsigned>(year % 100));
    case 'm':
      return two(month);
    case 'd':
      return two(static_cast<unsigned>(date.day()));
    case 'e':
      return fmt::format("{:{}}", static_cast<unsigned>(date.day()), pads ? 2 : 1);
    case 'B':
      return std::string(kMonths[month - 1]);
    case 'b':
    case 'h':
      return std::string(kMonths[month - 1].substr(0, 3));
    case 'A':
      return std::string(kDays[weekday]);
    case 'a':
      return std::string(kDays[weekday].substr(0, 3));
    case 'w':
      return fmt::format("{}", weekday);
    case 'u':
      return fmt::format("{}", weekday == 0 ? 7 : weekday);
    case 'j':
      return fmt::format("{:0{}}", day_of_year, pads ? 3 : 1);
    case 'H':
      return two(hour);
    case 'I':
      return two(hour % 12 == 0 ? 12 : hour % 12);
    case 'M':
      return two(static_cast<unsigned>(time.minutes().count()));
    case 'S':
      return two(static_cast<unsigned>(time.seconds().count()));
    case 'f':
      return "000000";
    case 'p':
      return hour < 12 ? "AM" : "PM";
    case 'Z':
    case 'z':
      return "";
    case 'n':
      return "\n";
    case 't':
      return "\t";
    case '%':
      return "%";
    default:
      return std::nullopt;
  }
}

std::string_view composed(char letter) {
  switch (letter) {
    case 'F':
      return "%Y-%m-%d";
    case 'D':
    case 'x':
      return "%m/%d/%y";
    case 'T':
    case 'X':
      return "%H:%M:%S";
    case 'R':
      return "%H:%M";
    case 'r':
      return "%I:%M:%S %p";
    case 'c':
      return "%a %b %e %H:%M:%S %Y";
    default:
      return "";
  }
}

bool append_date(std::string& out, std::string_view format, std::chrono::local_seconds now) {
  for (std::size_t at = 0; at < format.size(); ++at) {
    if (format[at] != '%' || at + 1 == format.size()) {
      out.push_back(format[at]);
      continue;
    }
    ++at;
    const bool pads = format[at] != '-';
    if (!pads && ++at == format.size()) return false;
    if (const std::string_view parts = composed(format[at]); !parts.empty()) {
      append_date(out, parts, now);  // these contain no composed ones
    } else if (const std::optional<std::string> part = date_part(format[at], pads, now)) {
      out += *part;
    } else {
      return false;
    }
  }
  return true;
}

Value strftime_now(Run& run, const Value&, CallArgs& call) {
  const Args args(run, "strftime_now", call, {"format"}, 1);
  const std::string_view format = args.text(0).value_or("");
  if (run.failed()) return {};
  if (!run.options().now) return run.fail("the template asks for the date, and none was given");
  std::string out;
  if (!run.charge(format.size() * 16)) return {};
  if (!append_date(out, format, *run.options().now)) {
    return run.fail(fmt::format("strftime_now: unknown conversion in {}", in_quotes(format)));
  }
  return run.text(std::move(out));
}

constexpr NamedFunction kGlobals[] = {
    {"raise_exception", raise_exception},
    {"strftime_now", strftime_now},
    {"range", range},
    {"dict", make_dict},
    {"namespace", make_namespace},
    {"cycler", make_cycler},
    {"joiner", make_joiner},
};

}  // namespace

const NamedFunction* find_global(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kGlobals), std::end(kGlobals),
                                         [&](const NamedFunction& f) { return f.name == name; });
  return found == std::end(kGlobals) ? nullptr : found;
}

}  // namespace llorch::jinja
