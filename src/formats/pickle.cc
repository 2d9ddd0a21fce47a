#include "formats/pickle.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "base/enum_names.h"
#include "base/utf8.h"
#include "formats/byte_cursor.h"
#include "formats/pickle_words.h"

namespace llorch::formats {
namespace {

using Kind = PickleValue::Kind;
using Bytes = std::span<const std::byte>;

constexpr std::size_t kStackMax = std::size_t{1} << 21;
constexpr std::uint32_t kMemoMax = std::uint32_t{1} << 21;
constexpr std::uint8_t kProtocolMin = 2;
constexpr std::uint8_t kProtocolMax = 5;
constexpr PickleIndex kNothing = 0xffffffff;

std::string_view as_text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The unpickling machine: a stack of value indices, marks into it, a memo. Every failure names the
// byte.
class Machine {
 public:
  explicit Machine(Bytes bytes) : cursor_(bytes) {}

  Result<Pickle> run() {
    while (!stopped_) {
      opcode_at_ = cursor_.position();
      const auto opcode = cursor_.read<std::uint8_t>();
      if (!opcode) return fail("ends without STOP");
      if (opcode_at_ == 0 && *opcode != kProto)
        return fail("does not begin with a protocol of 2 or later");
      if (Status done = step(*opcode); !done.ok()) return done.error();
      if (stack_.size() > kStackMax || marks_.size() > kStackMax ||
          pickle_.values.size() > kPickleValuesMax) {
        return fail(fmt::format("holds more than {} values", kPickleValuesMax));
      }
    }
    if (cursor_.remaining() != 0)
      return fail(fmt::format("{} bytes behind STOP", cursor_.remaining()));
    return std::move(pickle_);
  }

 private:
  Error fail(std::string_view what, ErrorCode code = ErrorCode::Corrupt) const {
    return {code, fmt::format("pickle, byte {}: {}", opcode_at_, what)};
  }
  Error cut_short() const { return fail("is cut short"); }

  Status step(std::uint8_t opcode) {
    switch (opcode) {
      case kProto:
        return protocol();
      case kFrame:
        return cursor_.read<std::uint64_t>() ? ok_status() : Status(cut_short());
      case kStop:
        return stop();
      case kMark:
        marks_.push_back(stack_.size());
        return ok_status();
      case kPop:
        return pop();
      case kPopMark:
        return pop_mark().ok() ? ok_status() : Status(no_mark());
      case kDup:
        return dup();
      case kBinGet:
        return get<std::uint8_t>();
      case kLongBinGet:
        return get<std::uint32_t>();
      case kBinPut:
        return put(cursor_.read<std::uint8_t>());
      case kLongBinPut:
        return put(cursor_.read<std::uint32_t>());
      case kMemoize:
        return put(memo_count_);
      case kGlobal:
        return global();
      case kStackGlobal:
        return stack_global();
      case kReduce:
      case kNewObj:
        return call();
      case kBuild:
        return build();
      case kAppend:
        return extend(Kind::List, 1);
      case kSetItem:
        return extend(Kind::Dict, 2);
      case kAppends:
        return extend_marked(Kind::List);
      case kSetItems:
        return extend_marked(Kind::Dict);
      default:
        return push_value(opcode);
    }
  }

