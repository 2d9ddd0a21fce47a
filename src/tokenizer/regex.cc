#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizer/regex.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <string>

#include "base/utf8.h"
#include "tokenizer/unicode.h"

namespace llorch::tokenizer {
namespace {

struct CodePointRange {
  char32_t first, last;
};

// What came with Unicode 15.0, 15.1 and 16.0: PCRE2 10.42 (Unicode 14) takes these for unassigned.
constexpr CodePointRange kNewCharacters[] = {
#include "tokenizer/unicode_new.inc"
};
constexpr char32_t kMongolianVowelSeparator =
    0x180E;  // PCRE2's \s has it, Unicode's White_Space not

bool is_new(char32_t c) {
  if (c == kMongolianVowelSeparator) return true;
  const auto* found =
      std::upper_bound(std::begin(kNewCharacters), std::end(kNewCharacters), c,
                       [](char32_t value, CodePointRange range) { return value < range.first; });
  return found != std::begin(kNewCharacters) && c <= found[-1].last;
}

// An old character of the same category and the same length in UTF-8.
char32_t old_character_like(char32_t c) {
  const bool is_long = c >= 0x10000;
  switch (UnicodeTable::instance().category(c)) {
    case Category::Lu:
      return is_long ? 0x10400 : 0x1E00;
    case Category::Ll:
      return is_long ? 0x10428 : 0x1E01;
    case Category::Lm:
      return is_long ? 0x16B40 : 0x0E46;
    case Category::Lo:
      return c >= 0x20000 ? 0x20000 : is_long ? 0x10000 : 0x0904;
    case Category::Mn:
      return is_long ? 0x101FD : 0x0941;
    case Category::Mc:
      return is_long ? 0x11000 : 0x0903;
    case Category::Nd:
      return is_long ? 0x104A0 : 0x0966;
    case Category::Nl:
      return is_long ? 0x10140 : 0x2160;
    case Category::No:
      return is_long ? 0x10107 : 0x2460;
    case Category::Po:
      return is_long ? 0x10100 : 0x0964;
    case Category::Pd:
      return is_long ? 0x10EAD : 0x2010;
    case Category::So:
      return is_long ? 0x1F000 : 0x2100;
    case Category::Sm:
      return is_long ? 0x1D6C1 : 0x2200;
    case Category::Sc:
      return is_long ? 0x1E2FF : 0x20A0;
    case Category::Cf:
      return is_long ? 0x110BD : 0x200B;
    default:
      return c;
  }
}

// The text with every character that PCRE2 would misjudge replaced by one of its kind; borders stay
// where they are. Empty when there is none, which is nearly always.
std::string familiar_text(std::string_view text) {
  std::string copy;
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Char c = utf8_at(text, i);
    if (c.code_point >= 0x0870 && is_new(c.code_point)) {
      if (copy.empty()) copy = text;
      std::string replacement;
      append_utf8(replacement, old_character_like(c.code_point));
      if (replacement.size() == c.bytes)
        std::copy(replacement.begin(), replacement.end(),
                  copy.begin() + static_cast<std::ptrdiff_t>(i));
    }
    i += c.bytes;
  }
  return copy;
}

// What is a letter of a word to Oniguruma, which runs the expressions of tokenizer files: with
// Latin-1's raised digits and fractions and no others. PCRE2 has all of these and no marks.
constexpr std::string_view kWord =
    R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE})";

// The expression with \w, \W, \b and \B spelled out. Nothing where one of them stands where it
// cannot be: \W within a class.
std::optional<std::string> spell_out_words(std::string_view expression) {
  std::string out;
  bool in_class = false;
  for (std::size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    if (c != '\\' || i + 1 == expression.size()) {
      if (c == '[') in_class = true;
      if (c == ']') in_class = false;
      out += c;
      continue;
    }
    const char escaped = expression[++i];
    if (in_class && escaped == 'W') return std::nullopt;
    if (escaped == 'w') {
      out += in_class ? std::string(kWord) : fmt::format("[{}]", kWord);
    } else if (escaped == 'W') {
      out += fmt::format("[^{}]", kWord);
    } else if (!in_class && escaped == 'b') {
      out += fmt::format("(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))", kWord);
    } else if (!in_class && escaped == 'B') {
      out += fmt::format("(?:(?<=[{0}])(?=[{0}])|(?<![{0}])(?![{0}]))", kWord);
    } else {
      out += c;
      out += escaped;
    }
  }
  return out;
}

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

