// What the OpenAPI 3.1 documents of our programs have in common.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "contract/fields.h"
#include "http/message.h"
#include "http/router.h"

namespace llorch::api {

// JSON Schemas of a query's parameters, by name.
using QuerySchema = json::Object (*)();
template <class T>
json::Object query_of() {
  const json::Object schema = contract::described_schema<T>(contract::SchemaOf::Request);
  return schema.at("properties").get_object();
}

// One endpoint as its document tells it. Each program has one table of these with what answers
// beside them, and fills its router from the same table.
struct EndpointText {
  http::Method method = http::Method::Get;
  std::string_view path;  // "/v2/workers/{id}"
  std::string_view summary;
  std::string_view request_schema = {};  // of the body, by its name in the document; empty: none
  bool is_body_optional = false;
  QuerySchema query = nullptr;            // of its parameters; null: none
  bool takes_any_query = false;           // and does not look at it
  std::string_view required_header = {};  // that must be sent
  int status = 200;                       // of success
  std::string_view response_schema = {};  // of success; empty: text or a stream
  std::string_view stream_type = {};      // "text/event-stream" where it can answer so
  std::string_view stream_schema = {};    // of an event's data; empty: text
  std::string_view error_schema = "Error";
};
// The two usual kinds: one that shows something, and one that is sent something.
constexpr EndpointText get(std::string_view path, std::string_view summary,
                           std::string_view response_schema, QuerySchema query = nullptr) {
  return {.path = path, .summary = summary, .query = query, .response_schema = response_schema};
}
constexpr EndpointText send(http::Method method, std::string_view path, std::string_view summary,
                            std::string_view request_schema, int status,
                            std::string_view response_schema) {
  return {.method = method,
          .path = path,
          .summary = summary,
          .request_schema = request_schema,
          .status = status,
          .response_schema = response_schema};
}

// The state of a daemon, for probes: some put a parameter of their own behind every address.
constexpr EndpointText get_health(std::string_view summary, std::string_view response_schema) {
  EndpointText text = get("/health", summary, response_schema);
  text.takes_any_query = true;
  return text;
}

// OpenAI's endpoints, as every server of ours has them; gateways add parameters ("api-version").
inline constexpr std::string_view kSse = "text/event-stream";
inline constexpr std::string_view kOpenAiError = "OpenAiError";
constexpr EndpointText openai_get(std::string_view path, std::string_view summary,
                                  std::string_view response_schema) {
  return {.path = path,
          .summary = summary,
          .takes_any_query = true,
          .response_schema = response_schema,
          .error_schema = kOpenAiError};
}
constexpr EndpointText openai_post(std::string_view path, std::string_view summary,
                                   std::string_view request_schema,
                                   std::string_view response_schema,
                                   std::string_view chunk_schema = {}) {
  return {.method = http::Method::Post,
          .path = path,
          .summary = summary,
          .request_schema = request_schema,
          .takes_any_query = true,
          .response_schema = response_schema,
          .stream_type = chunk_schema.empty() ? std::string_view() : kSse,
          .stream_schema = chunk_schema,
          .error_schema = kOpenAiError};
}
constexpr EndpointText openai_models(std::string_view summary) {
  return openai_get("/v1/models", summary, "ModelList");
}
constexpr EndpointText openai_model(std::string_view summary) {
  return openai_get("/v1/models/{model}", summary, "Model");
}
constexpr EndpointText openai_completions(std::string_view summary) {
  return openai_post("/v1/completions", summary, "CompletionRequest", "Completion", "Completion");
}
constexpr EndpointText openai_chat(std::string_view summary) {
  return openai_post("/v1/chat/completions", summary, "ChatCompletionRequest", "ChatCompletion",
                     "ChatCompletionChunk");
}
constexpr EndpointText openai_embeddings(std::string_view summary) {
  return openai_post("/v1/embeddings", summary, "EmbeddingRequest", "EmbeddingList");
}

// The 400 for a request with parameters to an endpoint that has none; nothing where all is well.
std::optional<http::Response> refuse_parameters(const EndpointText& endpoint,
                                                const http::Request& request);
// The handler of an endpoint, asked only where all is well.
http::Handler with_known_parameters(const EndpointText& endpoint, http::Handler handler);

// Schemas by their names in a document, out of what describes the structs (contract/fields.h).
struct SchemaTable {
  json::Object schemas;

  template <class T>
  void answer(std::string_view name) {
    schemas[name] = contract::described_schema<T>(contract::SchemaOf::Answer);
  }
  template <class T>
  void request(std::string_view name) {
    schemas[name] = contract::described_schema<T>(contract::SchemaOf::Request);
  }
};

struct DocumentParts {
  std::string_view title;
  std::string_view description;
  std::vector<EndpointText> endpoints;
  json::Object schemas;  // "Error" and "Document" are added
};
json::Object make_document(DocumentParts parts);

// The texts of a table of endpoints.
template <class Endpoint>
std::vector<EndpointText> texts_of(std::span<const Endpoint> endpoints) {
  std::vector<EndpointText> texts;
  for (const Endpoint& endpoint : endpoints) texts.push_back(endpoint.text);
  return texts;
}

}  // namespace llorch::api
