#include "openai/errors.h"

#include "contract/error_table.h"
#include "openai/answer_objects.h"

namespace llorch::openai {
namespace {

std::string_view type_of(int status) {
  if (status == 401) return "authentication_error";
  if (status == 429) return "rate_limit_error";
  return status < 500 ? "invalid_request_error" : "server_error";
}

}  // namespace

json::Object error_json(const Error& error, std::string_view param, std::string_view code) {
  const contract::ErrorRow& row = contract::error_row(error.code);
  ErrorObject object;
  object.error.message = error.message;
  object.error.type = type_of(row.status);
  if (!param.empty()) object.error.param = param;
  if (!code.empty()) {
    object.error.code = code;
  } else if (error.code != ErrorCode::InvalidArgument) {
    object.error.code = row.wire;
  }
  return contract::write_fields(object);
}

}  // namespace llorch::openai
