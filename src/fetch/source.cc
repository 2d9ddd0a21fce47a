#include "fetch/source.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "base/file.h"
#include "base/process.h"
#include "base/utf8.h"
#include "fetch/source_providers.h"
#include "http/url.h"

namespace llorch::fetch {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPublicHub = "https://huggingface.co";
constexpr std::size_t kTokenBytesMax = 4096;

std::string text_of(const base::Environment& environment, const char* name) {
  const char* value = environment(name);
  return value != nullptr ? value : "";
}

std::string trimmed(std::string text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; };
  while (!text.empty() && is_space(text.back())) text.pop_back();
  while (!text.empty() && is_space(text.front())) text.erase(text.begin());
  return text;
}

// $HF_TOKEN, or what `hf auth login` left behind.
std::string find_hf_token(const base::Environment& environment) {
  if (std::string token = trimmed(text_of(environment, "HF_TOKEN")); !token.empty()) return token;
  fs::path file = text_of(environment, "HF_TOKEN_PATH");
  if (file.empty()) {
    fs::path home = text_of(environment, "HF_HOME");
    const std::string cache = text_of(environment, "XDG_CACHE_HOME");
    const std::string user = text_of(environment, "HOME");
    if (home.empty() && !cache.empty()) home = fs::path(cache) / "huggingface";
    if (home.empty() && !user.empty()) home = fs::path(user) / ".cache" / "huggingface";
    if (home.empty()) return {};
    file = home / "token";
  }
  const Result<std::string> text = base::read_text_file(file, kTokenBytesMax);
  return text.ok() ? trimmed(*text) : std::string();
}

Error not_a_source(const ModelRef& ref) {
  return {
      ErrorCode::InvalidArgument,
      fmt::format("{} is the name of a catalog entry, not of a source", base::quoted(ref.text()))};
}

// Used where it lies: nothing is asked and nothing copied.
Result<ModelSource> resolve_file(const ModelRef& ref) {
  std::error_code error;
  if (!fs::exists(ref.location, error))
    return Error{ErrorCode::NotFound, fmt::format("{} is not there", base::quoted(ref.location))};
  ModelSource source;
  source.ref = ref;
  RemoteFile file;
  file.path = fs::path(ref.location).filename().string();
  file.url = "file:" + ref.location;
  source.files.push_back(std::move(file));
  return source;
}

}  // namespace

SourceOptions source_options(const base::Environment& environment) {
  SourceOptions options;
  options.hf_endpoint = text_of(environment, "HF_ENDPOINT");
  if (options.hf_endpoint.empty()) options.hf_endpoint = kPublicHub;
  while (options.hf_endpoint.ends_with('/')) options.hf_endpoint.pop_back();
  options.hf_token = find_hf_token(environment);
  options.npm_program = base::find_program("npm", text_of(environment, "PATH"));
  options.ca_file = text_of(environment, "SSL_CERT_FILE");
  if (options.ca_file.empty()) options.ca_file = find_ca_file("/");
  return options;
}

std::string find_ca_file(const fs::path& root) {
  // Debian and Arch; Fedora and RHEL, twice; openSUSE; what is left.
  for (const char* place : {"etc/ssl/certs/ca-certificates.crt", "etc/pki/tls/certs/ca-bundle.crt",
                            "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
                            "etc/ssl/ca-bundle.pem", "etc/ssl/cert.pem"}) {
    std::error_code ignored;
    if (fs::exists(root / place, ignored)) return (root / place).string();
  }
  return "";
}

Result<TextAnswer> ask(FetchRequest request, const SourceOptions& options,
                       const std::stop_token& stop, bool head_only) {
  TextRequest text;
  text.request = std::move(request);
  text.request.headers_for_url = text.request.url;
  text.max_bytes = kMetadataBytesMax;
  text.head_only = head_only;
  text.deadline = options.request_timeout;
  text.on_wait = options.on_wait;
  text.wait_shown = options.wait_shown;
  const FetchOptions fetch{.connect_timeout = options.connect_timeout,
                           .stall_timeout = options.request_timeout,
                           .ca_file = options.ca_file};
  return fetch_text(text, fetch, options.retry, stop);
}

bool is_private_way(const std::string& url) {
  const std::string origin = origin_of(url);
  if (origin.starts_with("https://")) return true;
  constexpr std::string_view kScheme = "http://";
  if (!origin.starts_with(kScheme)) return false;
  const std::string_view host =
      std::string_view(origin).substr(kScheme.size(), origin.rfind(':') - kScheme.size());
  return http::is_loopback(host);
}

Result<ModelSource> resolve_source(const ModelRef& ref, const SourceOptions& options,
                                   std::stop_token stop) {
  switch (ref.provider) {
    case Provider::HuggingFace:
      return resolve_hub(ref, options, stop);
    case Provider::Npm:
      return resolve_npm(ref, options, stop);
    case Provider::Https:
      return resolve_web(ref, options, stop);
    case Provider::File:
      return resolve_file(ref);
    case Provider::CatalogId:
      break;
  }
  return not_a_source(ref);
}

Result<std::string> newest_revision(const ModelRef& ref, const SourceOptions& options,
                                    std::stop_token stop) {
  switch (ref.provider) {
    case Provider::HuggingFace:
      return newest_hub_revision(ref, options, stop);
    case Provider::Npm:
      return newest_npm_revision(ref, options, stop);
    case Provider::Https:
      return newest_web_revision(ref, options, stop);
    case Provider::File:
      return std::string();
    case Provider::CatalogId:
      break;
  }
  return not_a_source(ref);
}

}  // namespace llorch::fetch
