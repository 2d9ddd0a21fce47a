#include "model/load.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "compute/create.h"
#include "formats/open.h"
#include "support/test_paths.h"

namespace llorch::model {
namespace {

// While a matrix is packed there are its bytes twice: that of the largest must not come last.
TEST(Load, TheLargestMatricesComeFirst) {
  const auto path = test::source_path("tests/golden/families/llama");
  const auto file = std::make_shared<const formats::WeightFile>(formats::open_weights(path).take());
  ModelPlan plan = plan_model(*file, {}).take();
  std::int64_t vocabulary = 0;  // bytes of the embedding, and of the output matrix
  std::int64_t others = 0;
  for (const MappedTensor& mapped : plan.tensors) {
    const auto bytes = static_cast<std::int64_t>(mapped.tensor->bytes.size());
    const Role role = mapped.spec.role;
    (role == Role::TokenEmbedding || role == Role::Output ? vocabulary : others) += bytes;
  }
  ASSERT_EQ(plan.tensors.front().spec.role, Role::TokenEmbedding);
  const auto table = static_cast<std::int64_t>(plan.tensors.front().tensor->bytes.size());
  ASSERT_EQ(vocabulary, 2 * table) << "a model whose output matrix is its own";
  std::vector<std::int64_t> done;
  const auto backend = compute::make_backend("cpu", {.threads = 1}).take();
  const auto loaded = load_model(file, std::move(plan), *backend, [&](auto bytes, auto) {
    done.push_back(bytes);
    return true;
  });
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  ASSERT_GT(done.size(), 3U);
  EXPECT_EQ(done[1], table);
  EXPECT_EQ(done[2], 2 * table);
  EXPECT_LT(done.back(), vocabulary + others);
}

}  // namespace
}  // namespace llorch::model
