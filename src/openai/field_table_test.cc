#include "openai/field_table.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

#include "base/file.h"
#include "support/test_paths.h"

namespace llorch::openai {
namespace {

// The properties of a request schema of OpenAI's description, those it includes as well.
void collect_properties(const json::Object& schemas, const json::Value& schema,
                        std::set<std::string>& out) {
  if (!schema.is_object()) return;
  if (const json::Value* ref = schema.get_object().if_contains("$ref")) {
    const std::string_view path = json::view(ref->get_string());
    return collect_properties(schemas, schemas.at(path.substr(path.rfind('/') + 1)), out);
  }
  if (const json::Value* all = schema.get_object().if_contains("allOf")) {
    for (const json::Value& part : all->get_array()) collect_properties(schemas, part, out);
  }
  if (const json::Value* properties = schema.get_object().if_contains("properties")) {
    for (const auto& property : properties->get_object()) out.emplace(json::view(property.key()));
  }
}

TEST(FieldTables, TheyHoldExactlyOpenAisFields) {
  const auto path = llorch::test::data_path("openapi.json");
  if (!path) GTEST_SKIP() << "no openapi.json: set LLORCH_TEST_DATA";
  const Result<std::string> text = base::read_text_file(*path, std::size_t{64} << 20);
  ASSERT_TRUE(text.ok());
  const Result<json::Value> document = json::parse(*text);
  ASSERT_TRUE(document.ok());
  const json::Object& schemas = document->at("components").at("schemas").get_object();
  // What others have taught clients to send, and our contract names.
  const std::set<std::string_view> further = {
      "top_k", "min_p", "repetition_penalty", "documents", "chat_template_kwargs", "llorch"};
  for (const auto& [name, fields] : {std::pair{"CreateCompletionRequest", completion_fields()},
                                     std::pair{"CreateChatCompletionRequest", chat_fields()},
                                     std::pair{"CreateEmbeddingRequest", embedding_fields()}}) {
    std::set<std::string> theirs;
    collect_properties(schemas, schemas.at(name), theirs);
    std::set<std::string> ours;
    for (const FieldSpec& field : fields) {
      if (!further.contains(field.name)) ours.emplace(field.name);
    }
    EXPECT_EQ(ours, theirs) << name;
  }
}

TEST(FieldTables, ARefusedFieldNamesTheOneThatDoesTheSame) {
  const json::Object body = {{"functions", json::Array{json::Object()}},
                             {"function_call", "auto"},
                             {"modalities", json::Array{"audio"}},
                             {"moderation", json::Object()}};
  json::FieldReader reader(body);
  apply_treatments(chat_fields(), body, reader);
  std::set<std::string> said;
  for (const json::FieldError& error : reader.finish())
    said.insert(error.field + " " + error.message);
  EXPECT_EQ(said,
            (std::set<std::string>{
                "function_call is not supported by this server: tool_choice does the same; leave "
                "it out or send \"none\"",
                "functions is not supported by this server: tools does the same; leave it out or "
                "send []",
                "modalities is not supported by this server: leave it out or send [\"text\"]",
                "moderation is not supported by this server: leave it out"}));
}

}  // namespace
}  // namespace llorch::openai
