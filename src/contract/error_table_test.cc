#include "contract/error_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/utf8.h"

namespace llorch::contract {
namespace {

using ::testing::HasSubstr;

TEST(ErrorTable, HoldsEveryCodeOfTheContractWithItsStatus) {
  const std::map<std::string_view, int> expected = {
      {"INVALID_REQUEST", 400},    {"UNAUTHORIZED", 401},
      {"FORBIDDEN", 403},          {"NOT_FOUND", 404},
      {"METHOD_NOT_ALLOWED", 405}, {"CONFLICT", 409},
      {"PAYLOAD_TOO_LARGE", 413},  {"UNSUPPORTED_MEDIA_TYPE", 415},
      {"QUEUE_FULL", 429},         {"CANCELLED", 499},
      {"INTERNAL", 500},           {"MODEL_LOAD_FAILED", 500},
      {"VRAM_OOM", 500},           {"CUDA_ERROR", 500},
      {"UNAVAILABLE", 503},        {"INSUFFICIENT_MEMORY", 503},
      {"INFERENCE_TIMEOUT", 504}};
  std::map<std::string_view, int> found;
  for (const ErrorRow& row : error_table()) found[row.wire] = row.status;
  EXPECT_EQ(found, expected);
}

TEST(ErrorTable, HasARowForEveryErrorCode) {
  for (int i = 0; i <= static_cast<int>(ErrorCode::Unsupported); ++i) {
    const auto code = static_cast<ErrorCode>(i);
    EXPECT_EQ(error_row(code).code, code);
  }
  EXPECT_EQ(error_table().size(), static_cast<std::size_t>(ErrorCode::Unsupported) + 1);
}

TEST(ErrorTable, CallsRetriableWhatMaySucceedLater) {
  std::set<std::string_view> retriable;
  for (const ErrorRow& row : error_table()) {
    if (row.retriable) retriable.insert(row.wire);
  }
  EXPECT_EQ(retriable, (std::set<std::string_view>{"QUEUE_FULL", "INTERNAL", "VRAM_OOM",
                                                   "CUDA_ERROR", "UNAVAILABLE",
                                                   "INSUFFICIENT_MEMORY", "INFERENCE_TIMEOUT"}));
}

TEST(ErrorTable, ReadsEveryWireCodeBack) {
  for (const ErrorRow& row : error_table()) {
    const std::optional<ErrorCode> code = error_code_from_wire(row.wire);
    ASSERT_TRUE(code.has_value()) << row.wire;
    EXPECT_EQ(error_row(*code).wire, row.wire);
  }
  EXPECT_EQ(error_code_from_wire("MODEL_LOAD_FAILED"), ErrorCode::LoadFailed);
  EXPECT_EQ(error_code_from_wire("invalid_request"), std::nullopt);
}

TEST(RenderError, GivesTheEnvelope) {
  const RenderedError rendered =
      render_error({ErrorCode::QueueFull, "the queue holds 8 jobs"}, "abc-1");
  EXPECT_EQ(rendered.status, 429);
  EXPECT_EQ(rendered.body,
            R"({"error":{"code":"QUEUE_FULL","message":"the queue holds 8 jobs","retriable":true,)"
            R"("correlation_id":"abc-1"}})");
}

TEST(RenderError, ListsFieldErrors) {
  const std::vector<json::FieldError> errors = {
      {"temperature", "0..2", "must be in 0..2, is 3", json::Value(3)},
      {"prompt", "required", "is required", {}}};
  const RenderedError rendered = render_error({ErrorCode::InvalidArgument, "two"}, "c", errors);
  EXPECT_EQ(rendered.status, 400);
  EXPECT_EQ(
      rendered.body,
      R"({"error":{"code":"INVALID_REQUEST","message":"two","retriable":false,"correlation_id":"c","errors":[)"
      R"({"field":"temperature","constraint":"0..2","message":"must be in 0..2, is 3","value":3},)"
      R"({"field":"prompt","constraint":"required","message":"is required"}]}})");
}

TEST(RenderError, ListsWhatIsWrongInEveryInvalidRequest) {
  const RenderedError rendered = render_error({ErrorCode::InvalidArgument, "no JSON"}, "c");
  EXPECT_EQ(
      rendered.body,
      R"({"error":{"code":"INVALID_REQUEST","message":"no JSON","retriable":false,"correlation_id":"c","errors":[)"
      R"({"field":"request","constraint":"valid request","message":"no JSON"}]}})");
  EXPECT_EQ(render_error({ErrorCode::NotFound, "no job"}, "c").body.find("errors"),
            std::string::npos);
}

TEST(RenderError, IsValidJsonWhateverTheMessageHolds) {
  const RenderedError rendered =
      render_error({ErrorCode::NotFound, "no file \"a\xff\n\""}, "c\xfe");
  EXPECT_TRUE(base::is_valid_utf8(rendered.body));
  ASSERT_TRUE(json::parse(rendered.body).ok());
}

TEST(ErrorBody, ReadsBackWhatWasRendered) {
  const std::vector<json::FieldError> errors = {
      {"top_p", "0..1", "must be in 0..1, is 2", json::Value(2)}};
  const Result<ErrorReport> report = parse_error_body(
      render_error({ErrorCode::InvalidArgument, "top_p is 2"}, "id-7", errors).body);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->error.code, ErrorCode::InvalidArgument);
  EXPECT_EQ(report->error.message, "top_p is 2");
  EXPECT_EQ(report->correlation_id, "id-7");
  ASSERT_EQ(report->errors.size(), 1U);
  EXPECT_EQ(report->errors[0].field, "top_p");
  EXPECT_EQ(report->errors[0].value, json::Value(2));
}

TEST(ErrorBody, KeepsAnUnknownCodeInTheMessage) {
  const Result<ErrorReport> report = parse_error_body(
      R"({"error":{"code":"TOO_HOT","message":"at 105 degrees","retriable":true,"sensor":3}})");
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->error.code, ErrorCode::Internal);
  EXPECT_EQ(report->error.message, "TOO_HOT: at 105 degrees");
}

TEST(ErrorBody, RefusesWhatIsNoEnvelope) {
  for (const char* body :
       {"", "<html>502</html>", "{}", R"({"error":"text"})", R"({"error":{"code":"INTERNAL"}})",
        R"({"error":{"code":5,"message":"m"}})", "[1]"}) {
    const Result<ErrorReport> report = parse_error_body(body);
    ASSERT_FALSE(report.ok()) << body;
    EXPECT_EQ(report.error().code, ErrorCode::Internal);
    EXPECT_THAT(report.error().message, HasSubstr("malformed error body"));
  }
}

TEST(ErrorEvent, RoundTripsThroughJson) {
  const std::string text =
      json::serialize(error_event_json({ErrorCode::Cancelled, "the client cancelled"}));
  EXPECT_EQ(text, R"({"code":"CANCELLED","message":"the client cancelled","retriable":false})");
  const Error error = parse_error_event(text);
  EXPECT_EQ(error.code, ErrorCode::Cancelled);
  EXPECT_EQ(error.message, "the client cancelled");
}

TEST(ErrorEvent, IsAnErrorEvenWhenItBreaksTheContract) {
  const Error error = parse_error_event(R"({"code":"CANCELLED"})");
  EXPECT_EQ(error.code, ErrorCode::Internal);
  EXPECT_EQ(error.message, "malformed error event: message is required");
}

}  // namespace
}  // namespace llorch::contract
