#include "fetch/model_ref.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/utf8.h"
#include "contract/model_entry.h"
#include "http/url.h"

namespace llorch::fetch {
namespace {

constexpr std::size_t kRefBytesMax = 4096;
constexpr std::size_t kNameBytesMax = 96;      // of an organisation or a repository
constexpr std::size_t kPackageBytesMax = 214;  // npm's own limit
constexpr std::size_t kRevisionBytesMax = 128;
constexpr std::string_view kFileMark = "::file=";
constexpr std::string_view kForms =
    "hf:org/repo[@revision][::file=path], npm:package[@version][::file=path], https://…, "
    "file:/absolute/path or a catalog id";

bool is_alphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool consists_of(std::string_view text, std::string_view others, std::size_t max_bytes) {
  return !text.empty() && text.size() <= max_bytes &&
         std::all_of(text.begin(), text.end(), [&](char c) {
           return is_alphanumeric(c) || others.find(c) != std::string_view::npos;
         });
}

Error refuse(std::string_view text, std::string_view why) {
  return {ErrorCode::InvalidArgument,
          fmt::format("{} is no model reference: {}", base::quoted(text), why)};
}

bool is_hub_name(std::string_view name) {
  return consists_of(name, "._-", kNameBytesMax) && is_alphanumeric(name.front()) &&
         name.find("..") == std::string_view::npos;
}

bool is_repository(std::string_view location) {
  const std::size_t slash = location.find('/');
  return slash != std::string_view::npos && is_hub_name(location.substr(0, slash)) &&
         is_hub_name(location.substr(slash + 1));
}

// A branch, a tag, a commit or "refs/pr/1".
bool is_revision(std::string_view text) {
  return consists_of(text, "._-/", kRevisionBytesMax) && is_alphanumeric(text.front()) &&
         contract::is_relative_file_path(text);
}

bool is_package(std::string_view location) {
  if (location.size() > kPackageBytesMax) return false;
  const auto is_part = [](std::string_view part) {
    return consists_of(part, "._~-", kPackageBytesMax) && part.front() != '.' &&
           part.front() != '_';
  };
  if (!location.starts_with('@')) return is_part(location);
  const std::size_t slash = location.find('/');
  return slash != std::string_view::npos && is_part(location.substr(1, slash - 1)) &&
         is_part(location.substr(slash + 1));
}

// Behind "hf:" or "npm:": location[@revision][::file=path].
Result<ModelRef> parse_repository(Provider provider, std::string_view body, std::string_view text) {
  ModelRef ref{.provider = provider, .location = {}, .revision = {}, .file = {}};
  const bool is_hub = provider == Provider::HuggingFace;
  if (const std::size_t mark = body.find(kFileMark); mark != std::string_view::npos) {
    ref.file = body.substr(mark + kFileMark.size());
    body = body.substr(0, mark);
    if (!contract::is_relative_file_path(ref.file)) {
      return refuse(text,
                    "behind ::file= stands a path inside the repository, without a slash in "
                    "front and without \"..\", or the name of a quantisation (Q4_K_M)");
    }
  }
  // An npm scope begins with '@' too.
  if (const std::size_t at = body.find('@', 1); at != std::string_view::npos) {
    ref.revision = body.substr(at + 1);
    body = body.substr(0, at);
    const bool good =
        is_hub ? is_revision(ref.revision) : consists_of(ref.revision, "._+-", kRevisionBytesMax);
    if (!good) {
      return refuse(text, is_hub ? "behind '@' stands a branch, a tag or a commit"
                                 : "behind '@' stands a version (1.2.3) or a tag (latest)");
    }
  }
  ref.location = body;
  if (is_hub ? is_repository(body) : is_package(body)) return ref;
  if (is_hub && body.find(':') != std::string_view::npos)
    return refuse(text,
                  "a file inside a repository is named with ::file=, as in "
                  "hf:org/repo::file=model.gguf");
  return refuse(text, is_hub ? "expected hf:org/repo, both of letters, digits, '.', '_' and '-'"
                             : "expected npm:package or npm:@scope/package");
}

struct Authority {
  std::string_view host;
  bool valid = false;
};

// host[:port] of what stands behind "//".
Authority split_authority(std::string_view rest) {
  std::string_view authority = rest.substr(0, rest.find_first_of("/?#"));
  if (authority.find('@') != std::string_view::npos) return {};
  std::string_view port;
  if (authority.starts_with('[')) {
    const std::size_t end = authority.find(']');
    if (end == std::string_view::npos) return {};
    port = authority.substr(end + 1);
    authority = authority.substr(0, end + 1);
  } else if (const std::size_t colon = authority.find(':'); colon != std::string_view::npos) {
    port = authority.substr(colon);
    authority = authority.substr(0, colon);
  }
  const bool good_port =
      port.empty() || (port.size() >= 2 && port.size() <= 6 && port.front() == ':' &&
                       port.find_first_not_of("0123456789", 1) == std::string_view::npos);
  const bool good_host = authority.starts_with('[') ? consists_of(authority, "[]:.", kNameBytesMax)
                                                    : consists_of(authority, ".-_", 253);
  return {authority, good_port && good_host};
}

Result<ModelRef> parse_url(std::string_view text) {
  const bool is_plain = text.starts_with("http://");
  const std::string_view rest = text.substr(text.find("//") + 2);
  const bool printable =
      std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7F; });
  if (!printable) return refuse(text, "a URL is printable ASCII: escape the rest as %XX");
  const Authority authority = split_authority(rest);
  if (!authority.valid) {
    return refuse(text,
                  "expected https://host[:port]/path without a user name or a password, which "
                  "would be kept in the catalog");
  }
  if (is_plain && !http::is_loopback(authority.host)) {
    return refuse(text, "plain http is for this machine only (localhost, 127.0.0.1); use https://");
  }
  return ModelRef{
      .provider = Provider::Https, .location = std::string(text), .revision = {}, .file = {}};
}

