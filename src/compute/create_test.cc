#include "compute/create.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/host_limits.h"
#include "compute/cpu/cpu_backend.h"
#include "compute/cpu/kernels.h"
#include "compute/cpu/packed.h"

namespace llorch::compute {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

TEST(MakeBackend, MakesEachByName) {
  EXPECT_EQ(make_backend("reference").value()->name(), "reference");
  const auto cpu = make_backend("cpu", {.threads = 3});
  ASSERT_TRUE(cpu.ok());
  EXPECT_THAT(cpu.value()->name(), HasSubstr("cpu ("));
  EXPECT_THAT(cpu.value()->name(), HasSubstr(", 3 threads)"));
}

TEST(MakeBackend, TakesAllCoresWhenNotTold) {
  ASSERT_GE(base::usable_cores(), 1);
  EXPECT_THAT(make_backend("cpu").value()->name(),
              HasSubstr(std::to_string(base::usable_cores()) + " thread"));
}

TEST(MakeBackend, ForcesAnInstructionSet) {
  for (const Isa& isa : available_isas()) {
    const auto backend = make_backend("cpu", {.threads = 1, .isa = isa.name});
    ASSERT_TRUE(backend.ok());
    EXPECT_EQ(backend.value()->name(), "cpu (" + std::string(isa.label) + ", 1 thread)");
    EXPECT_EQ(backend.value()->device_class(), "cpu-" + std::string(isa.bits_of));
    const auto with_more = make_backend("cpu", {.threads = 2, .isa = isa.name});
    EXPECT_EQ(with_more.value()->device_class(), backend.value()->device_class());
  }
  const auto unknown = make_backend("cpu", {.isa = "mmx"});
  ASSERT_FALSE(unknown.ok());
  EXPECT_THAT(unknown.error().message, HasSubstr("no instruction set 'mmx'"));
  EXPECT_THAT(unknown.error().message, HasSubstr(std::string(available_isas().back().name)));
}

// Sets whose products of BF16 weights round differ from the others in those alone: a model without
// them may move.
TEST(MakeBackend, TheClassTellsProductsOfBf16OnceThereAreSome) {
  const std::vector<std::byte> bytes(std::size_t{32} * 32 * 4);
  const auto load = [&](Backend& backend, tensor::DType dtype, WeightUse use) {
    const auto weight =
        backend.load_weight({.name = "w",
                             .dtype = dtype,
                             .rows = 32,
                             .cols = 32,
                             .row_stride = 32,
                             .use = use,
                             .bytes = std::span(bytes).first(static_cast<std::size_t>(
                                 tensor::storage_bytes(dtype, 32 * 32).value()))});
    ASSERT_TRUE(weight.ok()) << weight.error().message;
  };
  for (const Isa& isa : available_isas()) {
    const auto backend = make_backend("cpu", {.threads = 1, .isa = isa.name}).take();
    const std::string plain = "cpu-" + std::string(isa.bits_of);
    for (const tensor::DType dtype : {tensor::DType::F32, tensor::DType::F16, tensor::DType::Q8_0})
      load(*backend, dtype, WeightUse::Multiply);
    load(*backend, tensor::DType::BF16, WeightUse::LookUp);
    EXPECT_EQ(backend->device_class(), plain);
    load(*backend, tensor::DType::BF16, WeightUse::Multiply);
    const bool rounds = backend->input_form(tensor::DType::BF16) == InputForm::BF16;
    EXPECT_EQ(rounds, isa.packed->round != nullptr) << isa.name;
    EXPECT_EQ(backend->device_class(), plain + (rounds ? "bf16" : ""));
  }
}

TEST(MakeBackend, RoundsWeightsOnTheReferenceAlone) {
  using tensor::DType;
  EXPECT_EQ(make_backend("reference").value()->weight_form(DType::Q4_K), WeightForm::Exact);
  const auto half = make_backend("reference", {.weights = WeightForm::Half}).take();
  EXPECT_EQ(half->weight_form(DType::Q4_K), WeightForm::Half);
  const std::vector<std::byte> zeros(1024);
  const auto load = [&](DType dtype, WeightUse use) {
    return half->load_weight({.name = "w",
                              .dtype = dtype,
                              .rows = 1,
                              .cols = 256,
                              .row_stride = 256,
                              .use = use,
                              .bytes = std::span(zeros).first(static_cast<std::size_t>(
                                  tensor::storage_bytes(dtype, 256).value()))});
  };
  EXPECT_TRUE(load(DType::Q4_K, WeightUse::Multiply).ok());
  EXPECT_TRUE(load(DType::IQ2_XXS, WeightUse::LookUp).ok());
  for (const DType dtype : {DType::IQ2_XXS, DType::Q2_K, DType::F32}) {
    const Result<Weight> refused = load(dtype, WeightUse::Both);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().message,
              "w: weights of " + std::string(tensor::name(dtype)) + " cannot be rounded to half");
  }
  for (const std::string_view name : {"cpu", "cuda:0"}) {
    const auto other = make_backend(name, {.weights = WeightForm::Half});
    ASSERT_FALSE(other.ok());
    EXPECT_THAT(other.error().message, HasSubstr("half weights for all can be had on reference"));
  }
}

TEST(MakeBackend, SaysWhatThereIsInsteadOfFallingBack) {
  const auto cuda = make_backend("cuda:99");
  ASSERT_FALSE(cuda.ok());
  EXPECT_THAT(cuda.error().message,
              AnyOf("cuda:99: built without CUDA; there are: cpu, reference",
                    HasSubstr("cuda:99: there is no such device; CUDA devices found: ")));
  for (const std::string name : {"tpu", "cuda", "cuda:", "cuda:-1", "cuda:0x", "cuda:9999999999"}) {
    const auto unknown = make_backend(name);
    ASSERT_FALSE(unknown.ok());
    EXPECT_EQ(unknown.error().message,
              "no backend '" + name + "'; there are: cpu, reference, cuda:N (as in cuda:0)");
  }
  EXPECT_FALSE(make_backend("cpu", {.threads = -1}).ok());
}

}  // namespace
}  // namespace llorch::compute
