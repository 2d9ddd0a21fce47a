// Any bytes as a whole file.
#include "formats/safetensors_reader.h"
#include "formats/weight_file_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace llorch::formats;
  return read_everything(parse_safetensors(std::as_bytes(std::span(data, size))));
}
