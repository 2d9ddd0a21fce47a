#include "openai/schemas.h"

#include <span>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "openai/answer_objects.h"
#include "openai/field_table.h"
#include "openai/request.h"

namespace llorch::openai {
namespace {

template <class T>
json::Object answer_schema() {
  return contract::described_schema<T>(contract::SchemaOf::Answer);
}

json::Value parse(std::string_view text) {
  Result<json::Value> value = json::parse(text);
  CHECK(value.ok(), "a schema that is no JSON");
  return value.take();
}

std::string_view treatment_text(Treatment treatment) {
  switch (treatment) {
    case Treatment::Required:
    case Treatment::Honoured:
      return "honoured";
    case Treatment::Bookkeeping:
      return "accepted";
    case Treatment::Refused:
      return "refused";
  }
  return "";
}

json::Object request_schema(std::span<const FieldSpec> fields) {
  const json::Object settings = settings_schema();
  const json::Object& described = settings.at("properties").get_object();
  json::Object properties;
  json::Array required;
  for (const FieldSpec& field : fields) {
    json::Object schema;
    if (field.treatment == Treatment::Refused) {
      json::Array neutral{nullptr};
      if (!field.neutral.empty()) neutral.push_back(parse(field.neutral));
      schema["enum"] = std::move(neutral);
    } else if (!field.schema.empty()) {
      schema = parse(field.schema).get_object();
    } else if (const json::Value* known = described.if_contains(field.name)) {
      schema = known->get_object();
    }
    schema["x-llorch"] = treatment_text(field.treatment);
    properties[field.name] = std::move(schema);
    if (field.treatment == Treatment::Required) required.emplace_back(field.name);
  }
  return {{"type", "object"},
          {"properties", std::move(properties)},
          {"required", std::move(required)},
          {"additionalProperties", false}};
}

}  // namespace

void add_schemas(json::Object& schemas) {
  schemas["OpenAiError"] = answer_schema<ErrorObject>();
  schemas["Model"] = answer_schema<Model>();
  schemas["ModelList"] = answer_schema<ModelList>();
  schemas["Completion"] = answer_schema<Completion>();
  schemas["ChatCompletion"] = answer_schema<ChatCompletion>();
  schemas["ChatCompletionChunk"] = answer_schema<ChatCompletionChunk>();
  schemas["EmbeddingList"] = answer_schema<EmbeddingList>();
  schemas["CompletionRequest"] = request_schema(completion_fields());
  schemas["ChatCompletionRequest"] = request_schema(chat_fields());
  schemas["ChatMessage"] = request_schema(chat_message_fields());
  schemas["EmbeddingRequest"] = request_schema(embedding_fields());
}

}  // namespace llorch::openai
