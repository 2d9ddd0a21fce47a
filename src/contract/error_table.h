// How an Error looks on the wire: one table of codes, statuses and whether trying again makes
// sense, and the envelope that every answer other than 2xx has.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/json_fields.h"
#include "base/result.h"
#include "contract/fields.h"

namespace llorch::contract {

struct ErrorRow {
  ErrorCode code;
  std::string_view wire;  // stable: clients compare it
  int status;             // HTTP
  bool retriable;         // the same request may succeed later, or on another worker
};

std::span<const ErrorRow> error_table();

const ErrorRow& error_row(ErrorCode code);

// Several of our codes may share a wire code; the answer is then the one the contract names.
std::optional<ErrorCode> error_code_from_wire(std::string_view wire);

std::span<const std::string_view> wire_codes();  // each once

// The data of an `error` event.
struct ErrorEvent {
  std::string code;
  std::string message;
  bool retriable = false;
};
template <class V, Described<ErrorEvent> T>
void describe(V& v, T& event) {
  v("code", event.code, {.names = wire_codes()});
  v("message", event.message);
  v("retriable", event.retriable);
}
ErrorEvent error_event(const Error& error);

template <class V, Described<json::FieldError> T>
void describe(V& v, T& error) {
  v("field", error.field);
  v("constraint", error.constraint);
  v("message", error.message);
  v("value", error.value);
}

// The body of every answer other than 2xx.
struct ErrorDetail {
  ErrorEvent event;
  std::string correlation_id;
  std::vector<json::FieldError> errors;
};
template <class V, Described<ErrorDetail> T>
void describe(V& v, T& detail) {
  describe(v, detail.event);
  v("correlation_id", detail.correlation_id);
  v("errors", detail.errors, {.omit_empty = true});
}
struct ErrorBody {
  ErrorDetail error;
};
template <class V, Described<ErrorBody> T>
void describe(V& v, T& body) {
  v("error", body.error);
}

struct RenderedError {
  int status = 500;
  std::string body;
};

// An ErrorBody as text.
RenderedError render_error(const Error& error, std::string_view correlation_id,
                           std::span<const json::FieldError> errors = {});

// An envelope that another program of ours sent.
struct ErrorReport {
  Error error;
  std::string correlation_id;
  std::vector<json::FieldError> errors;
};

// A wire code that is not in the table (a newer peer) becomes Internal with the code in front of
// the message. A body that is no envelope is Internal too: the peer broke the contract.
Result<ErrorReport> parse_error_body(std::string_view body);

// The data of an `error` event, {"code","message","retriable"}, both ways. Data that breaks the
// contract still ends the stream with an error: Internal, saying what is wrong with it.
json::Object error_event_json(const Error& error);
Error parse_error_event(std::string_view data);

}  // namespace llorch::contract
