// Tests only: models that a test may change.
#pragma once

#include <filesystem>
#include <initializer_list>

#include "support/test_paths.h"

namespace llorch::catalog {

// A copy of a committed model: its weights, its config, and what else is named.
inline void copy_model(const std::filesystem::path& target,
                       std::initializer_list<const char*> more = {}) {
  std::filesystem::create_directories(target);
  const std::filesystem::path source = test::source_path("tests/golden/gpt2_tiny");
  for (const char* name : {"model.safetensors", "config.json"})
    std::filesystem::copy_file(source / name, target / name);
  for (const char* name : more) std::filesystem::copy_file(source / name, target / name);
}

}  // namespace llorch::catalog
