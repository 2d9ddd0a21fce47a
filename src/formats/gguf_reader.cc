#include "formats/gguf_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "formats/gguf_image.h"

namespace llorch::formats {
namespace {

constexpr std::int64_t kPartsMax = 1024;  // real splits have under 100

Status add_tensors(WeightFile& file, std::vector<WeightTensor> tensors) {
  for (WeightTensor& tensor : tensors) {
    if (Status added = file.add_tensor(std::move(tensor)); !added.ok()) return added;
  }
  return ok_status();
}

// "NAME-00002-of-00003.gguf" taken apart; the numbers count from one.
struct PartName {
  std::string name;
  std::int64_t number = 0;
  std::int64_t count = 0;
};

std::string part_file_name(std::string_view name, std::int64_t number, std::int64_t count) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", name, number, count);
}

std::optional<PartName> find_part_name(std::string_view file_name) {
  constexpr std::string_view kPattern = "-00000-of-00000.gguf";
  constexpr std::size_t kDigits = 5;
  if (file_name.size() <= kPattern.size()) return std::nullopt;
  const std::size_t name_bytes = file_name.size() - kPattern.size();
  const auto number_at = [&](std::size_t at) {
    std::int64_t number = 0;
    const char* first = file_name.data() + name_bytes + at;
    std::from_chars(first, first + kDigits, number);
    return number;
  };
  PartName part{std::string(file_name.substr(0, name_bytes)), number_at(1), number_at(10)};
  // Spelling it again proves that the rest of the name is as it should be.
  if (part_file_name(part.name, part.number, part.count) != file_name) return std::nullopt;
  return part;
}

// How many files the model is in. A merged file keeps the key with the value 0.
Result<std::int64_t> read_part_count(const Metadata& metadata) {
  const Result<std::int64_t> count = metadata.integer_or("split.count", 0);
  if (!count.ok()) return count.error();
  if (*count < 0 || *count > kPartsMax) {
    return Error{ErrorCode::Unsupported,
                 fmt::format("split.count is {}; supported are up to {} parts", *count, kPartsMax)};
  }
  return std::max<std::int64_t>(*count, 1);
}

// A key of a split part that must have a known value.
Status check_split_key(const Metadata& metadata, std::string_view key, std::int64_t expected) {
  const Result<std::int64_t> found = metadata.integer(key);
  if (!found.ok()) return found.error();
  if (*found == expected) return ok_status();
  return Error{ErrorCode::Corrupt,
               fmt::format("{} is {}, expected {}; the parts do not belong together", key, *found,
                           expected)};
}

// Maps and parses one part, checks that it is the part its name says, and adds it to `file`.
Status add_part(WeightFile& file, const std::filesystem::path& path, std::int64_t number,
                std::int64_t count) {
  Result<std::shared_ptr<const base::MappedFile>> mapped = base::MappedFile::open(path);
  if (!mapped.ok()) return mapped.error().in(fmt::format("part {} of {}", number, count));
  Result<GgufImage> part = parse_gguf_image((*mapped)->bytes());
  if (!part.ok()) return part.error().in(path.string());
  for (const auto& [key, expected] :
       {std::pair("split.no", number - 1), std::pair("split.count", count)}) {
    if (Status sound = check_split_key(part->metadata, key, expected); !sound.ok()) {
      return sound.error().in(path.string());
    }
  }
  if (number == 1) file.mutable_metadata() = std::move(part->metadata);
  if (Status added = add_tensors(file, std::move(part->tensors)); !added.ok()) {
    return added.error().in(path.string());
  }
  file.keep(mapped.take());
  return ok_status();
}

Result<WeightFile> read_parts(const std::filesystem::path& path, std::int64_t count) {
  const std::optional<PartName> named = find_part_name(path.filename().string());
  if (!named || named->count != count || named->number < 1 || named->number > count) {
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format(
            "{} is one of {} parts (split.count) but is not called NAME-NNNNN-of-{:05}.gguf, so "
            "the others cannot be found; give all parts their original names",
            path.string(), count, count)};
  }
  WeightFile file(FileFormat::Gguf, path);
  for (std::int64_t number = 1; number <= count; ++number) {
    const auto part_path = path.parent_path() / part_file_name(named->name, number, count);
    if (Status added = add_part(file, part_path, number, count); !added.ok()) return added.error();
  }
  const auto tensors = static_cast<std::int64_t>(file.tensors().size());
  if (Status sound = check_split_key(file.metadata(), "split.tensors.count", tensors);
      !sound.ok()) {
    return sound.error().in(path.string());
  }
  return file;
}

}  // namespace

Result<WeightFile> parse_gguf(std::span<const std::byte> image, std::string_view name) {
  const auto named = [name](const Error& error) { return name.empty() ? error : error.in(name); };
  Result<GgufImage> parsed = parse_gguf_image(image);
  if (!parsed.ok()) return named(parsed.error());
  WeightFile file(FileFormat::Gguf, name);
  file.mutable_metadata() = std::move(parsed->metadata);
  if (Status added = add_tensors(file, std::move(parsed->tensors)); !added.ok())
    return named(added.error());
  file.count_borrowed(image);
  return file;
}

Result<WeightFile> read_gguf(const std::filesystem::path& path) {
  Result<std::shared_ptr<const base::MappedFile>> mapped = base::MappedFile::open(path);
  if (!mapped.ok()) return mapped.error();
  Result<GgufImage> parsed = parse_gguf_image((*mapped)->bytes());
  if (!parsed.ok()) return parsed.error().in(path.string());
  const Result<std::int64_t> parts = read_part_count(parsed->metadata);
  if (!parts.ok()) return parts.error().in(path.string());
  if (*parts > 1) return read_parts(path, *parts);
  WeightFile file(FileFormat::Gguf, path);
  file.mutable_metadata() = std::move(parsed->metadata);
  if (Status added = add_tensors(file, std::move(parsed->tensors)); !added.ok()) {
    return added.error().in(path.string());
  }
  file.keep(mapped.take());
  return file;
}

}  // namespace llorch::formats
