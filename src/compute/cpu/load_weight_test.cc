// Matrices on their way from a file into tiles.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

#include "base/file.h"
#include "compute/conformance.h"
#include "compute/cpu/cpu_backend.h"
#include "support/test_paths.h"

namespace llorch::compute::test {
namespace {

constexpr std::int64_t kCols = 1024;
constexpr std::int64_t kBefore = 100;  // bytes in front of the matrix in its file

std::unique_ptr<Backend> make_cpu(int threads) {
  return make_cpu_backend(threads, "", std::nullopt).take();
}

// A matrix in a file of its own.
struct InFile {
  std::filesystem::path path;
  std::shared_ptr<const base::MappedFile> file;
  WeightSource source;

  InFile(const llorch::test::TempDir& dir, DType dtype, std::int64_t rows, Random& random)
      : path(dir / "weights") {
    const std::vector<std::byte> bytes = random_weight(dtype, rows * kCols, random);
    std::ofstream(path, std::ios::binary)
        << std::string(kBefore, 'x')
        << std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    file = base::MappedFile::open(path).take();
    source = {.name = "w",
              .dtype = dtype,
              .rows = rows,
              .cols = kCols,
              .row_stride = kCols,
              .bytes = file->bytes().subspan(kBefore),
              .file = file.get()};
  }
};

bool are_equal(const Weight& a, const Weight& b) {
  return a.storage.bytes() == b.storage.bytes() &&
         std::memcmp(a.storage.data(), b.storage.data(),
                     static_cast<std::size_t>(a.storage.bytes())) == 0;
}

// Reading takes some tiles at a time, here more than one reading for each piece and a last tile of
// five rows.
TEST(LoadWeight, FilesThatAreReadGiveTheTilesOfFilesThatAreMapped) {
  const llorch::test::TempDir dir;
  Random random(81);
  for (const DType dtype : {DType::Q8_0, DType::Q4_K, DType::Q6_K, DType::F16, DType::BF16,
                            DType::F32, DType::IQ2_XXS}) {
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(fmt::format("{} by {}", tensor::name(dtype), threads));
      InFile matrix(dir, dtype, 16 * 70 + 5, random);
      const auto backend = make_cpu(threads);
      const Result<Weight> read = backend->load_weight(matrix.source);
      matrix.source.file = nullptr;
      const Result<Weight> mapped = backend->load_weight(matrix.source);
      ASSERT_TRUE(read.ok() && mapped.ok());
      EXPECT_TRUE(are_equal(*read, *mapped));
    }
  }
}

// Rows and columns exchanged: taken from where the file is mapped.
TEST(LoadWeight, TransposedMatricesAreTheSameWithAndWithoutTheirFile) {
  const llorch::test::TempDir dir;
  Random random(82);
  InFile matrix(dir, DType::F16, 40, random);
  std::swap(matrix.source.rows, matrix.source.cols);
  std::swap(matrix.source.row_stride, matrix.source.col_stride);
  const auto backend = make_cpu(2);
  const Result<Weight> with = backend->load_weight(matrix.source);
  matrix.source.file = nullptr;
  const Result<Weight> without = backend->load_weight(matrix.source);
  ASSERT_TRUE(with.ok() && without.ok());
  EXPECT_TRUE(are_equal(*with, *without));
}

TEST(LoadWeight, AFileThatWasCutIsAnErrorThatNamesTensorAndFile) {
  const llorch::test::TempDir dir;
  Random random(83);
  const InFile matrix(dir, DType::Q8_0, 512, random);
  std::filesystem::resize_file(matrix.path, 200000);
  for (const int threads : {1, 2}) {
    const Result<Weight> cut = make_cpu(threads)->load_weight(matrix.source);
    ASSERT_FALSE(cut.ok());
    EXPECT_EQ(cut.error().code, ErrorCode::Unavailable);
    EXPECT_TRUE(
        cut.error().message.starts_with("w: " + matrix.path.string() + " ends at byte 200000 of "))
        << cut.error().message;
  }
}

}  // namespace
}  // namespace llorch::compute::test
