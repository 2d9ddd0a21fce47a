// What tests of the routes read out of answers.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <fstream>
#include <new>
#include <set>
#include <thread>
#include "base/file.h"
#include "http/test_server.h"
#include "pool/endpoint_table.h"
#include "pool/fake_pool.h"
#include "pool/routes.h"
#include "support/eventually.h"
#include "support/schema_check.h"

namespace llorch::pool {

using contract::PoolWorkerState;
using http::test::body_of;
using http::test::events_of;
using http::test::header_of;
using http::test::json_of;
using http::test::status_of;
using ::llorch::test::check_named;
using ::llorch::test::eventually;
using test::a_worker;
using test::FakePool;
using ::testing::AllOf, ::testing::Contains, ::testing::ElementsAre, ::testing::HasSubstr,
    ::testing::IsEmpty;

inline std::string code_of(std::string_view response) {
  const json::Value body = json_of(response);
  EXPECT_THAT(check_named(openapi_document(), "Error", body), IsEmpty()) << response;
  return std::string(json::view(body.at("error").at("code").get_string()));
}

inline std::string message_of(std::string_view response) {
  const json::Value body = json_of(response);
  return std::string(json::view(body.at("error").at("message").get_string()));
}

inline std::vector<std::string> failed_fields(std::string_view response) {
  std::vector<std::string> fields;
  const json::Value body = json_of(response);
  if (!body.at("error").get_object().contains("errors")) return fields;
  for (const json::Value& error : body.at("error").at("errors").get_array())
    fields.emplace_back(json::view(error.at("field").get_string()));
  return fields;
}

inline void expect_fits(std::string_view schema, std::string_view response) {
  EXPECT_THAT(check_named(openapi_document(), schema, json_of(response)), IsEmpty()) << response;
}

// A model file that describe_files accepts.
inline std::string register_model(const FakePool& pool, const std::string& id = "m") {
  const std::string path = ::llorch::test::source_path("tests/golden/gpt2_tiny").string();
  return pool.send("POST", "/v2/models", fmt::format(R"({{"id":"{}","path":"{}"}})", id, path));
}

inline contract::DownloadEvent progress(std::int64_t done) {
  contract::DownloadEvent event;
  event.model = "m";
  event.bytes_done = done;
  event.bytes_total = 100;
  return event;
}

inline std::string id_of(std::string_view response) {
  return std::string(json::view(json_of(response).at("download_id").get_string()));
}

inline std::string start(FakePool& pool, const std::string& model) {
  return pool.send("POST", fmt::format("/v2/models/{}/download", model), R"({"ref":"hf:a/b"})");
}

}  // namespace llorch::pool
