// Fuzzes the GGUF reader: whatever the bytes, it returns, and all it hands out can be read.
#include <cstddef>
#include <cstdint>
#include <span>

#include "formats/gguf_reader.h"

namespace {

volatile unsigned char sink;

void touch(const llorch::formats::Metadata& metadata) {
  for (const auto& [key, value] : metadata.entries()) {
    (void)metadata.integer(key).ok();
    (void)metadata.number(key).ok();
    (void)metadata.flag(key).ok();
    (void)metadata.text(key).ok();
    (void)metadata.integers(key).ok();
    (void)metadata.numbers(key).ok();
    if (const auto texts = metadata.texts(key); texts.ok()) {
      for (const std::string_view text : *texts) {
        if (!text.empty()) sink = static_cast<unsigned char>(text.front() ^ text.back());
      }
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = llorch::formats::parse_gguf(std::as_bytes(std::span(data, size)));
  if (!file.ok()) return 0;
  touch(file->metadata());
  for (const llorch::formats::WeightTensor& tensor : file->tensors()) {
    if (!tensor.bytes.empty())
      sink = std::to_integer<unsigned char>(tensor.bytes.front() ^ tensor.bytes.back());
  }
  return 0;
}
