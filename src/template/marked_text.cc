#include "template/marked_text.h"

#include <algorithm>

namespace llorch::jinja {

void MarkedText::mark(std::size_t begin, std::size_t end) {
  if (begin == end) return;
  if (!own.empty() && own.back().end == begin) {
    own.back().end = end;
  } else {
    own.push_back({begin, end});
  }
}

void MarkedText::add_own(std::string_view words) {
  mark(text.size(), text.size() + words.size());
  text += words;
}

void MarkedText::add(const MarkedText& other, std::size_t begin, std::size_t end) {
  const std::size_t at = text.size();
  auto span = std::partition_point(other.own.begin(), other.own.end(),
                                   [&](const base::TextSpan& s) { return s.end <= begin; });
  for (; span != other.own.end() && span->begin < end; ++span) {
    mark(at + std::max(span->begin, begin) - begin, at + std::min(span->end, end) - begin);
  }
  text.append(other.text, begin, end - begin);
}

bool MarkedText::is_own() const {
  return text.empty() || (own.size() == 1 && own[0] == base::TextSpan{0, text.size()});
}

}  // namespace llorch::jinja
