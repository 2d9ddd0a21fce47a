// Where tests find things: the repository's own fixtures, optional real data, a folder to write in.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

namespace llorch::test {

// A file of the repository, by its path from the root ("tests/golden/…"). It is committed: its
// absence is a failure.
std::filesystem::path source_path(std::string_view relative);

// Real data that is not part of the project: $LLORCH_TEST_DATA, default ../shared/data beside the
// checkout. Absent: nothing, after a loud line on stderr; the test then calls GTEST_SKIP() with the
// path.
std::optional<std::filesystem::path> data_path(std::string_view relative);

// A fresh folder, removed with everything in it at the end of the scope.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace llorch::test
