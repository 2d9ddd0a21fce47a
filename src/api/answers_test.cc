#include "api/answers.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace llorch::api {
namespace {

// What a reader of an integer says of the query's only field.
std::string failure_of(const std::string& text) {
  http::Request request;
  request.query.emplace("since", text);
  const json::Object query = read_query(request);
  json::FieldReader reader(query);
  const auto number = reader.optional_integer("since", 0, std::numeric_limits<std::int64_t>::max());
  const std::vector<json::FieldError> errors = reader.finish();
  return errors.empty() ? fmt::format("{}", number.value_or(-1)) : errors.front().message;
}

TEST(ReadQuery, ANumberIsANumberHoweverLarge) {
  EXPECT_EQ(failure_of("9223372036854775807"), "9223372036854775807");
  EXPECT_EQ(failure_of("9999999999999999999"), "must be an integer >= 0, is 9999999999999999999");
  EXPECT_EQ(failure_of("99999999999999999999"), "must be an integer >= 0, is 1e+20");
  EXPECT_EQ(failure_of("-99999999999999999999"), "must be an integer >= 0, is -1e+20");
  EXPECT_EQ(failure_of("-"), "must be an integer, not a string");
  EXPECT_EQ(failure_of("1e3"), "must be an integer, not a string");
}

}  // namespace
}  // namespace llorch::api