Result<ModelRef> parse_file(std::string_view path, std::string_view text) {
  if (path.starts_with("//")) path.remove_prefix(2);  // file:///path, with an empty host
  while (path.ends_with('/')) path.remove_suffix(1);
  if (!path.starts_with('/') || !contract::is_relative_file_path(path.substr(1))) {
    return refuse(text, "expected file:/absolute/path without \"..\"");
  }
  return ModelRef{
      .provider = Provider::File, .location = std::string(path), .revision = {}, .file = {}};
}

}  // namespace

std::string ModelRef::text() const {
  std::string text;
  if (provider == Provider::HuggingFace) text = "hf:";
  if (provider == Provider::Npm) text = "npm:";
  if (provider == Provider::File) text = "file:";
  text += location;
  if (!revision.empty()) text += "@" + revision;
  if (!file.empty()) text += std::string(kFileMark) + file;
  return text;
}

Result<ModelRef> parse_model_ref(std::string_view text) {
  if (text.size() > kRefBytesMax) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("a model reference has at most {} bytes, this one has {}",
                             kRefBytesMax, text.size())};
  }
  if (text.starts_with("hf:")) return parse_repository(Provider::HuggingFace, text.substr(3), text);
  if (text.starts_with("npm:")) return parse_repository(Provider::Npm, text.substr(4), text);
  if (text.starts_with("https://") || text.starts_with("http://")) return parse_url(text);
  if (text.starts_with("file:")) return parse_file(text.substr(5), text);
  if (contract::is_model_id(text)) {
    return ModelRef{
        .provider = Provider::CatalogId, .location = std::string(text), .revision = {}, .file = {}};
  }
  if (text.starts_with('/'))
    return refuse(text, fmt::format("a file of this machine is written file:{}", text));
  // org/repo, as the hub itself writes it; a scheme that nobody knows has its ':' before the '/'.
  const std::size_t slash = text.find('/');
  if (slash != std::string_view::npos && text.substr(0, slash).find(':') == std::string_view::npos)
    return parse_repository(Provider::HuggingFace, text, text);
  return refuse(text, fmt::format("expected {}", kForms));
}

}  // namespace llorch::fetch
