// For tests and measurements: a catalog's entry in which every field says something.
#pragma once

#include <string>

#include "contract/backend_kind.h"
#include "contract/model_entry.h"

namespace llorch::contract::test {

inline ModelEntry full_entry() {
  ModelEntry entry;
  entry.id = "tinyllama";
  entry.name = "TinyLlama 1.1B Chat";
  entry.path = "/models/tinyllama/tinyllama.gguf";
  entry.format = "gguf";
  entry.size_bytes = 668'788'096;
  entry.architecture = "llama";
  entry.downloaded = true;
  entry.backends = {std::string(kCpu), std::string(kCuda)};
  entry.repo = "hf:TheBloke/TinyLlama-1.1B-Chat-v1.0-GGUF::file=Q4_K_M";
  entry.context_length = 2048;
  entry.vocab_size = 32000;
  entry.parameters = 1'100'048'384;
  entry.quantization = "Q4_K_M";
  entry.license = "Apache-2.0";
  entry.revision = "52e7645ba7c309695bec7ac98f4f005b139cf465";
  entry.files = {{"tinyllama.gguf", 668'788'096, std::string(64, 'a'), 1'700'000'000'123}};
  entry.updated_at = "2026-01-02T03:04:05Z";
  return entry;
}

}  // namespace llorch::contract::test
