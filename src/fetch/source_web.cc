// One file by its URL.
#include <fmt/format.h>

#include "base/utf8.h"
#include "contract/model_entry.h"
#include "fetch/source_providers.h"
#include "http/url.h"

namespace llorch::fetch {
namespace {

// What a refusal of a plain address means; it is asked without any token.
std::string_view advice_for(int status) {
  if (status == 401 || status == 403)
    return "; plain addresses are asked without a token or a login: fetch the file by other means "
           "and register it (`llorch-pool models register ID --path FILE`), or name it by its hub "
           "(hf:OWNER/NAME), whose token HF_TOKEN is";
  if (status == 404 || status == 410) return "; there is no such file: check the address";
  return "";
}

// The file's head, by asking for its first byte: some servers know no HEAD.
Result<FetchHead> ask_head(const ModelRef& ref, const SourceOptions& options,
                           const std::stop_token& stop) {
  FetchRequest request;
  request.url = ref.location;
  request.range = ByteRange{0, 1};
  const Result<TextAnswer> answer = ask(std::move(request), options, stop, true);
  if (!answer.ok()) return answer.error();
  if (answer->head.status / 100 == 2) return answer->head;
  if (origin_of(answer->head.url) != origin_of(ref.location))
    return refused_elsewhere(ref.location, answer->head, answer->body);
  const Error said = status_error(answer->head, answer->body);
  return Error{said.code, fmt::format("{}{}", said.message, advice_for(answer->head.status))};
}

std::string revision_of(const FetchHead& head) {
  std::string_view revision = head.find("etag");
  if (revision.empty()) revision = head.find("last-modified");
  return base::to_valid_utf8(revision);
}

// "…/a/model%20x.gguf?y" → "model x.gguf".
Result<std::string> file_name_of(const std::string& url) {
  const std::string_view path = std::string_view(url).substr(0, url.find_first_of("?#"));
  const Result<std::string> name = http::percent_decode(path.substr(path.rfind('/') + 1));
  if (name.ok() && contract::is_relative_file_path(*name) && name->find('/') == std::string::npos)
    return *name;
  return Error{ErrorCode::InvalidArgument,
               fmt::format("{} does not end in the name of a file", shown_url(url))};
}

}  // namespace

Result<ModelSource> resolve_web(const ModelRef& ref, const SourceOptions& options,
                                const std::stop_token& stop) {
  Result<std::string> name = file_name_of(ref.location);
  if (!name.ok()) return name.error();
  const Result<FetchHead> head = ask_head(ref, options, stop);
  if (!head.ok()) return head.error();
  ModelSource source;
  source.ref = ref;
  source.revision = revision_of(*head);
  RemoteFile file;
  file.path = name.take();
  file.url = ref.location;
  const std::optional<ContentRange> range = parse_content_range(head->find("content-range"));
  file.size = range ? range->total : head->content_length();
  const std::string_view etag = head->find("etag");
  if (etag.starts_with('"')) file.etag = etag;
  source.files.push_back(std::move(file));
  return source;
}

Result<std::string> newest_web_revision(const ModelRef& ref, const SourceOptions& options,
                                        const std::stop_token& stop) {
  const Result<FetchHead> head = ask_head(ref, options, stop);
  if (!head.ok()) return head.error();
  return revision_of(*head);
}

}  // namespace llorch::fetch
