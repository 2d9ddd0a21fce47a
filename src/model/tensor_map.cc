#include "model/tensor_map.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <unordered_set>

namespace llorch::model {
namespace {

constexpr std::size_t kProblemsShown = 12;

Error report(const formats::WeightFile& file, const std::vector<std::string>& problems) {
  const std::size_t shown = std::min(problems.size(), kProblemsShown);
  std::string text = fmt::format(
      "{}: {} of its tensors do not fit the architecture: {}", file.path().string(),
      problems.size(),
      fmt::join(problems.begin(), problems.begin() + static_cast<std::ptrdiff_t>(shown), "; "));
  if (problems.size() > shown) text += fmt::format("; and {} more", problems.size() - shown);
  return {ErrorCode::Corrupt, std::move(text)};
}

}  // namespace

Result<std::vector<MappedTensor>> map_tensors(
    std::vector<TensorSpec> specs, const formats::WeightFile& file,
    const std::function<bool(std::string_view)>& is_ignored) {
  std::vector<MappedTensor> mapped;
  std::vector<std::string> problems;
  std::unordered_set<std::string_view> used;
  for (TensorSpec& spec : specs) {
    const formats::WeightTensor* tensor = file.find(spec.name);
    if (tensor == nullptr) {
      if (spec.required)
        problems.push_back(fmt::format("missing {} {}", spec.name, spec.shape.to_string()));
      continue;
    }
    used.insert(tensor->name);
    if (tensor->shape != spec.shape) {
      problems.push_back(fmt::format("{} has shape {}, expected {}", spec.name,
                                     tensor->shape.to_string(), spec.shape.to_string()));
      continue;
    }
    mapped.push_back({std::move(spec), tensor});
  }
  for (const formats::WeightTensor& tensor : file.tensors()) {
    if (!used.contains(tensor.name) && !is_ignored(tensor.name)) {
      problems.push_back(fmt::format("unknown {} {}", tensor.name, tensor.shape.to_string()));
    }
  }
  if (!problems.empty()) return report(file, problems);
  return mapped;
}

}  // namespace llorch::model
