#include "tokenizer/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace llorch::tokenizer {
namespace {

std::vector<std::uint32_t> make_fallback(std::string_view text) {
  std::vector<std::uint32_t> fallback(text.size() + 1, 0);
  std::size_t length = 0;
  for (std::size_t i = 1; i < text.size(); ++i) {
    while (length > 0 && text[i] != text[length]) length = fallback[length];
    if (text[i] == text[length]) ++length;
    fallback[i + 1] = static_cast<std::uint32_t>(length);
  }
  return fallback;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  for (std::string& stop : stops) {
    if (stop.empty()) continue;
    std::vector<std::uint32_t> fallback = make_fallback(stop);
    patterns_.push_back({std::move(stop), std::move(fallback), 0});
  }
}

StopMatcher::Output StopMatcher::add(std::string_view piece) {
  Output output;
  if (is_stopped_) return output;
  for (const char c : piece) {
    held_ += c;
    const Pattern* complete = nullptr;
    for (Pattern& pattern : patterns_) {
      while (pattern.matched > 0 && pattern.text[pattern.matched] != c) {
        pattern.matched = pattern.fallback[pattern.matched];
      }
      if (pattern.text[pattern.matched] == c) ++pattern.matched;
      if (pattern.matched < pattern.text.size()) continue;
      if (complete == nullptr || pattern.text.size() > complete->text.size()) complete = &pattern;
    }
    if (complete == nullptr) continue;
    is_stopped_ = true;
    output.is_stopped = true;
    output.stop = complete->text;
    output.text = held_.substr(0, held_.size() - complete->text.size());
    held_.clear();
    return output;
  }
  std::size_t keep = 0;
  for (const Pattern& pattern : patterns_) keep = std::max(keep, pattern.matched);
  // A stop string may begin inside a character only if it is not text itself; hold the character
  // whole then.
  while (keep < held_.size() &&
         (static_cast<std::uint8_t>(held_[held_.size() - keep]) & 0xC0) == 0x80 && keep > 0)
    ++keep;
  output.text = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return output;
}

std::string StopMatcher::flush() {
  return is_stopped_ ? std::string() : std::exchange(held_, {});
}

}  // namespace llorch::tokenizer
