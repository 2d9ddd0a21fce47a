#include "catalog/supported.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "catalog/describe.h"
#include "compute/cuda/quant.cuh"
#include "compute/dequantize.h"
#include "formats/gguf_writer.h"
#include "formats/open.h"
#include "model/architecture.h"
#include "support/test_paths.h"
#include "tensor/dtype.h"

namespace llorch::catalog {
namespace {

using contract::ModelEntry;
using testing::HasSubstr;

TEST(SupportedArchitectures, AreThoseOfTheModelModule) {
  std::set<std::string_view> runnable;
  for (const model::Architecture& architecture : model::architectures()) {
    runnable.insert(architecture.name);
    if (!architecture.other_name.empty()) runnable.insert(architecture.other_name);
  }
  const auto listed = supported_architectures();
  EXPECT_EQ(std::set<std::string_view>(listed.begin(), listed.end()), runnable);
}

TEST(UnsupportedTypes, AreThoseThatNoBackendDecodes) {
  const auto listed = unsupported_types();
  const std::set<std::string_view> unsupported(listed.begin(), listed.end());
  std::set<std::string_view> undecodable;
  for (const tensor::DTypeInfo& info : tensor::all_dtypes()) {
    const bool cpu = compute::can_dequantize(info.dtype);
    const bool cuda = compute::cuda::with_decoder(info.dtype, [](auto) {});
    EXPECT_EQ(cpu, cuda) << info.name << ": describe the backends apart from each other";
    if (!cpu) undecodable.insert(info.name);
  }
  EXPECT_EQ(unsupported, undecodable);
}

TEST(ArchitectureOf, IsWhatTheModelModuleDetects) {
  for (const char* folder : {"tests/golden/gpt2_tiny", "tests/golden/families/llama",
                             "tests/golden/families/gemma3", "tests/golden/families/phi3"}) {
    const auto file = formats::open_weights(test::source_path(folder));
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(architecture_of(*file, formats::summarize(*file)),
              model::declared_architecture(*file).take());
  }
  // Without a config.json: GPT-2 by its tensors, others not at all.
  const test::TempDir dir;
  for (const char* name : {"gpt2_tiny", "families/llama"}) {
    const auto bare = dir / "model.safetensors";
    std::filesystem::copy_file(
        test::source_path(std::string("tests/golden/") + name + "/model.safetensors"), bare,
        std::filesystem::copy_options::overwrite_existing);
    const auto file = formats::open_weights(bare);
    ASSERT_TRUE(file.ok()) << file.error().message;
    const auto declared = model::declared_architecture(*file);
    EXPECT_EQ(architecture_of(*file, formats::summarize(*file)),
              declared.ok() ? *declared : std::string());
  }
}

// A GGUF file of one matrix of that type.
std::filesystem::path write_gguf(const test::TempDir& dir, std::string_view architecture,
                                 tensor::DType dtype) {
  const tensor::DTypeInfo& info = tensor::info(dtype);
  const std::vector<std::byte> bytes(static_cast<std::size_t>(info.block_bytes) * 2);
  formats::GgufWriter writer;
  if (!architecture.empty()) writer.add_text("general.architecture", architecture);
  writer.add_tensor({.name = "blk.0.attn_q.weight",
                     .dtype = dtype,
                     .shape = {2, info.block_elems},
                     .bytes = bytes,
                     .produce = nullptr});
  const std::filesystem::path path = dir / "model.gguf";
  const Status written = writer.write(path);
  EXPECT_TRUE(written.ok()) << written.error().message;
  return path;
}

ModelEntry described(const test::TempDir& dir, std::string_view architecture,
                     tensor::DType dtype = tensor::DType::F16) {
  ModelEntry entry;
  EXPECT_TRUE(describe_files(write_gguf(dir, architecture, dtype), entry).ok());
  return entry;
}

TEST(FindSupport, NamesTheTypeAndTheTensor) {
  const test::TempDir dir;
  ModelEntry entry = described(dir, "llama", tensor::DType::Q8_K);
  EXPECT_TRUE(entry.backends.empty());
  EXPECT_THAT(entry.unsupported, HasSubstr("Q8_K"));
  EXPECT_THAT(entry.unsupported, HasSubstr("blk.0.attn_q.weight"));
  entry = described(dir, "llama", tensor::DType::IQ4_XS);
  EXPECT_FALSE(entry.backends.empty()) << entry.unsupported;
  EXPECT_EQ(entry.unsupported, "");
}

TEST(FindSupport, NamesAnArchitectureThatNobodyRuns) {
  const test::TempDir dir;
  const ModelEntry entry = described(dir, "mamba\n2");
  EXPECT_TRUE(entry.backends.empty());
  EXPECT_THAT(entry.unsupported, HasSubstr("mamba"));
  EXPECT_EQ(entry.architecture.find('\n'), std::string::npos);
  EXPECT_THAT(described(dir, "").unsupported, HasSubstr("general.architecture"));
}

}  // namespace
}  // namespace llorch::catalog
