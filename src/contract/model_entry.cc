#include "contract/model_entry.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "base/utf8.h"
#include "contract/mirror.h"

namespace llorch::contract {
namespace {

constexpr std::size_t kIdBytesMax = 128;
constexpr std::size_t kPathBytesMax = 1024;
constexpr std::size_t kFilesMax = 10'000;
constexpr double kBytesPerGb = 1e9;
constexpr double kSizeGbMax = 9e9;  // its bytes still fit 63 bits

constexpr std::array<std::string_view, 13> kEntryFields = {
    "id",         "name",     "path",     "format", "size_gb",  "size_bytes", "architecture",
    "downloaded", "backends", "metadata", "files",  "revision", "updated_at"};
constexpr std::array<std::string_view, 7> kMetadataFields = {
    "repo", "context_length", "vocab_size", "parameters", "quantization", "license", "unsupported"};

template <class V, class T>
void visit_entry(V& v, T& entry) {
  v("id", entry.id);
  v("name", entry.name);
  v("path", entry.path);
  v("format", entry.format);
  v("architecture", entry.architecture);
  v("downloaded", entry.downloaded);
  v("backends", entry.backends);
  v("revision", entry.revision);
  v("updated_at", entry.updated_at);
}

template <class V, class T>
void visit_metadata(V& v, T& entry) {
  v("repo", entry.repo);
  v("context_length", entry.context_length);
  v("vocab_size", entry.vocab_size);
  v("parameters", entry.parameters);
  v("quantization", entry.quantization);
  v("license", entry.license);
  v("unsupported", entry.unsupported);
}

template <class V, class T>
void visit_file(V& v, T& file) {
  v("path", file.path);
  v("size", file.size);
  v("sha256", file.sha256);
  v("modified_ms", file.modified_ms);
  v("changed_ns", file.changed_ns);
  v("inode", file.inode);
  v("damaged", file.damaged);
}

// What the contract only allows is left out where nothing is known.
void drop_empty(json::Object& object, std::span<const std::string_view> fields) {
  for (const std::string_view field : fields) {
    const json::Value* value = object.if_contains(field);
    const bool is_empty =
        value != nullptr && ((value->is_string() && value->get_string().empty()) ||
                             (value->is_int64() && value->get_int64() == 0));
    if (is_empty) object.erase(field);
  }
}

json::Object other_fields(const json::Object& object, std::span<const std::string_view> known) {
  json::Object others;
  for (const auto& field : object) {
    if (std::find(known.begin(), known.end(), json::view(field.key())) == known.end())
      others.emplace(field.key(), field.value());
  }
  return others;
}

double size_gb(std::int64_t bytes) {
  return std::round(static_cast<double>(bytes) / kBytesPerGb * 1000) / 1000;
}

bool is_sha256(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

void read_files(json::FieldReader& reader, const json::Array& files, ModelEntry& entry) {
  if (files.size() > kFilesMax) {
    reader.fail("files", "at most 10000", fmt::format("has {} elements", files.size()));
    return;
  }
  entry.files.reserve(files.size());
  for (const json::Value& element : files) {
    const std::string field = fmt::format("files[{}]", entry.files.size());
    const json::Object* object = element.if_object();
    if (object == nullptr) {
      reader.fail(field, "object", fmt::format("is {}", json::kind_name(element)));
      return;
    }
    json::FieldReader file_reader(*object, field + ".");
    MirrorReader mirror(file_reader);
    ModelFile& file = entry.files.emplace_back();
    visit_file(mirror, file);
    file_reader.ignore_others();
    reader.add(file_reader.finish());
    if (!is_relative_file_path(file.path))
      reader.fail(field, "relative path",
                  "has the path " + base::quoted(file.path) + ", not one below the model's folder");
    if (file.size < 0) reader.fail(field, "size >= 0", "has a negative size");
    if (!file.sha256.empty() && !is_sha256(file.sha256))
      reader.fail(field, "64 hex digits", "has the sha256 " + base::quoted(file.sha256));
  }
}

void read_size(json::FieldReader& reader, ModelEntry& entry) {
  const std::optional<double> gigabytes = reader.optional_number("size_gb", {0, kSizeGbMax, false});
  const std::optional<std::int64_t> bytes =
      reader.optional_integer("size_bytes", 0, std::numeric_limits<std::int64_t>::max());
  if (gigabytes)
    entry.size_bytes = static_cast<std::int64_t>(std::llround(*gigabytes * kBytesPerGb));
  if (bytes) entry.size_bytes = *bytes;
}

}  // namespace

bool is_model_id(std::string_view text) {
  const auto is_alphanumeric = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  if (text.empty() || text.size() > kIdBytesMax || !is_alphanumeric(text.front())) return false;
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return is_alphanumeric(c) || c == '.' || c == '_' || c == '-';
  });
}

