#include "support/test_paths.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdio>

namespace llorch::test {

std::filesystem::path source_path(std::string_view relative) {
  std::filesystem::path path = std::filesystem::path(LLORCH_SOURCE_DIR) / relative;
  EXPECT_TRUE(std::filesystem::exists(path)) << "committed fixture is missing: " << path;
  return path;
}

std::optional<std::filesystem::path> data_path(std::string_view relative) {
  const char* configured = std::getenv("LLORCH_TEST_DATA");
  const std::filesystem::path root =
      configured != nullptr ? std::filesystem::path(configured)
                            : std::filesystem::path(LLORCH_SOURCE_DIR) / "../shared/data";
  std::filesystem::path path = root / relative;
  if (std::filesystem::exists(path)) return path;
  fmt::print(stderr, "SKIPPED, real data absent: {} (set LLORCH_TEST_DATA)\n", path.string());
  return std::nullopt;
}

TempDir::TempDir() {
  std::string name = (std::filesystem::temp_directory_path() / "llorch-test-XXXXXX").string();
  const char* made = ::mkdtemp(name.data());
  if (made == nullptr) {
    std::perror("mkdtemp");
    std::abort();
  }
  path_ = made;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace llorch::test
