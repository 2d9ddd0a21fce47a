#include "api/openapi.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/check.h"
#include "base/version.h"
#include "contract/error_table.h"

namespace llorch::api {
namespace {

constexpr std::string_view kErrorSchema =
    R"({"type":"object","required":["error"],"additionalProperties":false,"properties":{"error":{"type":"object",
"required":["code","message","retriable","correlation_id"],"additionalProperties":false,"properties":{
"code":{"type":"string"},"message":{"type":"string"},"retriable":{"type":"boolean"},"correlation_id":{"type":"string"},
"errors":{"type":"array","items":{"type":"object","required":["field","constraint","message"],"additionalProperties":false,
"properties":{"field":{"type":"string"},"constraint":{"type":"string"},"message":{"type":"string"},"value":{}}}}}}}})";

json::Array error_codes() {
  json::Array codes;
  for (const contract::ErrorRow& row : contract::error_table()) {
    const json::Value wire(row.wire);
    if (std::find(codes.begin(), codes.end(), wire) == codes.end()) codes.push_back(wire);
  }
  return codes;
}

}  // namespace

json::Value parse_text(std::string_view text) {
  Result<json::Value> value = json::parse(text);
  CHECK(value.ok(), "a schema of the document is no JSON");
  return value.take();
}

json::Value ref(std::string_view schema) {
  return json::Object{{"$ref", fmt::format("#/components/schemas/{}", schema)}};
}

json::Object content(std::string_view type, json::Value schema) {
  return {{type, json::Object{{"schema", std::move(schema)}}}};
}

json::Array path_parameters(std::string_view path) {
  json::Array all;
  for (std::size_t at = path.find('{'); at != std::string_view::npos; at = path.find('{', at + 1)) {
    all.push_back(json::Object{{"name", path.substr(at + 1, path.find('}', at) - at - 1)},
                               {"in", "path"},
                               {"required", true},
                               {"schema", json::Object{{"type", "string"}}}});
  }
  return all;
}

std::string method_key(http::Method method) {
  std::string key(http::method_name(method));
  std::transform(key.begin(), key.end(), key.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return key;
}

json::Object error_schema() {
  json::Object schema = parse_text(kErrorSchema).get_object();
  json::Object& inner = schema["properties"].get_object()["error"].get_object();
  inner["properties"].get_object()["code"] = json::Object{{"enum", error_codes()}};
  return schema;
}

json::Object make_document(DocumentParts parts) {
  parts.schemas["Error"] = error_schema();
  return {{"openapi", "3.1.0"},
          {"info", json::Object{{"title", parts.title},
                                {"version", base::version()},
                                {"description", parts.description}}},
          {"paths", std::move(parts.paths)},
          {"components",
           json::Object{
               {"schemas", std::move(parts.schemas)},
               {"securitySchemes",
                json::Object{{"bearer", json::Object{{"type", "http"}, {"scheme", "bearer"}}}}}}}};
}

}  // namespace llorch::api
