#include "contract/model_entry.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/utf8.h"

namespace llorch::contract {
namespace {

constexpr std::size_t kIdBytesMax = 128;
constexpr std::size_t kPathBytesMax = 1024;
constexpr std::size_t kFilesMax = 10'000;
constexpr double kBytesPerGb = 1e9;
constexpr double kSizeGbMax = 9e9;  // its bytes still fit 63 bits

// What the contract only allows is left out where nothing is known.
constexpr FieldRule kMayBeAbsent{.omit_empty = true};

template <class V, class T>
void visit_entry(V& v, T& entry) {
  v("id", entry.id);
  v("name", entry.name);
  v("path", entry.path);
  v("format", entry.format);
  v("architecture", entry.architecture);
  v("downloaded", entry.downloaded);
  v("backends", entry.backends);
  v("revision", entry.revision, kMayBeAbsent);
  v("updated_at", entry.updated_at, kMayBeAbsent);
}

template <class V, class T>
void visit_metadata(V& v, T& entry) {
  v("repo", entry.repo);
  v("context_length", entry.context_length, kMayBeAbsent);
  v("vocab_size", entry.vocab_size, kMayBeAbsent);
  v("parameters", entry.parameters, kMayBeAbsent);
  v("quantization", entry.quantization, kMayBeAbsent);
  v("license", entry.license, kMayBeAbsent);
  v("unsupported", entry.unsupported, kMayBeAbsent);
}

// The fields that `schema` does not know.
json::Object other_fields(const json::Object& object, const json::Object& schema) {
  const json::Object& known = schema.at("properties").get_object();
  json::Object others;
  for (const auto& field : object) {
    if (!known.contains(field.key())) others.emplace(field.key(), field.value());
  }
  return others;
}

double size_gb(std::int64_t bytes) {
  return std::round(static_cast<double>(bytes) / kBytesPerGb * 1000) / 1000;
}

bool is_sha256(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

void check_files(json::FieldReader& reader, const std::vector<ModelFile>& files) {
  for (std::size_t i = 0; i < files.size(); ++i) {
    const ModelFile& file = files[i];
    const std::string field = fmt::format("files[{}]", i);
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

template <class V, Described<ModelFile> T>
void describe(V& v, T& file) {
  v("path", file.path);
  v("size", file.size);
  v("sha256", file.sha256, {.omit_empty = true});
  v("modified_ms", file.modified_ms, {.omit_empty = true});
  v("changed_ns", file.changed_ns, {.omit_empty = true});
  v("inode", file.inode, {.omit_empty = true});
  v("damaged", file.damaged, {.omit_empty = true});
}

bool is_model_id(std::string_view text) {
  const auto is_alphanumeric = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  const auto is_word = [&](std::string_view word) {
    return !word.empty() && is_alphanumeric(word.front()) &&
           std::all_of(word.begin(), word.end(), [&](char c) {
             return is_alphanumeric(c) || c == '.' || c == '_' || c == '-';
           });
  };
  if (text.size() > kIdBytesMax) return false;
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return is_word(text);
  // "tinyllama:safetensors" is a variant of a name; "hf:repo" is a reference and no id.
  constexpr std::array<std::string_view, 5> kSchemes = {"hf", "npm", "file", "http", "https"};
  const std::string_view name = text.substr(0, colon);
  return std::find(kSchemes.begin(), kSchemes.end(), name) == kSchemes.end() && is_word(name) &&
         is_word(text.substr(colon + 1));
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
  json::Object object;
  FieldWriter writer(object);
  visit_entry(writer, entry);
  writer("size_gb", size_gb(entry.size_bytes));
  writer("size_bytes", entry.size_bytes);

  json::Object metadata;
  FieldWriter metadata_writer(metadata);
  visit_metadata(metadata_writer, entry);
  for (const auto& field : entry.unknown_metadata) metadata.emplace(field.key(), field.value());
  object["metadata"] = std::move(metadata);

  writer("files", entry.files, kMayBeAbsent);
  for (const auto& field : entry.unknown) object.emplace(field.key(), field.value());
  return object;
}

template <>
json::Object schema_of<ModelEntry>() {
  const ModelEntry entry;
  SchemaWriter metadata(SchemaOf::Answer);
  visit_metadata(metadata, entry);
  SchemaWriter writer(SchemaOf::Answer);
  visit_entry(writer, entry);
  writer("size_gb", 0.0);
  writer("size_bytes", entry.size_bytes);
  writer.add("metadata", metadata.finish(true));
  writer("files", entry.files, kMayBeAbsent);
  return writer.finish(true);
}

Result<ModelEntry> parse_model_entry(const json::Value& value, std::string_view what) {
  const json::Object* object = value.if_object();
  if (object == nullptr) {
    return Error{ErrorCode::Corrupt,
                 fmt::format("{}: expected an object, found {}", what, json::kind_name(value))};
  }
  static const json::Object schema = schema_of<ModelEntry>();
  json::FieldReader reader(*object);
  ModelEntry entry;
  FieldTaker taker(reader);
  visit_entry(taker, entry);
  read_size(reader, entry);
  if (!is_model_id(entry.id)) {
    reader.fail("id", "1..128 of [A-Za-z0-9._-]",
                entry.id.empty() ? "is missing"
                                 : "must be 1 to 128 letters, digits, '.', '_' or '-', a variant "
                                   "behind one ':' included, not " +
                                       base::quoted(entry.id));
  }
  if (const json::Object* metadata = reader.optional_object("metadata")) {
    json::FieldReader metadata_reader(*metadata, "metadata.");
    FieldTaker metadata_taker(metadata_reader);
    visit_metadata(metadata_taker, entry);
    metadata_reader.ignore_others();
    reader.add(metadata_reader.finish());
    entry.unknown_metadata =
        other_fields(*metadata, schema.at("properties").at("metadata").get_object());
  }
  taker("files", entry.files, {.max_items = kFilesMax});
  check_files(reader, entry.files);
  entry.unknown = other_fields(*object, schema);
  reader.ignore_others();
  const std::vector<json::FieldError> errors = reader.finish();
  if (errors.empty()) return entry;
  return Error{ErrorCode::Corrupt,
               fmt::format("{}: {} {}", what, errors[0].field, errors[0].message)};
}

}  // namespace llorch::contract
