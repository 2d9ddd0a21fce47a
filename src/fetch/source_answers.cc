#include "fetch/source_answers.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/utf8.h"
#include "contract/model_entry.h"
#include "fetch/chunks.h"

namespace llorch::fetch {
namespace {

constexpr std::size_t kLicenseBytesMax = 100;
constexpr std::size_t kVersionBytesMax = 256;
constexpr std::int64_t kFileBytesMax = std::int64_t{1} << 42;

bool is_hex(std::string_view text, std::size_t digits) {
  return text.size() == digits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::string_view text_of(const json::Object& object, std::string_view key) {
  const json::Value* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? json::view(value->get_string())
                                                : std::string_view();
}

const json::Object* object_of(const json::Object& object, std::string_view key) {
  const json::Value* value = object.if_contains(key);
  return value != nullptr ? value->if_object() : nullptr;
}

std::string clean_license(std::string_view text) {
  return text.size() <= kLicenseBytesMax ? base::to_valid_utf8(text) : std::string();
}

Error nonsense(std::string_view what) {
  return {ErrorCode::Corrupt, fmt::format("the answer makes no sense: {}", what)};
}

// A string, or the first of a list of them.
std::string license_of(const json::Object& info) {
  if (const json::Object* card = object_of(info, "cardData")) {
    if (const auto text = text_of(*card, "license"); !text.empty()) return clean_license(text);
    const json::Value* list = card->if_contains("license");
    if (list != nullptr && list->is_array() && !list->get_array().empty() &&
        list->get_array()[0].is_string())
      return clean_license(json::view(list->get_array()[0].get_string()));
  }
  const json::Value* tags = info.if_contains("tags");
  if (tags == nullptr || !tags->is_array()) return {};
  constexpr std::string_view kMark = "license:";
  for (const json::Value& tag : tags->get_array()) {
    if (!tag.is_string()) continue;
    const std::string_view text = json::view(tag.get_string());
    if (text.starts_with(kMark)) return clean_license(text.substr(kMark.size()));
  }
  return {};
}

Result<ListedFile> parse_tree_entry(const json::Object& entry) {
  ListedFile file;
  file.path = text_of(entry, "path");
  const json::Object* lfs = object_of(entry, "lfs");
  const json::Value* size = (lfs != nullptr ? *lfs : entry).if_contains("size");
  const std::int64_t* bytes = size != nullptr ? size->if_int64() : nullptr;
  if (bytes == nullptr || *bytes < 0 || *bytes > kFileBytesMax)
    return nonsense(fmt::format("the size of {}", base::quoted(file.path)));
  file.size = *bytes;
  const std::string_view oid = text_of(lfs != nullptr ? *lfs : entry, "oid");
  const bool is_right = lfs != nullptr ? is_sha256_hex(oid) : is_hex(oid, 40);
  if (!is_right) return nonsense(fmt::format("the hash of {}", base::quoted(file.path)));
  (lfs != nullptr ? file.sha256 : file.git_sha1) = oid;
  return file;
}

}  // namespace

Result<HubInfo> parse_hub_info(std::string_view text) {
  const Result<json::Value> parsed = json::parse(text);
  if (!parsed.ok()) return Error{ErrorCode::Corrupt, parsed.error().message};
  const json::Object* object = parsed->if_object();
  if (object == nullptr) return nonsense("not an object");
  HubInfo info;
  info.commit = text_of(*object, "sha");
  if (!is_hex(info.commit, 40)) return nonsense("no commit in \"sha\"");
  info.license = license_of(*object);
  const json::Value* gated = object->if_contains("gated");
  info.gated = gated != nullptr && (gated->is_string() || (gated->is_bool() && gated->get_bool()));
  return info;
}

Result<std::vector<ListedFile>> parse_hub_tree(std::string_view text) {
  const Result<json::Value> parsed = json::parse(text);
  if (!parsed.ok()) return Error{ErrorCode::Corrupt, parsed.error().message};
  const json::Array* array = parsed->if_array();
  if (array == nullptr) return nonsense("not a list of files");
  std::vector<ListedFile> files;
  for (const json::Value& value : *array) {
    const json::Object* entry = value.if_object();
    if (entry == nullptr) return nonsense("an entry that is no object");
    if (text_of(*entry, "type") != "file") continue;
    // What could not be the name of a file here is left out, and so never asked for.
    if (!contract::is_relative_file_path(text_of(*entry, "path"))) continue;
    Result<ListedFile> file = parse_tree_entry(*entry);
    if (!file.ok()) return file.error();
    files.push_back(file.take());
  }
  return files;
}

std::string next_link(std::string_view header) {
  // Each: <URL>; rel="next"; …, between commas. A URL holds no '<' or '>'.
  while (!header.empty()) {
    const std::size_t open = header.find('<');
    const std::size_t close = header.find('>', open);
    if (open == std::string_view::npos || close == std::string_view::npos) return {};
    const std::string_view url = header.substr(open + 1, close - open - 1);
    header.remove_prefix(close + 1);
    const std::string_view attributes = header.substr(0, header.find('<'));
    if (attributes.find("rel=\"next\"") != std::string_view::npos ||
        attributes.find("rel=next") != std::string_view::npos)
      return std::string(url);
  }
  return {};
}

Result<NpmVersion> parse_npm_package(std::string_view text, std::string_view wanted) {
  const Result<json::Value> parsed = json::parse(text);
  if (!parsed.ok()) return Error{ErrorCode::Corrupt, parsed.error().message};
  const json::Object* object = parsed->if_object();
  if (object == nullptr) return nonsense("not an object");
  const json::Object* versions = object_of(*object, "versions");
  if (versions == nullptr) return nonsense("no \"versions\"");
  NpmVersion result;
  result.version = wanted.empty() ? "latest" : wanted;
  if (const json::Object* tags = object_of(*object, "dist-tags")) {
    if (const auto tagged = text_of(*tags, result.version); !tagged.empty())
      result.version = tagged;
  }
  const json::Object* version = object_of(*versions, result.version);
  if (version == nullptr || result.version.size() > kVersionBytesMax) {
    return Error{ErrorCode::NotFound,
                 fmt::format("there is no version or tag {}",
                             base::quoted(wanted.empty() ? "latest" : wanted))};
  }
  result.license = clean_license(text_of(*version, "license"));
  const json::Object* dist = object_of(*version, "dist");
  if (dist == nullptr) return nonsense("no \"dist\"");
  result.tarball = text_of(*dist, "tarball");
  // "sha1-… sha512-…": the strongest is the one that counts.
  std::string_view integrity = text_of(*dist, "integrity");
  const std::size_t strong = integrity.find("sha512-");
  if (strong != std::string_view::npos) {
    integrity.remove_prefix(strong);
    result.integrity = integrity.substr(0, integrity.find(' '));
  }
  if (result.tarball.empty()) return nonsense("no \"dist.tarball\"");
  if (result.integrity.empty()) {
    return Error{ErrorCode::Unsupported,
                 fmt::format("version {} publishes no sha512 to check it with",
                             base::quoted(result.version))};
  }
  return result;
}

}  // namespace llorch::fetch
