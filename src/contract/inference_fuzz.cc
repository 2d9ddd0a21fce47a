// Any bytes as the body of POST /execute and as the data of each event: never a crash, and whatever
// is accepted reads back the same.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "contract/error_table.h"
#include "contract/inference.h"

namespace llorch::contract {
namespace {

template <class T>
void check_event(Result<T> (*parse)(std::string_view), json::Object (*write)(const T&),
                 std::string_view text) {
  const Result<T> first = parse(text);
  if (!first.ok()) return;
  const std::string written = json::serialize(write(first.value()));
  const Result<T> second = parse(written);
  CHECK(second.ok());
  // Times are rounded once; after that nothing moves.
  CHECK(json::serialize(write(second.value())) == written);
}

void check_request(std::string_view text) {
  std::vector<json::FieldError> errors;
  const Result<InferenceRequest> request = parse_inference_request(text, errors);
  CHECK(request.ok() == errors.empty());
  if (!request.ok()) {
    CHECK(parse_error_body(render_error(request.error(), "c", errors).body).ok());
    return;
  }
  const Result<InferenceRequest> again =
      parse_inference_request(json::serialize(to_json(request.value())), errors);
  CHECK(again.ok() && again.value() == request.value());
}

void check(std::string_view text) {
  check_request(text);
  check_event(parse_started_event, started_event_json, text);
  check_event(parse_token_event, token_event_json, text);
  check_event(parse_end_event, end_event_json, text);
  (void)parse_error_event(text);
  (void)parse_error_body(text);
}

}  // namespace
}  // namespace llorch::contract

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  llorch::contract::check({reinterpret_cast<const char*>(data), size});
  return 0;
}
