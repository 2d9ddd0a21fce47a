#include "tools/tokenizer_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "base/utf8.h"

namespace llorch::tools {
namespace {

constexpr std::array kTexts = {
    std::string_view("Hello, world! It's 1234567 o'clock; they'll say \"we've\" DON'T."),
    std::string_view("  two spaces,   three,    four and a tab\tand\n\nnewlines\r\n \n end "),
    std::string_view("ein Ärger über Straße, naïve café, Ünïcödé, ½ ² Ⅷ"),
    std::string_view("e\u0301 (decomposed), \u00e9 (composed), ﬁ ligature, ＦＵＬＬ"),
    std::string_view("日本語のテキストと中文，한국어 텍스트。"),
    std::string_view("Привет, мир! שלום עולם مرحبا بالعالم नमस्ते ไทย"),
    std::string_view("👋🏽 👨‍👩‍👧‍👦 🇩🇪 \U0001F600\U0001F600"),
    std::string_view("def f(x):\n    return x**2  # comment\n\n\tif (a&&b) {c[0]+=1;}"),
    std::string_view("https://example.org/a?b=c&d=%20 user@example.com 3.14159e-10 0xDEADBEEF"),
    std::string_view("aaaaaaaaaaaaaaaaaaaaaaaaa ---------------- ======== ...... !!!!!!"),
    std::string_view(" leading"),
    std::string_view("x"),
    std::string_view(" "),
    std::string_view("\n"),
    std::string_view("▁ the mark itself ▁▁"),
    std::string_view("a\u00a0b\u200bc\u3000d\u2028e"),
};

std::string shown_ids(std::span<const TokenId> ids) {
  std::string out;
  for (std::size_t i = 0; i < ids.size() && i < 12; ++i) out += fmt::format(" {}", ids[i]);
  return out;
}

// The first text that the two encode differently, as a sentence; empty when there is none.
Result<std::string> find_difference(const Tokenizer& source, const Tokenizer& back,
                                    std::string_view text,
                                    const tokenizer::EncodeOptions& options) {
  Result<std::vector<TokenId>> before = source.encode(text, options);
  if (!before.ok()) return before.error();
  Result<std::vector<TokenId>> after = back.encode(text, options);
  if (!after.ok()) return after.error();
  if (before.value() == after.value()) return std::string();
  return fmt::format("{} gives{} before and{} after", base::quoted(text), shown_ids(before.value()),
                     shown_ids(after.value()));
}

}  // namespace

Status check_facts(const Tokenizer& source, const Tokenizer& back) {
  for (TokenId id = 0; id < source.vocab_size(); ++id) {
    if (source.piece(id).empty()) continue;
    if (source.piece(id) != back.piece(id))
      return inexpressible(fmt::format("the piece {} of token {} becomes {}",
                                       base::quoted(source.piece(id)), id,
                                       base::quoted(back.piece(id))));
    if (source.is_special(id) != back.is_special(id))
      return inexpressible(fmt::format("token {} ({}) is special before or after, not both", id,
                                       base::quoted(source.piece(id))));
  }
  if (!std::ranges::equal(source.prefix_ids(), back.prefix_ids()) ||
      !std::ranges::equal(source.suffix_ids(), back.suffix_ids())) {
    return inexpressible("what it puts around a text");
  }
  if (!std::ranges::equal(source.end_ids(), back.end_ids())) {
    return inexpressible(fmt::format("its end tokens are{}, but{} would be read",
                                     shown_ids(source.end_ids()), shown_ids(back.end_ids())));
  }
  return ok_status();
}

Status check_texts(const TokenizerDraft& draft, const Tokenizer& source, const Tokenizer& back,
                   std::vector<std::string>& notes) {
  for (const std::string_view text : kTexts) {
    Result<std::string> difference = find_difference(source, back, text, {.add_special = true});
    if (!difference.ok()) return difference.error();
    if (difference->empty()) continue;
    if (!draft.spares_leading_space || !(text.starts_with(' ') || text.starts_with(kSpaceMark)))
      return inexpressible(difference.value());
    if (!notes.empty()) continue;
    notes.push_back(
        fmt::format("readers of GGUF files put a space before texts that start with one, too: {}",
                    difference.value()));
  }
  // A special token within a text: the rules for the text behind it are the reader's.
  for (TokenId id = 0; id < source.vocab_size(); ++id) {
    if (!source.is_special(id)) continue;
    const std::string text = fmt::format("Hello{0}there {0} you", source.piece(id));
    Result<std::string> difference = find_difference(source, back, text, {.parse_special = true});
    if (!difference.ok()) return difference.error();
    if (difference->empty()) continue;
    notes.push_back(fmt::format(
        "beside special tokens, spaces are treated differently by readers of GGUF files: {}",
        difference.value()));
    break;
  }
  return ok_status();
}

}  // namespace llorch::tools