bool is_relative_file_path(std::string_view text) {
  if (text.empty() || text.size() > kPathBytesMax || !base::is_valid_utf8(text)) return false;
  const auto is_bad = [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7F || c == '\\';
  };
  if (std::any_of(text.begin(), text.end(), is_bad)) return false;
  for (;;) {
    const std::size_t slash = text.find('/');
    const std::string_view part = text.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return false;
    if (slash == std::string_view::npos) return true;
    text.remove_prefix(slash + 1);
  }
}

json::Object to_json(const ModelEntry& entry) {
  constexpr std::array<std::string_view, 2> kMayBeAbsent = {"revision", "updated_at"};
  constexpr std::array<std::string_view, 4> kFileMayLack = {"sha256", "modified_ms", "changed_ns",
                                                            "inode"};
  json::Object object;
  MirrorWriter writer(object);
  visit_entry(writer, entry);
  drop_empty(object, kMayBeAbsent);
  object["size_gb"] = size_gb(entry.size_bytes);
  object["size_bytes"] = entry.size_bytes;

  json::Object metadata;
  MirrorWriter metadata_writer(metadata);
  visit_metadata(metadata_writer, entry);
  drop_empty(metadata, std::span(kMetadataFields).subspan(1));
  for (const auto& field : entry.unknown_metadata) metadata.emplace(field.key(), field.value());
  object["metadata"] = std::move(metadata);

  json::Array files;
  for (const ModelFile& file : entry.files) {
    json::Object one;
    MirrorWriter file_writer(one);
    visit_file(file_writer, file);
    drop_empty(one, kFileMayLack);
    if (!file.damaged) one.erase("damaged");
    files.emplace_back(std::move(one));
  }
  if (!files.empty()) object["files"] = std::move(files);
  for (const auto& field : entry.unknown) object.emplace(field.key(), field.value());
  return object;
}

Result<ModelEntry> parse_model_entry(const json::Value& value, std::string_view what) {
  const json::Object* object = value.if_object();
  if (object == nullptr) {
    return Error{ErrorCode::Corrupt,
                 fmt::format("{}: expected an object, found {}", what, json::kind_name(value))};
  }
  json::FieldReader reader(*object);
  ModelEntry entry;
  MirrorReader mirror(reader);
  visit_entry(mirror, entry);
  read_size(reader, entry);
  if (!is_model_id(entry.id)) {
    reader.fail("id", "1..128 of [A-Za-z0-9._-]",
                entry.id.empty() ? "is missing"
                                 : "must be 1 to 128 letters, digits, '.', '_' or '-', not " +
                                       base::quoted(entry.id));
  }
  if (const json::Object* metadata = reader.optional_object("metadata")) {
    json::FieldReader metadata_reader(*metadata, "metadata.");
    MirrorReader metadata_mirror(metadata_reader);
    visit_metadata(metadata_mirror, entry);
    metadata_reader.ignore_others();
    reader.add(metadata_reader.finish());
    entry.unknown_metadata = other_fields(*metadata, kMetadataFields);
  }
  if (const json::Array* files = reader.optional_array("files")) read_files(reader, *files, entry);
  entry.unknown = other_fields(*object, kEntryFields);
  reader.ignore_others();
  const std::vector<json::FieldError> errors = reader.finish();
  if (errors.empty()) return entry;
  return Error{ErrorCode::Corrupt,
               fmt::format("{}: {} {}", what, errors[0].field, errors[0].message)};
}

}  // namespace llorch::contract