// PCRE2 asks here at every item of the expression: the only place from which a match can be ended
// while it is sought. Its own limits count nothing that scans (a*[bc] over a million letters is a
// trillion steps and one count for each start).
struct Meter {
  EncodeBudget& budget;
  std::size_t last_position = 0;
};

int on_item(pcre2_callout_block* block, void* data) {
  constexpr std::size_t kStepsPerItem = 4;
  constexpr std::size_t kBytesPerStep = 4;
  auto& meter = *static_cast<Meter*>(data);
  const std::size_t at = block->current_position;
  const std::size_t moved =
      at > meter.last_position ? at - meter.last_position : meter.last_position - at;
  meter.last_position = at;
  return meter.budget.spend(kStepsPerItem + moved / kBytesPerStep) ? 0 : PCRE2_ERROR_CALLOUT;
}

// What one run of matching needs. The larger stack is taken only by texts that ask for it.
struct MatchState {
  MatchState(const pcre2_code* code, EncodeBudget& budget)
      : data(pcre2_match_data_create_from_pattern(code, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        meter{budget} {
    pcre2_set_callout(context, on_item, &meter);
  }
  ~MatchState() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
  MatchState(const MatchState&) = delete;
  MatchState& operator=(const MatchState&) = delete;

  void grow_stack() {
    constexpr std::size_t kStackBytes = std::size_t{8} << 20;
    stack = pcre2_jit_stack_create(32768, kStackBytes, nullptr);
    pcre2_jit_stack_assign(context, nullptr, stack);
  }

  pcre2_match_data* data;
  pcre2_match_context* context;
  Meter meter;
  pcre2_jit_stack* stack = nullptr;
};

}  // namespace

struct Regex::Code {
  Code(pcre2_code* compiled, std::string_view text) : code(compiled), expression(text) {}
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  pcre2_code* code;
  const std::string expression;
};

Result<Regex> Regex::compile(std::string_view expression, Effort effort) {
  if (expression.find("&&") != std::string_view::npos) {
    return Error{
        ErrorCode::Unsupported,
        fmt::format("expression {}: intersections of character classes (&&) are not supported",
                    base::quoted(expression))};
  }
  const std::optional<std::string> spelled = spell_out_words(expression);
  if (!spelled) {
    return Error{ErrorCode::Unsupported,
                 fmt::format("expression {}: \\W within a character class is not supported",
                             base::quoted(expression))};
  }
  int error = 0;
  PCRE2_SIZE offset = 0;
  constexpr std::uint32_t kOptions =
      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  const std::uint32_t watched = effort == Effort::Unknown ? PCRE2_AUTO_CALLOUT : 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(spelled->data()), spelled->size(),
                                   kOptions | watched, &error, &offset, nullptr);
  if (code == nullptr) {
    return Error{ErrorCode::Unsupported,
                 fmt::format("expression {} does not compile at byte {}: {}",
                             base::quoted(expression), offset, message_of(error))};
  }
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // without JIT matching is slower, not different
  return Regex(std::make_shared<const Code>(code, expression));
}

Status Regex::for_each_match(std::string_view original, EncodeBudget& budget,
                             const std::function<void(std::size_t, std::size_t)>& on_match) const {
  const std::string copy = familiar_text(original);
  const std::string_view text = copy.empty() ? original : std::string_view(copy);
  MatchState state(code_->code, budget);
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  std::size_t from = 0;
  while (from <= text.size()) {
    budget.blame(code_->expression);  // whoever hears of a match may run another one
    if (!budget.spend(1)) break;
    const int found = pcre2_match(code_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK,
                                  state.data, state.context);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found == PCRE2_ERROR_JIT_STACKLIMIT && state.stack == nullptr) {
      state.grow_stack();
      continue;
    }
    if (found < 0) {
      budget.fail(message_of(found));
      break;
    }
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(state.data);
    on_match(range[0], range[1]);
    if (range[1] > range[0]) {
      from = range[1];
    } else if (range[1] < text.size()) {
      from = range[1] + utf8_length(text[range[1]]);
    } else {
      break;
    }
  }
  budget.blame("");
  return budget.status();
}

}  // namespace llorch::tokenizer
