#include "contract/error_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "contract/peer_message.h"

namespace llorch::contract {
namespace {

// In the order of ErrorCode. An inference changes nothing but its own stream, so repeating it is
// always safe; the question is only whether it can help.
constexpr std::array kTable = {
    ErrorRow{ErrorCode::InvalidArgument, "INVALID_REQUEST", 400, false},
    ErrorRow{ErrorCode::Unauthorized, "UNAUTHORIZED", 401, false},
    ErrorRow{ErrorCode::Forbidden, "FORBIDDEN", 403, false},
    ErrorRow{ErrorCode::NotFound, "NOT_FOUND", 404, false},
    ErrorRow{ErrorCode::MethodNotAllowed, "METHOD_NOT_ALLOWED", 405, false},
    ErrorRow{ErrorCode::Conflict, "CONFLICT", 409, false},
    ErrorRow{ErrorCode::TooLarge, "PAYLOAD_TOO_LARGE", 413, false},
    ErrorRow{ErrorCode::UnsupportedMedia, "UNSUPPORTED_MEDIA_TYPE", 415, false},
    ErrorRow{ErrorCode::QueueFull, "QUEUE_FULL", 429, true},
    ErrorRow{ErrorCode::Cancelled, "CANCELLED", 499, false},
    ErrorRow{ErrorCode::Internal, "INTERNAL", 500, true},
    ErrorRow{ErrorCode::LoadFailed, "MODEL_LOAD_FAILED", 500, false},
    ErrorRow{ErrorCode::DeviceOutOfMemory, "VRAM_OOM", 500, true},
    ErrorRow{ErrorCode::DeviceFailed, "CUDA_ERROR", 500, true},
    ErrorRow{ErrorCode::Unavailable, "UNAVAILABLE", 503, true},
    ErrorRow{ErrorCode::OutOfMemory, "INSUFFICIENT_MEMORY", 503, true},
    ErrorRow{ErrorCode::DeadlineExceeded, "INFERENCE_TIMEOUT", 504, true},
    // These two come from readers of weight files. Whoever sees them over HTTP asked for a model
    // that cannot be loaded, and the same bytes will fail again.
    ErrorRow{ErrorCode::Corrupt, "MODEL_LOAD_FAILED", 500, false},
    ErrorRow{ErrorCode::Unsupported, "MODEL_LOAD_FAILED", 500, false},
};

constexpr bool is_in_enum_order() {
  for (std::size_t i = 0; i < kTable.size(); ++i) {
    if (static_cast<std::size_t>(kTable[i].code) != i) return false;
  }
  return kTable.size() == static_cast<std::size_t>(ErrorCode::Unsupported) + 1;
}
static_assert(is_in_enum_order(), "every ErrorCode has its row, in the order of the enumeration");

Error error_from_wire(std::string_view wire, std::string message) {
  const std::optional<ErrorCode> code = error_code_from_wire(wire);
  if (code) return {*code, std::move(message)};
  return {ErrorCode::Internal, fmt::format("{}: {}", wire, message)};
}

std::vector<json::FieldError> read_field_errors(const json::Array& array) {
  std::vector<json::FieldError> errors;
  for (const json::Value& entry : array) {
    const json::Object* object = entry.if_object();
    if (object == nullptr) continue;
    json::FieldReader reader(*object);
    json::FieldError error{reader.required_string("field"),
                           reader.required_string("constraint"),
                           reader.required_string("message"),
                           {}};
    if (const json::Value* value = reader.optional_value("value")) error.value = *value;
    errors.push_back(std::move(error));
  }
  return errors;
}

}  // namespace

std::span<const ErrorRow> error_table() {
  return kTable;
}

const ErrorRow& error_row(ErrorCode code) {
  return kTable[static_cast<std::size_t>(code)];
}

std::optional<ErrorCode> error_code_from_wire(std::string_view wire) {
  const auto* row =
      std::find_if(kTable.begin(), kTable.end(), [&](const ErrorRow& r) { return r.wire == wire; });
  if (row == kTable.end()) return std::nullopt;
  return row->code;
}

std::span<const std::string_view> wire_codes() {
  static const std::vector<std::string_view> codes = [] {
    std::vector<std::string_view> all;
    for (const ErrorRow& row : kTable) {
      if (std::find(all.begin(), all.end(), row.wire) == all.end()) all.push_back(row.wire);
    }
    return all;
  }();
  return codes;
}

ErrorEvent error_event(const Error& error) {
  const ErrorRow& row = error_row(error.code);
  return {std::string(row.wire), error.message, row.retriable};
}

json::Object error_event_json(const Error& error) {
  return write_fields(error_event(error));
}

RenderedError render_error(const Error& error, std::string_view correlation_id,
                           std::span<const json::FieldError> errors) {
  ErrorBody body{{error_event(error), std::string(correlation_id), {errors.begin(), errors.end()}}};
  // An invalid request lists its failures; what no field is to blame for is the request's.
  if (error.code == ErrorCode::InvalidArgument && body.error.errors.empty())
    body.error.errors.push_back({"request", "valid request", error.message, {}});
  return {error_row(error.code).status, json::serialize(write_fields(body))};
}

Result<ErrorReport> parse_error_body(std::string_view body) {
  Result<json::Object> outer = parse_peer_object("error body", body);
  if (!outer.ok()) return outer.error();
  json::FieldReader envelope(outer.value());
  ErrorReport report;
  const json::Object* inner = envelope.required_object("error");
  if (inner != nullptr) {
    json::FieldReader reader(*inner, "error.");
    const std::string code = reader.required_string("code");
    report.error = error_from_wire(code, reader.required_string("message"));
    report.correlation_id = reader.optional_string("correlation_id").value_or("");
    if (const json::Array* list = reader.optional_array("errors"))
      report.errors = read_field_errors(*list);
    reader.ignore_others();
    envelope.add(reader.finish());
  }
  if (Status sound = check_peer_object("error body", envelope); !sound.ok()) return sound.error();
  return report;
}

Error parse_error_event(std::string_view data) {
  Result<json::Object> object = parse_peer_object("error event", data);
  if (!object.ok()) return object.error();
  json::FieldReader reader(object.value());
  const std::string code = reader.required_string("code");
  std::string message = reader.required_string("message");
  if (Status sound = check_peer_object("error event", reader); !sound.ok()) return sound.error();
  return error_from_wire(code, std::move(message));
}

}  // namespace llorch::contract
