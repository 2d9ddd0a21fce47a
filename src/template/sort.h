// A stable merge sort that stays within its vectors whatever the comparison says: templates compare
// values that may have no order, and a failed comparison answers at random.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace llorch::jinja {

template <class T, class Less>
void stable_sort(std::vector<T>& items, Less less) {
  std::vector<T> merged;
  for (std::size_t width = 1; width < items.size(); width *= 2) {
    merged.clear();
    merged.reserve(items.size());
    for (std::size_t begin = 0; begin < items.size(); begin += 2 * width) {
      const std::size_t middle = std::min(begin + width, items.size());
      const std::size_t end = std::min(middle + width, items.size());
      std::size_t left = begin;
      std::size_t right = middle;
      while (left < middle || right < end) {
        const bool takes_right = left == middle || (right < end && less(items[right], items[left]));
        merged.push_back(std::move(items[takes_right ? right++ : left++]));
      }
    }
    items.swap(merged);
  }
}

}  // namespace llorch::jinja
