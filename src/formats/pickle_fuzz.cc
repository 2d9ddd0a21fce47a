// Any bytes as a pickle: an error, or values that refer to nothing but each other.
#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "formats/pickle.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace llorch;
  const Result<formats::Pickle> pickle = formats::read_pickle(std::as_bytes(std::span(data, size)));
  if (!pickle.ok()) {
    CHECK(!pickle.error().message.empty());
    return 0;
  }
  CHECK(pickle->root < pickle->values.size() && pickle->values.size() <= size);
  for (const formats::PickleValue& value : pickle->values) {
    for (const formats::PickleIndex item : value.items) CHECK(item < pickle->values.size());
    if (value.kind == formats::PickleValue::Kind::Call) CHECK(value.items.size() == 2);
    if (value.kind == formats::PickleValue::Kind::Dict) CHECK(value.items.size() % 2 == 0);
  }
  return 0;
}
