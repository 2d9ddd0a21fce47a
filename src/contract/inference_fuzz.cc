// Any bytes as the body of POST /execute and as the data of each event: never a crash, and whatever
// is accepted reads back the same.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "contract/error_table.h"
#include "contract/inference.h"

namespace {

using namespace llorch;  // NOLINT: a fuzz target is one page

template <class T>
void round_trip(Result<T> (*parse)(std::string_view), json::Object (*write)(const T&),
                std::string_view text) {
  const Result<T> first = parse(text);
  if (!first.ok()) return;
  const Result<T> second = parse(json::serialize(write(first.value())));
  CHECK(second.ok());
  // Times are rounded once; after that nothing moves.
  CHECK(json::serialize(write(first.value())) == json::serialize(write(second.value())));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  std::vector<json::FieldError> errors;
  const Result<contract::InferenceRequest> request =
      contract::parse_inference_request(text, errors);
  CHECK(request.ok() == errors.empty());
  if (request.ok()) {
    const Result<contract::InferenceRequest> again = contract::parse_inference_request(
        json::serialize(contract::to_json(request.value())), errors);
    CHECK(again.ok() && again.value() == request.value());
  } else {
    CHECK(
        contract::parse_error_body(contract::render_error(request.error(), "c", errors).body).ok());
  }
  round_trip(contract::parse_started_event, contract::started_event_json, text);
  round_trip(contract::parse_token_event, contract::token_event_json, text);
  round_trip(contract::parse_end_event, contract::end_event_json, text);
  (void)contract::parse_error_event(text);
  (void)contract::parse_error_body(text);
  return 0;
}
