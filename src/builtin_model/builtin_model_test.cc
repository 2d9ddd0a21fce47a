#include "builtin_model/builtin_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "base/file.h"
#include "contract/model_entry.h"
#include "support/test_paths.h"

namespace llorch::builtin_model {
namespace {

constexpr std::size_t kBytesMax = 16'000'000;
constexpr std::uintptr_t kAlignment = 32;

TEST(BuiltinModel, IsTheCommittedFileByteForByte) {
  const auto file = base::MappedFile::open(test::source_path("models/builtin/stories.gguf"));
  ASSERT_TRUE(file.ok()) << file.error().message;
  const std::span<const std::byte> committed = (*file)->bytes();
  EXPECT_TRUE(std::equal(committed.begin(), committed.end(), gguf().begin(), gguf().end()));
  EXPECT_LE(gguf().size(), kBytesMax);
}

TEST(BuiltinModel, OpensInPlace) {
  const auto file = open();
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->path(), contract::kBuiltinModel);
  EXPECT_EQ(file->metadata().text("general.architecture").take(), "llama");
  EXPECT_EQ(file->metadata().integer("llama.block_count").take(), 8);
  EXPECT_EQ(file->metadata().integer("llama.context_length").take(), 1024);
  EXPECT_EQ(file->tensors().size(), 8U * 9 + 2);  // tied: no output matrix
  for (const formats::WeightTensor& tensor : file->tensors()) {
    EXPECT_GE(tensor.bytes.data(), gguf().data());
    EXPECT_LE(tensor.bytes.data() + tensor.bytes.size(), gguf().data() + gguf().size());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.bytes.data()) % kAlignment, 0U)
        << tensor.name;
  }
}

}  // namespace
}  // namespace llorch::builtin_model