  // Opcodes that put one value on the stack.
  Status push_value(std::uint8_t opcode) {
    switch (opcode) {
      case kNone:
        return push({.kind = Kind::None});
      case kNewTrue:
        return push_integer(Kind::Bool, 1);
      case kNewFalse:
        return push_integer(Kind::Bool, 0);
      case kBinInt:
        return push_number<std::int32_t>();
      case kBinInt1:
        return push_number<std::uint8_t>();
      case kBinInt2:
        return push_number<std::uint16_t>();
      case kLong1:
        return push_long<std::uint8_t>();
      case kLong4:
        return push_long<std::uint32_t>();
      case kBinFloat:
        return push_float();
      case kShortBinUnicode:
        return push_text<std::uint8_t>(Kind::String);
      case kBinUnicode:
        return push_text<std::uint32_t>(Kind::String);
      case kBinUnicode8:
        return push_text<std::uint64_t>(Kind::String);
      case kShortBinString:
        return push_text<std::uint8_t>(Kind::String);
      case kBinString:
        return push_text<std::uint32_t>(Kind::String);
      case kShortBinBytes:
        return push_text<std::uint8_t>(Kind::Bytes);
      case kBinBytes:
        return push_text<std::uint32_t>(Kind::Bytes);
      case kBinBytes8:
      case kByteArray8:
        return push_text<std::uint64_t>(Kind::Bytes);
      case kEmptyTuple:
        return push_items(Kind::Tuple, 0);
      case kTuple1:
        return push_items(Kind::Tuple, 1);
      case kTuple2:
        return push_items(Kind::Tuple, 2);
      case kTuple3:
        return push_items(Kind::Tuple, 3);
      case kEmptyList:
        return push_items(Kind::List, 0);
      case kEmptyDict:
        return push_items(Kind::Dict, 0);
      case kTuple:
        return push_marked(Kind::Tuple);
      case kList:
        return push_marked(Kind::List);
      case kDict:
        return push_marked(Kind::Dict);
      case kBinPersistentId:
        return push_items(Kind::PersistentId, 1);
      default:
        return fail(fmt::format("opcode {:#04x} is not one that weight files use", opcode),
                    ErrorCode::Unsupported);
    }
  }

  Error no_mark() const { return fail("no mark on the stack"); }
  Error too_few() const { return fail("too few values on the stack"); }

  // Values above the last mark belong to it; an opcode that takes a fixed number may not reach
  // below.
  std::size_t available() const { return stack_.size() - (marks_.empty() ? 0 : marks_.back()); }

  Status push(PickleValue value) {
    stack_.push_back(static_cast<PickleIndex>(pickle_.values.size()));
    pickle_.values.push_back(std::move(value));
    return ok_status();
  }
  Status push_integer(Kind kind, std::int64_t integer) {
    return push({.kind = kind, .integer = integer});
  }
  template <class T>
  Status push_number() {
    const auto number = cursor_.read<T>();
    if (!number) return cut_short();
    return push_integer(Kind::Int, *number);
  }

  Status protocol() {
    const auto version = cursor_.read<std::uint8_t>();
    if (!version) return cut_short();
    if (*version < kProtocolMin || *version > kProtocolMax) {
      return fail(
          fmt::format("protocol {}, expected {} to {}", *version, kProtocolMin, kProtocolMax),
          ErrorCode::Unsupported);
    }
    return ok_status();
  }

  Status stop() {
    if (stack_.size() != 1 || !marks_.empty()) {
      return fail(fmt::format("STOP with {} values on the stack, expected one", stack_.size()));
    }
    pickle_.root = stack_.back();
    stopped_ = true;
    return ok_status();
  }

  // As in Python: with nothing above the last mark, POP takes the mark.
  Status pop() {
    if (available() > 0) {
      stack_.pop_back();
    } else if (!marks_.empty()) {
      marks_.pop_back();
    } else {
      return too_few();
    }
    return ok_status();
  }

  Status dup() {
    if (available() == 0) return too_few();
    stack_.push_back(stack_.back());
    return ok_status();
  }

