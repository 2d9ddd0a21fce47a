#include "fetch/neighbour.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/json_fields.h"
#include "base/utf8.h"
#include "contract/default_ports.h"
#include "contract/error_table.h"
#include "contract/model_entry.h"
#include "fetch/chunks.h"
#include "fetch/fetch_text.h"

namespace llorch::fetch {
namespace {

constexpr int kAttemptsMax = 2;  // a host that is off must not keep the others waiting
constexpr std::size_t kManifestBytesMax = std::size_t{64} << 20;
constexpr std::size_t kTextBytesMax = 4096;  // of the reference and the revision

bool is_host_name(std::string_view text) {
  return !text.empty() && text.size() <= 255 && text[0] != '-' &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                  c == '.' || c == '-' || c == '_';
         });
}

bool is_bracketed_address(std::string_view text) {
  return text.size() > 2 && text.front() == '[' && text.back() == ']' &&
         std::all_of(text.begin() + 1, text.end() - 1, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F') ||
                  c == ':' || c == '.';
         });
}

bool is_port(std::string_view text) {
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() && port > 0 && port < 65536;
}

Error refusal(const Neighbour& neighbour, std::string_view model_id, const TextAnswer& answer) {
  const Result<contract::ErrorReport> report = contract::parse_error_body(answer.body);
  const std::string said = report.ok() ? base::quoted(report->error.message)
                                       : fmt::format("status {}", answer.head.status);
  if (answer.head.status == 401 || answer.head.status == 403)
    return {ErrorCode::Unauthorized,
            fmt::format("{} does not accept {} ({}): set LLORCH_TOKEN to that pool's token",
                        neighbour.url,
                        neighbour.token.empty() ? "a request without a token" : "our token", said)};
  const ErrorCode code = answer.head.status == 404   ? ErrorCode::NotFound
                         : answer.head.status == 409 ? ErrorCode::Conflict
                                                     : ErrorCode::Unavailable;
  return {code, fmt::format("{} does not give {}: {}", neighbour.url, model_id, said)};
}

Result<ModelSource> parse_manifest(const Neighbour& neighbour, std::string_view model_id,
                                   std::string_view text) {
  const std::string what = fmt::format("the manifest of {} from {}", model_id, neighbour.url);
  const Result<json::Value> parsed = json::parse(text, {.max_bytes = kManifestBytesMax});
  if (!parsed.ok()) return Error{ErrorCode::Corrupt, parsed.error().in(what).message};
  const json::Object* object = parsed->if_object();
  if (object == nullptr) return Error{ErrorCode::Corrupt, what + " is not an object"};
  json::FieldReader reader(*object);
  const std::string id = reader.required_string("id");
  const std::string ref = reader.optional_string("ref", {0, kTextBytesMax}).value_or("");
  const std::string revision = reader.optional_string("revision", {0, kTextBytesMax}).value_or("");
  const json::Array* list = reader.required_array("files");
  for (const auto& field : *object) reader.ignore(json::view(field.key()));
  if (const auto errors = reader.finish(); !errors.empty())
    return Error{ErrorCode::Corrupt,
                 fmt::format("{}: {} {}", what, errors[0].field, errors[0].message)};
  if (id != model_id)
    return Error{ErrorCode::Corrupt, fmt::format("{} is that of {}", what, base::quoted(id))};
  Result<std::vector<FileChunks>> files = parse_chunk_list(*list, what);
  if (!files.ok()) return files.error();
  if (files->empty()) return Error{ErrorCode::Corrupt, what + " names no file"};

  ModelSource source;
  source.revision = revision;
  // Only what says where the model came from in the first place: a reference that makes no sense
  // here is as good as none.
  if (const Result<ModelRef> parsed_ref = parse_model_ref(ref); parsed_ref.ok())
    source.ref = *parsed_ref;
  for (std::size_t i = 0; i < files->size(); ++i) {
    FileChunks& file = (*files)[i];
    RemoteFile remote;
    remote.path = std::move(file.path);
    remote.url = fmt::format("{}/v2/models/{}/files/{}", neighbour.url, model_id, i);
    if (!neighbour.token.empty())
      remote.headers.emplace_back("Authorization", "Bearer " + neighbour.token);
    remote.size = file.size;
    remote.sha256 = std::move(file.sha256);
    remote.chunk_sha256 = std::move(file.chunks);
    remote.chunk_bytes = file.chunk_bytes;
    source.files.push_back(std::move(remote));
  }
  return source;
}

}  // namespace

Result<Neighbour> parse_neighbour(std::string_view text, std::string token) {
  std::string_view rest = text;
  std::string_view scheme = "http://";
  for (const std::string_view known : {"http://", "https://"}) {
    if (!rest.starts_with(known)) continue;
    scheme = known;
    rest.remove_prefix(known.size());
  }
  if (rest.ends_with('/')) rest.remove_suffix(1);
  const std::size_t bracket = rest.rfind(']');
  const std::size_t colon = rest.find(':', bracket == std::string_view::npos ? 0 : bracket);
  const std::string_view host = rest.substr(0, colon);
  const bool has_port = colon != std::string_view::npos;
  if ((!is_host_name(host) && !is_bracketed_address(host)) ||
      (has_port && !is_port(rest.substr(colon + 1))))
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} is not a host: expected HOST, HOST:PORT or http://HOST:PORT",
                             base::quoted(text))};
  const bool is_token =
      token.size() <= kTextBytesMax && std::all_of(token.begin(), token.end(), [](char c) {
        return c > ' ' && c < '\x7F';  // what a header can hold, in one word
      });
  if (!is_token)
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("the token for {} has characters that no token has: expected printable "
                    "ASCII without spaces",
                    base::quoted(text))};
  return Neighbour{.url = has_port ? fmt::format("{}{}", scheme, rest)
                                   : fmt::format("{}{}:{}", scheme, rest, contract::kPoolPort),
                   .token = std::move(token)};
}

Result<ModelSource> resolve_neighbour(const Neighbour& neighbour, std::string_view model_id,
                                      const SourceOptions& options, std::stop_token stop) {
  if (!contract::is_model_id(model_id))
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} is not a model id", base::quoted(model_id))};
  TextRequest request;
  request.request.url = fmt::format("{}/v2/models/{}/manifest", neighbour.url, model_id);
  request.request.headers_for_url = request.request.url;
  if (!neighbour.token.empty())
    request.request.headers.emplace_back("Authorization", "Bearer " + neighbour.token);
  request.max_bytes = kManifestBytesMax;
  request.deadline = options.request_timeout;
  const FetchOptions fetch{.connect_timeout = options.connect_timeout,
                           .stall_timeout = options.request_timeout,
                           .ca_file = options.ca_file};
  RetryPolicy retry = options.retry;
  retry.max_attempts = std::min(retry.max_attempts, kAttemptsMax);
  const Result<TextAnswer> answer = fetch_text(request, fetch, retry, std::move(stop));
  if (!answer.ok()) return answer.error();
  if (answer->head.status != 200) return refusal(neighbour, model_id, *answer);
  return parse_manifest(neighbour, model_id, answer->body);
}

}  // namespace llorch::fetch
