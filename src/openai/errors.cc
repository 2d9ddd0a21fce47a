#include "openai/errors.h"

#include <utility>

#include "base/utf8.h"
#include "contract/error_table.h"

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
  json::Object inner{{"message", base::to_valid_utf8(error.message)},
                     {"type", type_of(row.status)},
                     {"param", nullptr},
                     {"code", nullptr}};
  if (!param.empty()) inner["param"] = base::to_valid_utf8(param);
  if (!code.empty()) {
    inner["code"] = code;
  } else if (error.code != ErrorCode::InvalidArgument) {
    inner["code"] = row.wire;
  }
  return {{"error", std::move(inner)}};
}

}  // namespace llorch::openai
