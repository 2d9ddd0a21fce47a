// The choices that llama-quantize makes, as read from the files it writes.
#include "tools/weight_types.h"

#include <gtest/gtest.h>

#include <string>

namespace llorch::tools {
namespace {

using tensor::DType;
using tensor::Shape;

DType choose(std::string_view type, std::string_view name, Shape shape, ModelFacts facts) {
  return choose_type(*find_weight_type(type), name, shape, facts).dtype;
}

TEST(WeightTypes, AreFoundByName) {
  EXPECT_EQ(weight_types().size(), 13U);
  EXPECT_EQ(find_weight_type("q4_k_m")->file_type, 15U);
  EXPECT_EQ(find_weight_type("Q4_K_M"), nullptr);
  EXPECT_EQ(find_weight_type(""), nullptr);
}

TEST(WeightTypes, VectorsNormsPositionsAndTablesStayF32) {
  const ModelFacts facts{8, true};
  for (const WeightType& type : weight_types()) {
    for (const auto& [name, shape] :
         {std::pair{"output_norm.weight", Shape{512}}, std::pair{"blk.0.attn_q.bias", Shape{512}},
          std::pair{"blk.0.attn_norm.weight", Shape{512}},
          std::pair{"blk.0.attn_q_norm.weight", Shape{4, 512}},
          std::pair{"position_embd.weight", Shape{1024, 512}},
          std::pair{"rope_freqs.weight", Shape{64}}}) {
      EXPECT_EQ(choose_type(type, name, shape, facts).dtype, DType::F32) << type.name << name;
    }
  }
}

TEST(WeightTypes, MixturesFavourValuesAndDownProjectionsOfSomeLayers) {
  const ModelFacts facts{8, true};
  for (std::int32_t layer = 0; layer < 8; ++layer) {
    const bool more = layer == 0 || layer == 3 || layer == 6 || layer == 7;
    for (const char* part : {"attn_v", "ffn_down", "attn_qkv"}) {
      const std::string name = "blk." + std::to_string(layer) + "." + part + ".weight";
      EXPECT_EQ(choose("q4_k_m", name, {512, 512}, facts), more ? DType::Q6_K : DType::Q4_K)
          << name;
      EXPECT_EQ(choose("q5_k_m", name, {512, 512}, facts), more ? DType::Q6_K : DType::Q5_K)
          << name;
      EXPECT_EQ(choose("q6_k", name, {512, 512}, facts), DType::Q6_K);
    }
    const std::string query = "blk." + std::to_string(layer) + ".attn_q.weight";
    EXPECT_EQ(choose("q4_k_m", query, {512, 512}, facts), DType::Q4_K);
    const std::string value = "blk." + std::to_string(layer) + ".attn_v.weight";
    EXPECT_EQ(choose("q4_k", value, {512, 512}, facts), layer < 4 ? DType::Q5_K : DType::Q4_K);
  }
  // Five layers: no first eighth.
  const ModelFacts five{5, false};
  EXPECT_EQ(choose("q4_k_m", "blk.0.attn_v.weight", {512, 512}, five), DType::Q4_K);
  EXPECT_EQ(choose("q4_k_m", "blk.2.attn_v.weight", {512, 512}, five), DType::Q6_K);
  EXPECT_EQ(choose("q4_k_m", "blk.4.attn_v.weight", {512, 512}, five), DType::Q6_K);
}

TEST(WeightTypes, TheOutputMatrixGetsSixBits) {
  for (const char* type : {"q4_0", "q5_1", "q4_k", "q5_k_m"}) {
    EXPECT_EQ(choose(type, "output.weight", {6400, 512}, {8, true}), DType::Q6_K) << type;
    EXPECT_EQ(choose(type, "token_embd.weight", {6400, 512}, {8, false}), DType::Q6_K) << type;
    EXPECT_EQ(choose(type, "token_embd.weight", {6400, 512}, {8, true}),
              find_weight_type(type)->dtype)
        << type;
  }
  EXPECT_EQ(choose("q8_0", "output.weight", {6400, 512}, {8, true}), DType::Q8_0);
  EXPECT_EQ(choose("f16", "output.weight", {6400, 512}, {8, true}), DType::F16);
}

TEST(WeightTypes, RowsThatAreNotWholeBlocksFallBack) {
  const ModelFacts facts{5, false};
  EXPECT_EQ(choose("q4_k", "blk.4.attn_k.weight", {32, 64}, facts), DType::Q5_0);
  EXPECT_EQ(choose("q5_k", "blk.4.attn_k.weight", {32, 64}, facts), DType::Q5_1);
  EXPECT_EQ(choose("q6_k", "blk.4.attn_k.weight", {32, 64}, facts), DType::Q8_0);
  EXPECT_EQ(choose("q4_0", "token_embd.weight", {512, 64}, facts), DType::Q8_0);
  for (const char* type : {"q4_0", "q8_0", "q4_k", "q6_k"})
    EXPECT_EQ(choose(type, "blk.4.ffn_down.weight", {64, 172}, facts), DType::F16) << type;
  const TypeChoice choice =
      choose_type(*find_weight_type("q4_k"), "blk.4.ffn_down.weight", {64, 172}, facts);
  EXPECT_TRUE(choice.fell_back);
  EXPECT_FALSE(
      choose_type(*find_weight_type("f16"), "blk.4.ffn_down.weight", {64, 172}, facts).fell_back);
}

}  // namespace
}  // namespace llorch::tools
