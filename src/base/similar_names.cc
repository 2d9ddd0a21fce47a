#include "base/similar_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/ascii.h"
#include "base/utf8.h"

namespace llorch::base {
namespace {

// Insertions, deletions, replacements and swaps of neighbours that turn one into the other; more
// than `limit` is limit + 1.
std::size_t edit_distance(std::string_view a, std::string_view b, std::size_t limit) {
  const std::size_t longer = std::max(a.size(), b.size());
  if (longer - std::min(a.size(), b.size()) > limit) return limit + 1;
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replaced, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
    if (*std::min_element(row.begin(), row.end()) > limit) return limit + 1;
    std::swap(before, last);
    std::swap(last, row);
  }
  return std::min(last[b.size()], limit + 1);
}

}  // namespace

std::vector<std::string> similar_names(std::string_view name,
                                       const std::vector<std::string_view>& candidates,
                                       std::size_t max_count) {
  const std::string wanted = ascii_lower(name);
  const std::size_t limit = std::max<std::size_t>(1, wanted.size() / 3);
  constexpr std::size_t kContainedMin = 3;
  std::vector<std::pair<std::size_t, std::string_view>> found;
  for (const std::string_view candidate : candidates) {
    const std::string text = ascii_lower(candidate);
    std::size_t distance = edit_distance(wanted, text, limit);
    // A part of the name is a smaller mistake than the letters it lacks.
    const bool contained = wanted.size() >= kContainedMin && text.find(wanted) != std::string::npos;
    const bool contains = text.size() >= kContainedMin && wanted.find(text) != std::string::npos;
    if (contained || contains) distance = std::min(distance, limit);
    if (distance <= limit) found.emplace_back(distance, candidate);
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> names;
  for (const auto& [distance, candidate] : found) {
    if (names.size() == max_count) break;
    names.emplace_back(candidate);
  }
  return names;
}

std::string did_you_mean(std::string_view name, const std::vector<std::string_view>& candidates) {
  constexpr std::size_t kNamedMax = 2;
  std::string text;
  for (const std::string& near : similar_names(name, candidates, kNamedMax))
    text += (text.empty() ? "; did you mean " : " or ") + near;
  return text.empty() ? text : text + "?";
}

std::string did_you_mean_inside(std::string_view name,
                                const std::vector<std::string_view>& candidates) {
  const std::string text = did_you_mean(name, candidates);
  return text.empty() ? text : fmt::format(" ({})", text.substr(std::string_view("; ").size()));
}

std::string tell_unexpected_words(const std::vector<std::string>& words,
                                  const std::vector<std::string>& options) {
  if (words.empty()) return {};
  const std::string name = words.front().substr(0, words.front().find('='));
  if (name.size() > 1 && name.starts_with('-')) {
    const std::vector<std::string_view> views(options.begin(), options.end());
    return fmt::format("there is no option {}{}", base::quoted(name), did_you_mean(name, views));
  }
  std::string list = base::quoted(words.front());
  for (std::size_t i = 1; i < words.size(); ++i) list += " " + base::quoted(words[i]);
  return fmt::format("there is no place for {} here", list);
}

}  // namespace llorch::base
