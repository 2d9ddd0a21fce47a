// Tests only: models that a test may change.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <initializer_list>

#include "base/home.h"
#include "catalog/model_catalog.h"
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

// A home with its catalog, and a model beside it.
class CatalogHomeTest : public testing::Test {
 protected:
  CatalogHomeTest() : catalog(dir / "home/catalog.json") {
    home.data = dir / "home";
    copy_model(dir / "files");
  }

  test::TempDir dir;
  base::Home home;
  ModelCatalog catalog;
};

}  // namespace llorch::catalog
