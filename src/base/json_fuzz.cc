// Any bytes: a value that writes and reads back the same, or an error.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace llorch;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<json::Value> value = json::parse(text);
  if (!value.ok()) {
    CHECK(!value.error().message.empty());
    return 0;
  }
  const std::string written = json::serialize(value.value());
  const Result<json::Value> again = json::parse(written);
  CHECK(again.ok(), written);
  CHECK(json::serialize(again.value()) == written, written);
  return 0;
}