  // Removes the last mark and everything above it, which it returns.
  Result<std::vector<PickleIndex>> pop_mark() {
    if (marks_.empty()) return no_mark();
    const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<PickleIndex> items(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return items;
  }

  // Little-endian two's complement of any length, shortest form or not.
  template <class Length>
  Status push_long() {
    const auto length = cursor_.read<Length>();
    const auto digits = length ? cursor_.take(*length) : std::nullopt;
    if (!digits) return cut_short();
    if (digits->size() > sizeof(std::int64_t)) {
      return push({.kind = Kind::Bytes, .text = as_text(*digits)});
    }
    std::uint64_t bits = 0;
    for (std::size_t i = 0; i < digits->size(); ++i) {
      bits |= std::to_integer<std::uint64_t>((*digits)[i]) << (8 * i);
    }
    const bool negative = !digits->empty() && (digits->back() & std::byte{0x80}) != std::byte{0};
    if (negative && digits->size() < sizeof bits) bits |= ~std::uint64_t{0} << (8 * digits->size());
    return push_integer(Kind::Int, std::bit_cast<std::int64_t>(bits));
  }

  Status push_float() {  // the one big-endian number of the format
    const auto bits = cursor_.read<std::uint64_t>();
    if (!bits) return cut_short();
    return push({.kind = Kind::Float, .number = std::bit_cast<double>(__builtin_bswap64(*bits))});
  }

  template <class Length>
  Status push_text(Kind kind) {
    const auto length = cursor_.read<Length>();
    const auto bytes = length ? cursor_.take(*length) : std::nullopt;
    if (!bytes) return cut_short();
    const std::string_view text = as_text(*bytes);
    if (kind == Kind::String && !base::is_valid_utf8(text))
      return fail("a string is not valid UTF-8");
    return push({.kind = kind, .text = text});
  }

  Status push_items(Kind kind, std::size_t count) {
    if (count > available()) return too_few();
    const auto first = stack_.end() - static_cast<std::ptrdiff_t>(count);
    std::vector<PickleIndex> items(first, stack_.end());
    stack_.erase(first, stack_.end());
    return push({.kind = kind, .items = std::move(items)});
  }

  Status push_marked(Kind kind) {
    Result<std::vector<PickleIndex>> items = pop_mark();
    if (!items.ok()) return items.error();
    if (kind == Kind::Dict && items->size() % 2 != 0)
      return fail("a dict has a key without a value");
    return push({.kind = kind, .items = items.take()});
  }

  // Adds the topmost `count` values to the container below them.
  Status extend(Kind kind, std::size_t count) {
    if (available() < count + 1) return too_few();
    const auto first = stack_.end() - static_cast<std::ptrdiff_t>(count);
    const std::vector<PickleIndex> items(first, stack_.end());
    stack_.erase(first, stack_.end());
    return add_to_top(kind, items);
  }
  Status extend_marked(Kind kind) {
    Result<std::vector<PickleIndex>> items = pop_mark();
    if (!items.ok()) return items.error();
    if (available() == 0) return too_few();
    if (kind == Kind::Dict && items->size() % 2 != 0)
      return fail("a dict has a key without a value");
    return add_to_top(kind, *items);
  }
  Status add_to_top(Kind kind, const std::vector<PickleIndex>& items) {
    PickleValue& container = pickle_.values[stack_.back()];
    if (container.kind != kind) {
      return fail(fmt::format("adds to a {}, expected a {}", name(container.kind), name(kind)));
    }
    container.items.insert(container.items.end(), items.begin(), items.end());
    return ok_status();
  }

  template <class T>
  Status get() {
    const auto slot = cursor_.read<T>();
    if (!slot) return cut_short();
    if (*slot >= memo_.size() || memo_[*slot] == kNothing)
      return fail(fmt::format("memo slot {} is empty", *slot));
    stack_.push_back(memo_[*slot]);
    return ok_status();
  }

  Status put(std::optional<std::uint32_t> slot) {
    if (!slot) return cut_short();
    if (available() == 0) return too_few();
    if (*slot >= kMemoMax)
      return fail(fmt::format("memo slot {}, more than the {} allowed", *slot, kMemoMax));
    if (*slot >= memo_.size()) memo_.resize(std::size_t{*slot} + 1, kNothing);
    if (memo_[*slot] == kNothing) ++memo_count_;
    memo_[*slot] = stack_.back();
    return ok_status();
  }

  Status push_global(std::string_view module, std::string_view symbol) {
    const std::string full = fmt::format("{}.{}", module, symbol);
    const auto allowed = std::lower_bound(kAllowedGlobals.begin(), kAllowedGlobals.end(), full);
    if (allowed == kAllowedGlobals.end() || *allowed != full) {
      constexpr std::size_t kShownBytes = 200;
      return fail(fmt::format("wants {}: refused, code in a weight file is never run; "
                              "save the bare state_dict or SafeTensors instead",
                              base::quoted(std::string_view(full).substr(0, kShownBytes))),
                  ErrorCode::Forbidden);
    }
    return push({.kind = Kind::Global, .text = *allowed});
  }

  Status global() {
    const std::optional<std::string_view> module = take_line();
    const std::optional<std::string_view> symbol = module ? take_line() : std::nullopt;
    if (!symbol) return cut_short();
    return push_global(*module, *symbol);
  }
  std::optional<std::string_view> take_line() {
    ByteCursor ahead = cursor_;
    const std::string_view rest = as_text(*ahead.take(ahead.remaining()));
    const std::size_t length = rest.find('\n');
    if (length == std::string_view::npos) return std::nullopt;
    return as_text(*cursor_.take(length + 1)).substr(0, length);
  }

  Status stack_global() {
    if (available() < 2) return too_few();
    const PickleValue& symbol = pickle_.values[stack_[stack_.size() - 1]];
    const PickleValue& module = pickle_.values[stack_[stack_.size() - 2]];
    if (symbol.kind != Kind::String || module.kind != Kind::String)
      return fail("a name that is not a string");
    const std::string_view module_text = module.text;
    const std::string_view symbol_text = symbol.text;
    stack_.resize(stack_.size() - 2);
    return push_global(module_text, symbol_text);
  }

  // REDUCE and NEWOBJ: an OrderedDict becomes a Dict, everything else a Call that nobody carries
  // out.
  Status call() {
    if (available() < 2) return too_few();
    const PickleValue& arguments = pickle_.values[stack_[stack_.size() - 1]];
    const PickleValue& callee = pickle_.values[stack_[stack_.size() - 2]];
    if (callee.kind != Kind::Global) {
      return fail(fmt::format("calls a {}, expected one of the known names", name(callee.kind)),
                  ErrorCode::Forbidden);
    }
    if (arguments.kind != Kind::Tuple) return fail("calls with arguments that are no tuple");
    if (callee.text != "collections.OrderedDict") return push_items(Kind::Call, 2);
    if (!arguments.items.empty())
      return fail("an OrderedDict made from arguments", ErrorCode::Unsupported);
    stack_.resize(stack_.size() - 2);
    return push_items(Kind::Dict, 0);
  }

  // The state that BUILD would set (an OrderedDict's _metadata) holds no weights and is dropped.
  Status build() {
    if (available() < 2) return too_few();
    stack_.pop_back();
    const Kind kind = pickle_.values[stack_.back()].kind;
    if (kind != Kind::Dict && kind != Kind::Call) {
      return fail(fmt::format("sets the state of a {}", name(kind)));
    }
    return ok_status();
  }

  ByteCursor cursor_;
  std::size_t opcode_at_ = 0;
  bool stopped_ = false;
  Pickle pickle_;
  std::vector<PickleIndex> stack_;
  std::vector<std::size_t> marks_;
  std::vector<PickleIndex> memo_;
  std::uint32_t memo_count_ = 0;
};

}  // namespace

std::string_view name(PickleValue::Kind kind) {
  static constexpr base::EnumNames<Kind::PersistentId> kNames(
      "None", "bool", "int", "float", "string", "bytes", "tuple", "list", "dict", "global",
      "object", "persistent id");
  return kNames[kind];
}

Result<Pickle> read_pickle(Bytes bytes) {
  return Machine(bytes).run();
}

}  // namespace llorch::formats
