#include "tools/outside_reference.h"

#include <fmt/format.h>

#include <cstring>
#include <span>
#include <string_view>

#include "base/file.h"
#include "base/json.h"

namespace llorch::tools {
namespace {

constexpr std::size_t kJsonBytesMax = 16U << 20;
constexpr std::string_view kNpyMagic = "\x93NUMPY\x01";
constexpr std::size_t kNpyPrefix = 10;  // magic, version, u16 length of the header

Result<std::vector<std::int32_t>> read_ids(const json::Object& document, const char* key,
                                           std::int32_t vocab_size) {
  const json::Value* array = document.if_contains(key);
  if (array == nullptr || !array->is_array() || array->get_array().empty())
    return Error{ErrorCode::Corrupt, fmt::format("golden.json: {} is not a list of ids", key)};
  std::vector<std::int32_t> ids;
  for (const json::Value& id : array->get_array()) {
    if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() >= vocab_size) {
      return Error{
          ErrorCode::Corrupt,
          fmt::format("golden.json: {} has an id outside the vocabulary of {}", key, vocab_size)};
    }
    ids.push_back(static_cast<std::int32_t>(id.get_int64()));
  }
  return ids;
}

// A NumPy file of version 1 with `count` float32 values in C order.
Result<std::vector<float>> read_npy(const std::filesystem::path& path, std::size_t count) {
  const auto file = base::MappedFile::open(path);
  if (!file.ok()) return file.error();
  const std::span<const std::byte> bytes = file.value()->bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const Error wrong{ErrorCode::Corrupt,
                    fmt::format("{}: expected a NumPy file with {} float32 values, a row of logits "
                                "for each id of the prompt",
                                path.string(), count)};
  if (bytes.size() < kNpyPrefix || !text.starts_with(kNpyMagic)) return wrong;
  const std::size_t length =
      std::to_integer<std::size_t>(bytes[8]) + 256 * std::to_integer<std::size_t>(bytes[9]);
  if (bytes.size() < kNpyPrefix + length) return wrong;
  const std::string_view header = text.substr(kNpyPrefix, length);
  const bool is_plain = header.find("'<f4'") != std::string_view::npos &&
                        header.find("'fortran_order': False") != std::string_view::npos;
  if (!is_plain || bytes.size() - kNpyPrefix - length != count * sizeof(float)) return wrong;
  std::vector<float> values(count);
  std::memcpy(values.data(), bytes.data() + kNpyPrefix + length, count * sizeof(float));
  return values;
}

std::string maker_of(const json::Object& document) {
  const json::Value* version = document.if_contains("transformers");
  return version != nullptr && version->is_string()
             ? fmt::format("transformers {}", json::view(version->get_string()))
             : "golden.json";
}

}  // namespace

Result<std::optional<OutsideReference>> find_outside_reference(const std::filesystem::path& model,
                                                               std::int32_t vocab_size,
                                                               std::int32_t context_length) {
  std::error_code error;
  const std::filesystem::path folder =
      std::filesystem::is_directory(model, error) ? model : model.parent_path();
  if (!std::filesystem::is_regular_file(folder / "golden.json", error))
    return std::optional<OutsideReference>();
  const Result<std::string> text = base::read_text_file(folder / "golden.json", kJsonBytesMax);
  if (!text.ok()) return text.error();
  const Result<json::Value> parsed = json::parse(*text, {.max_bytes = kJsonBytesMax});
  if (!parsed.ok()) return parsed.error().in((folder / "golden.json").string());
  if (!parsed->is_object()) return Error{ErrorCode::Corrupt, "golden.json is not an object"};
  const json::Object& document = parsed->get_object();
  Result<std::vector<std::int32_t>> prompt = read_ids(document, "input_ids", vocab_size);
  if (!prompt.ok()) return prompt.error();
  Result<std::vector<std::int32_t>> greedy = read_ids(document, "greedy_ids", vocab_size);
  if (!greedy.ok()) return greedy.error();
  if (prompt->size() > static_cast<std::size_t>(context_length) ||
      greedy->size() < prompt->size()) {
    return Error{
        ErrorCode::Corrupt,
        fmt::format("golden.json: a prompt of {} ids continued to {}, with a context of {}",
                    prompt->size(), greedy->size(), context_length)};
  }
  Result<std::vector<float>> logits =
      read_npy(folder / "golden_logits.npy", prompt->size() * static_cast<std::size_t>(vocab_size));
  if (!logits.ok()) return logits.error();
  return std::optional(
      OutsideReference{maker_of(document), prompt.take(), greedy.take(), logits.take()});
}

}  // namespace llorch::tools
