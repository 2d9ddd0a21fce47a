// The reader on files we did not make: real models and vocabularies, the shared collection of
// malformed files, and headers and files of real sizes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <numeric>
#include <set>

#include "base/json.h"
#include "formats/gguf_reader.h"
#include "formats/gguf_test_image.h"
#include "formats/gguf_writer.h"
#include "formats/test_gguf.h"
#include "support/test_paths.h"

namespace llorch::formats {
namespace {

std::vector<std::filesystem::path> gguf_files_under(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".gguf") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

TEST(GgufData, MalformedFilesAreJudgedAsTheirManifestSays) {
  const auto manifest = test::data_path("fuzz/manifest.json");
  const auto folder = test::data_path("fuzz");
  if (!manifest || !folder) GTEST_SKIP() << "no fuzz/manifest.json in the test data";
  const auto entries = json::parse(base::read_text_file(*manifest, 1 << 20).take());
  ASSERT_TRUE(entries.ok()) << entries.error().message;
  std::set<std::string> judged;
  for (const json::Value& entry : entries->as_array()) {
    const std::string name(json::view(entry.at("file").as_string()));
    const std::string_view expect = json::view(entry.at("expect").as_string());
    if (!name.starts_with("gguf/")) continue;
    const auto file = read_gguf(*folder / name);
    const std::string outcome = file.ok() ? "accepted" : file.error().message;
    // A model that only the model's own rules refuse ("reject-model") is a sound file.
    if (expect == "accept" || expect == "reject-model") {
      EXPECT_TRUE(file.ok()) << name << ": " << outcome;
    } else if (expect == "reject") {
      EXPECT_FALSE(file.ok()) << name;
    }
    judged.insert(name);
  }
  EXPECT_EQ(judged.size(), gguf_files_under(*folder / "gguf").size())
      << "every file is in the manifest";
  EXPECT_GT(judged.size(), 100U);
}

std::int64_t padded(std::int64_t bytes) {
  return (bytes + 31) / 32 * 32;
}

// Sizes by our type table must add up to what the file has: header, then each tensor padded to 32
// bytes.
TEST(GgufData, TensorSizesOfRealModelsAddUpToTheFile) {
  const auto folder = test::data_path("weights");
  if (!folder) GTEST_SKIP() << "no weights/ in the test data";
  const auto paths = gguf_files_under(*folder);
  std::set<tensor::DType> types;
  for (const auto& path : paths) {
    const auto file = read_gguf(path);
    ASSERT_TRUE(file.ok()) << file.error().message;
    ASSERT_GT(file->tensors().size(), 0U) << path;
    const std::byte* first = file->tensors()[0].bytes.data();
    std::int64_t sum = 0;
    for (const WeightTensor& tensor : file->tensors()) {
      first = std::min(first, tensor.bytes.data());
      sum += padded(static_cast<std::int64_t>(tensor.bytes.size()));
      types.insert(tensor.dtype);
      EXPECT_GE(tensor.shape.rank(), 1);
    }
    const std::int64_t header = first - file->files()[0]->bytes().data();
    EXPECT_EQ(padded(file->file_bytes()), header + sum) << path;
    EXPECT_FALSE(file->metadata().text("general.architecture").take().empty()) << path;
  }
  EXPECT_GE(paths.size(), 14U);
  EXPECT_GE(types.size(), 10U) << "mixed files have several types each";
}

// The original project read string arrays as another variant, so the vocabulary size was never
// found.
TEST(GgufData, VocabulariesOfRealFilesAreReadable) {
  const auto folder = test::data_path("vocab");
  if (!folder) GTEST_SKIP() << "no vocab/ in the test data";
  const auto paths = gguf_files_under(*folder);
  ASSERT_FALSE(paths.empty());
  for (const auto& path : paths) {
    const auto file = read_gguf(path);
    ASSERT_TRUE(file.ok()) << file.error().message;
    const auto tokens = file->metadata().texts("tokenizer.ggml.tokens");
    ASSERT_TRUE(tokens.ok()) << tokens.error().message;
    EXPECT_GT(tokens->size(), 30'000U) << path;
    const auto kinds = file->metadata().integers("tokenizer.ggml.token_type");
    ASSERT_TRUE(kinds.ok()) << kinds.error().message;
    EXPECT_EQ(kinds->size(), tokens->size()) << path;
    EXPECT_TRUE(std::any_of(tokens->begin(), tokens->end(),
                            [](std::string_view token) { return token == "the"; }));
  }
}

std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t total_pages = 0;
  std::int64_t resident_pages = 0;
  statm >> total_pages >> resident_pages;
  return resident_pages * ::sysconf(_SC_PAGESIZE);
}

// Opens the file, prints how long that took and checks that it cost at most `allowed_bytes` of
// memory.
void expect_cheap_open(const std::filesystem::path& path, std::int64_t allowed_bytes) {
  const std::int64_t before = resident_bytes();
  const auto start = std::chrono::steady_clock::now();
  const auto file = read_gguf(path);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  const std::int64_t grown = resident_bytes() - before;
  ASSERT_TRUE(file.ok()) << file.error().message;
  fmt::print("opened {:.1f} GB, {} tensors, {} keys: {:.2f} ms, {:.1f} MB resident\n",
             static_cast<double>(file->file_bytes()) / 1e9, file->tensors().size(),
             file->metadata().size(), took.count(), static_cast<double>(grown) / 1e6);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  allowed_bytes *= 8;  // a sanitizer keeps shadows of what is read
#endif
  EXPECT_LT(grown, allowed_bytes);
}

TEST(GgufData, OpeningFourGigabytesReadsOnlyTheHeader) {
  const test::TempDir dir;
  constexpr std::uint64_t kElements = std::uint64_t{1} << 31;
  TestImage image(1, 1);
  image.text("general.architecture")
      .u32(8)
      .text("llama")
      .tensor("t", {1 << 16, kElements >> 16}, 1, 0)
      .data(0);
  std::ofstream(dir / "big.gguf", std::ios::binary)
      .write(reinterpret_cast<const char*>(image.bytes().data()),
             static_cast<std::streamsize>(image.bytes().size()));
  std::error_code refused;
  std::filesystem::resize_file(dir / "big.gguf", image.bytes().size() + 2 * kElements, refused);
  if (refused) GTEST_SKIP() << "no 4 GB file with a hole here: " << refused.message();
  expect_cheap_open(dir / "big.gguf", 4 << 20);
}

TEST(GgufData, OpeningARealisticHeaderCostsLittleMoreThanItself) {
  const test::TempDir dir;
  constexpr int kVocabulary = 150'000;
  std::vector<std::string> tokens;
  std::vector<std::string> merges;
  for (int i = 0; i < kVocabulary; ++i) {
    tokens.push_back(fmt::format("token{}", i));
    merges.push_back(fmt::format("tok en{}", i));
  }
  const std::vector<std::int32_t> kinds(kVocabulary, 1);
  GgufWriter writer;
  writer.add_text("general.architecture", "llama");
  add_texts(writer, "tokenizer.ggml.tokens", tokens);
  add_texts(writer, "tokenizer.ggml.merges", merges);
  writer.add_numbers<std::int32_t>("tokenizer.ggml.token_type", kinds);
  const std::vector<std::byte> bytes(32 * 34);
  for (int i = 0; i < 300; ++i) {
    writer.add_tensor({fmt::format("blk.{}.weight", i), tensor::DType::Q8_0, {32, 32}, bytes, {}});
  }
  ASSERT_TRUE(writer.write(dir / "m.gguf").ok());
  const auto header_bytes = static_cast<std::int64_t>(std::filesystem::file_size(dir / "m.gguf"));
  expect_cheap_open(dir / "m.gguf", header_bytes + (4 << 20));
}

}  // namespace
}  // namespace llorch::formats
