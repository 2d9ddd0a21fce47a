// Any bytes: a program or an error that says something.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "template/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace llorch;
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const Result<jinja::ChatTemplate> parsed = jinja::ChatTemplate::parse(source);
  if (!parsed.ok()) CHECK(!parsed.error().message.empty());
  return 0;
}
