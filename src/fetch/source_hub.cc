// Hugging Face's hub, or a mirror that speaks like it.
#include <fmt/format.h>

#include <algorithm>

#include "base/utf8.h"
#include "fetch/choose_files.h"
#include "fetch/source_answers.h"
#include "fetch/source_providers.h"
#include "http/url.h"

namespace llorch::fetch {
namespace {

constexpr int kTreePagesMax = 100;
constexpr std::size_t kTreeFilesMax = 100'000;

// Every part escaped, the slashes kept.
std::string escaped_path(std::string_view path) {
  std::string result;
  while (true) {
    const std::size_t slash = path.find('/');
    result += http::percent_encode(path.substr(0, slash));
    if (slash == std::string_view::npos) return result;
    result += '/';
    path.remove_prefix(slash + 1);
  }
}

// One repository as it is asked for.
struct Hub {
  const ModelRef& ref;
  const SourceOptions& options;
  const std::stop_token& stop;

  std::string page() const { return fmt::format("{}/{}", options.hf_endpoint, ref.location); }
  bool sends_token() const {
    return !options.hf_token.empty() && is_private_way(options.hf_endpoint);
  }
  HeaderFields headers() const {
    if (!sends_token()) return {};
    return {{"Authorization", "Bearer " + options.hf_token}};
  }
  std::string api(std::string_view what, std::string_view revision) const {
    return fmt::format("{}/api/models/{}/{}/{}", options.hf_endpoint, escaped_path(ref.location),
                       what, http::percent_encode(revision));
  }

  std::string access_hint(bool gated) const;
  Error refusal(const TextAnswer& answer) const;
  Result<TextAnswer> get(const std::string& url) const;
  Result<HubInfo> info() const;
  Result<std::vector<ListedFile>> tree(const std::string& commit) const;
};

std::string Hub::access_hint(bool gated) const {
  const std::string_view token =
      sends_token() ? "the token that was sent (HF_TOKEN) may not read it"
      : options.hf_token.empty()
          ? "no token was sent: set HF_TOKEN to one that may read it"
          : "HF_TOKEN was not sent, because HF_ENDPOINT is plain http: use https";
  if (!gated) return std::string(token);
  return fmt::format("{} is gated: accept its licence on {} first; {}", ref.location, page(),
                     token);
}

Error Hub::refusal(const TextAnswer& answer) const {
  if (origin_of(answer.head.url) != origin_of(options.hf_endpoint))
    return refused_elsewhere(options.hf_endpoint, answer.head, answer.body);
  const std::string_view code = answer.head.find("x-error-code");
  const int status = answer.head.status;
  const std::string said = status_error(answer.head, answer.body).message;
  const std::string repository = base::quoted(ref.location);
  if (code == "RevisionNotFound") {
    return {ErrorCode::NotFound,
            fmt::format("{} has no revision {}: {}", repository, base::quoted(ref.revision), said)};
  }
  if (code == "GatedRepo" || (status == 403 && code.empty()))
    return {status == 401 ? ErrorCode::Unauthorized : ErrorCode::Forbidden,
            fmt::format("{}; {}", said, access_hint(true))};
  if (status == 401 || status == 403 || status == 404) {
    // The hub hides private repositories: what is not there and what is not ours look the same.
    const ErrorCode kind = status == 401   ? ErrorCode::Unauthorized
                           : status == 403 ? ErrorCode::Forbidden
                                           : ErrorCode::NotFound;
    return {kind,
            fmt::format("{}; the repository {} does not exist, or it is private: check its name on "
                        "{}; {}",
                        said, repository, page(), access_hint(false))};
  }
  return status_error(answer.head, answer.body);
}

Result<TextAnswer> Hub::get(const std::string& url) const {
  FetchRequest request;
  request.url = url;
  request.headers = headers();
  Result<TextAnswer> answer = ask(std::move(request), options, stop);
  if (answer.ok() && answer->head.status != 200) return refusal(*answer);
  return answer;
}

Result<HubInfo> Hub::info() const {
  const std::string url = api("revision", ref.revision.empty() ? "main" : ref.revision);
  const Result<TextAnswer> answer = get(url);
  if (!answer.ok()) return answer.error();
  Result<HubInfo> parsed = parse_hub_info(answer->body);
  if (!parsed.ok()) return parsed.error().in(shown_url(url));
  return parsed;
}

Result<std::vector<ListedFile>> Hub::tree(const std::string& commit) const {
  std::vector<ListedFile> files;
  std::string url = api("tree", commit) + "?recursive=true";
  for (int page_number = 0; !url.empty(); ++page_number) {
    if (page_number == kTreePagesMax || files.size() > kTreeFilesMax) {
      return Error{ErrorCode::TooLarge, fmt::format("{} lists more than {} files",
                                                    base::quoted(ref.location), files.size())};
    }
    const Result<TextAnswer> answer = get(url);
    if (!answer.ok()) return answer.error();
    Result<std::vector<ListedFile>> part = parse_hub_tree(answer->body);
    if (!part.ok()) return part.error().in(shown_url(url));
    std::move(part->begin(), part->end(), std::back_inserter(files));
    const std::string next = next_link(answer->head.find("link"));
    // The token goes along: never to another host.
    if (!next.empty() && origin_of(next) != origin_of(url)) {
      return Error{ErrorCode::Corrupt, fmt::format("{} continues at another host, {}",
                                                   shown_url(url), shown_url(next))};
    }
    url = next;
  }
  return files;
}

Result<HubInfo> checked_info(const Hub& hub) {
  if (origin_of(hub.options.hf_endpoint).empty()) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("HF_ENDPOINT is {}, expected an http or https URL",
                             base::quoted(hub.options.hf_endpoint))};
  }
  return hub.info();
}

}  // namespace

Result<ModelSource> resolve_hub(const ModelRef& ref, const SourceOptions& options,
                                const std::stop_token& stop) {
  const Hub hub{ref, options, stop};
  const Result<HubInfo> info = checked_info(hub);
  if (!info.ok()) return info.error();
  const Result<std::vector<ListedFile>> tree = hub.tree(info->commit);
  if (!tree.ok()) return tree.error();
  Result<ChosenFiles> chosen = choose_files(*tree, ref.file, ref.location);
  if (!chosen.ok()) return chosen.error();
  ModelSource source;
  source.ref = ref;
  source.ref.revision = info->commit;
  source.revision = info->commit;
  source.license = info->license;
  for (ListedFile& listed : chosen->files) {
    RemoteFile file;
    file.url = fmt::format("{}/resolve/{}/{}", hub.page(), info->commit, escaped_path(listed.path));
    file.path = listed.path.substr(chosen->folder.size());
    file.headers = hub.headers();
    file.refusal_hint = hub.access_hint(info->gated);
    file.size = listed.size;
    file.sha256 = std::move(listed.sha256);
    file.git_sha1 = std::move(listed.git_sha1);
    source.files.push_back(std::move(file));
  }
  return source;
}

Result<std::string> newest_hub_revision(const ModelRef& ref, const SourceOptions& options,
                                        const std::stop_token& stop) {
  const Result<HubInfo> info = checked_info({ref, options, stop});
  if (!info.ok()) return info.error();
  return info->commit;
}

}  // namespace llorch::fetch
