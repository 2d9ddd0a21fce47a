#include "api/openapi.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string>
#include <utility>

#include "api/answers.h"
#include "base/check.h"
#include "base/json_fields.h"
#include "base/version.h"
#include "contract/error_table.h"

namespace llorch::api {
namespace {

json::Value ref(std::string_view schema) {
  return json::Object{{"$ref", fmt::format("#/components/schemas/{}", schema)}};
}

json::Object content(std::string_view type, json::Value schema) {
  return {{type, json::Object{{"schema", std::move(schema)}}}};
}

std::string method_key(http::Method method) {
  std::string key(http::method_name(method));
  std::transform(key.begin(), key.end(), key.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return key;
}

json::Object parameter(std::string_view name, std::string_view in, bool is_required,
                       json::Value schema) {
  return {{"name", name}, {"in", in}, {"required", is_required}, {"schema", std::move(schema)}};
}

json::Array parameters_of(const EndpointText& endpoint) {
  json::Array all;
  const json::Object text{{"type", "string"}};
  const std::string_view path = endpoint.path;
  for (std::size_t at = path.find('{'); at != std::string_view::npos; at = path.find('{', at + 1))
    all.push_back(parameter(path.substr(at + 1, path.find('}', at) - at - 1), "path", true, text));
  if (!endpoint.required_header.empty())
    all.push_back(parameter(endpoint.required_header, "header", true, text));
  if (endpoint.query == nullptr) return all;
  const json::Object query = endpoint.query();
  for (const auto& entry : query)
    all.push_back(parameter(json::view(entry.key()), "query", false, entry.value()));
  return all;
}

json::Object success(const EndpointText& endpoint) {
  json::Object media;
  const json::Object text{{"type", "string"}};
  if (!endpoint.response_schema.empty())
    media = content("application/json", ref(endpoint.response_schema));
  if (!endpoint.stream_type.empty()) {
    media[endpoint.stream_type] =
        json::Object{{"schema", endpoint.stream_schema.empty() ? json::Value(text)
                                                               : ref(endpoint.stream_schema)}};
  }
  if (media.empty()) media = content("text/plain", text);
  return {{"description", endpoint.summary}, {"content", std::move(media)}};
}

json::Object operation(const EndpointText& endpoint) {
  json::Object out{{"summary", endpoint.summary}};
  if (json::Array all = parameters_of(endpoint); !all.empty()) out["parameters"] = std::move(all);
  if (!endpoint.request_schema.empty()) {
    out["requestBody"] =
        json::Object{{"required", !endpoint.is_body_optional},
                     {"content", content("application/json", ref(endpoint.request_schema))}};
  }
  json::Object responses{{fmt::format("{}", endpoint.status), success(endpoint)}};
  if (endpoint.path == "/health") responses["503"] = success(endpoint);
  responses["default"] =
      json::Object{{"description", "An error; the code says which."},
                   {"content", content("application/json", ref(endpoint.error_schema))}};
  out["responses"] = std::move(responses);
  return out;
}

json::Object paths_of(const std::vector<EndpointText>& endpoints) {
  json::Object paths;
  for (const EndpointText& endpoint : endpoints) {
    json::Value& path = paths[endpoint.path];
    if (!path.is_object()) path = json::Object();
    path.get_object()[method_key(endpoint.method)] = operation(endpoint);
  }
  return paths;
}

http::Task<Status> send(http::Response response, http::Responder& responder) {
  co_return co_await responder.send(std::move(response));
}

}  // namespace

json::Object make_document(DocumentParts parts) {
  parts.schemas["Error"] =
      contract::described_schema<contract::ErrorBody>(contract::SchemaOf::Answer);
  parts.schemas["Document"] =
      json::Object{{"type", "object"}, {"required", json::Array{"openapi", "info", "paths"}}};
  return {{"openapi", "3.1.0"},
          {"info", json::Object{{"title", parts.title},
                                {"version", base::version()},
                                {"description", parts.description}}},
          {"paths", paths_of(parts.endpoints)},
          {"components",
           json::Object{
               {"schemas", std::move(parts.schemas)},
               {"securitySchemes",
                json::Object{{"bearer", json::Object{{"type", "http"}, {"scheme", "bearer"}}}}}}}};
}

std::optional<http::Response> refuse_parameters(const EndpointText& endpoint,
                                                const http::Request& request) {
  // An endpoint that has some reads them itself.
  if (request.query.empty() || endpoint.takes_any_query || endpoint.query != nullptr)
    return std::nullopt;
  const json::Object query = read_query(request);
  return failures_response(request, json::FieldReader(query).finish());
}

http::Handler with_known_parameters(const EndpointText& endpoint, http::Handler handler) {
  return [endpoint, handler = std::move(handler)](const http::Request& request,
                                                  http::Responder& responder) {
    std::optional<http::Response> refusal = refuse_parameters(endpoint, request);
    return refusal ? send(std::move(*refusal), responder) : handler(request, responder);
  };
}

}  // namespace llorch::api
