// What the OpenAPI 3.1 documents of our programs have in common.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "http/message.h"

namespace llorch::api {

struct NamedSchema {
  std::string_view name;
  std::string_view schema;  // JSON
};

// JSON of our own sources; what is none is a bug.
json::Value parse_text(std::string_view text);

json::Value ref(std::string_view schema);  // to a schema of the document's own
json::Object content(std::string_view type, json::Value schema);
// The parameters in a path's pattern: "/v2/workers/{id}".
json::Array path_parameters(std::string_view path);
std::string method_key(http::Method method);  // "get"

// The schema of the contract's envelope, with every code it may carry.
json::Object error_schema();

struct DocumentParts {
  std::string_view title;
  std::string_view description;
  json::Object paths;
  json::Object schemas;  // "Error" is added
};
json::Object make_document(DocumentParts parts);

}  // namespace llorch::api
