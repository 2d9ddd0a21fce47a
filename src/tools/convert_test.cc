// llorch-convert as a user runs it.
#include "tools/convert.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "base/json.h"
#include "compute/create.h"
#include "formats/gguf_reader.h"
#include "formats/safetensors_reader.h"
#include "model/checkpoints.h"
#include "model/load.h"
#include "support/run_program.h"
#include "support/test_paths.h"
#include "tokenizer/load.h"
#include "tools/gguf_numbers.h"
#include "tools/test_model.h"

namespace llorch::tools {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

test::ProgramOutcome run_program(std::vector<std::string> arguments) {
  return test::run_program(LLORCH_CONVERT, std::move(arguments));
}

// Converts and expects it to work.
void convert(const fs::path& in, const fs::path& out, const std::string& type,
             std::vector<std::string> more = {}) {
  std::vector<std::string> arguments = {in.string(), out.string(), "--type", type};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const test::ProgramOutcome outcome = run_program(arguments);
  ASSERT_EQ(outcome.exit_code, 0) << in << ": " << outcome.err;
  ASSERT_EQ(outcome.err, "");
}

std::string content(const fs::path& path) {
  return base::read_text_file(path, std::size_t{1} << 30).take();
}

struct Answer {
  std::vector<float> logits;  // of the whole prompt
  std::vector<std::int32_t> ids;
};

Answer ask(const fs::path& path, std::span<const std::int32_t> prompt, std::int32_t count) {
  // With float input: what differs is what was written.
  const auto backend =
      compute::make_backend("cpu", {.threads = 1, .input = compute::InputForm::F32}).take();
  auto loaded = model::load_model(path, *backend);
  CHECK(loaded.ok(), loaded.error().message);
  auto trace = model::record_trace(loaded.value(), *backend, prompt, count);
  CHECK(trace.ok(), trace.error().message);
  return {trace->tensors.at("logits").values, trace->greedy_ids};
}

double relative_error(const std::vector<float>& found, const std::vector<float>& expected) {
  double error = 0, energy = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    error += std::pow(double{found[i]} - double{expected[i]}, 2);
    energy += std::pow(double{expected[i]}, 2);
  }
  return std::sqrt(error / energy);
}

std::vector<std::int32_t> golden_ids(const fs::path& folder, std::string_view name) {
  const auto file = formats::read_safetensors(folder / "golden.safetensors").take();
  const formats::WeightTensor* tensor = file.find(name);
  CHECK(tensor != nullptr, std::string(name));
  std::vector<std::int32_t> ids(tensor->bytes.size() / sizeof(std::int32_t));
  std::memcpy(ids.data(), tensor->bytes.data(), tensor->bytes.size());
  return ids;
}

std::vector<fs::path> fixtures() {
  std::vector<fs::path> folders = {test::source_path("tests/golden/gpt2_tiny"),
                                   test::source_path("tests/golden/gpt2_bf16")};
  for (const auto& entry : fs::directory_iterator(test::source_path("tests/golden/families")))
    folders.push_back(entry.path());
  return folders;
}

// The permuted rows, turned matrices, shifted norms and rotary tables of every family:
// transformers' own ids come out of the GGUF file.
TEST(ConvertProgram, EveryFamilyComputesTheSameFromGguf) {
  const test::TempDir folder;
  const std::vector<fs::path> all = fixtures();
  EXPECT_GE(all.size(), 10U);
  for (const fs::path& from : all) {
    SCOPED_TRACE(from.string());
    const fs::path out = folder / (from.filename().string() + ".gguf");
    convert(from, out, "f32", {"--no-tokenizer"});
    if (HasFatalFailure()) return;
    const std::vector<std::int32_t> prompt = golden_ids(from, "ids");
    const std::vector<std::int32_t> expected = golden_ids(from, "greedy_ids");
    const auto count = static_cast<std::int32_t>(expected.size() - prompt.size());
    const Answer before = ask(from, prompt, count), after = ask(out, prompt, count);
    EXPECT_EQ(after.ids, expected);
    EXPECT_LT(relative_error(after.logits, before.logits), 1e-5);
  }
}

// transformers ties no matrices that are both in the file and differ, whatever config.json says.
TEST(ConvertProgram, AnOutputOfItsOwnIsKeptWhereConfigSaysTied) {
  const test::TempDir folder;
  const fs::path from = test::source_path("tests/golden/families/llama");
  json::Value config = json::parse(content(from / "config.json")).take();
  ASSERT_EQ(config.as_object()["tie_word_embeddings"], json::Value(false));
  config.as_object()["tie_word_embeddings"] = true;
  fs::create_directory(folder / "in");
  std::ofstream(folder / "in" / "config.json") << json::serialize(config);
  fs::create_symlink(from / "model.safetensors", folder / "in" / "model.safetensors");
  convert(folder / "in", folder / "out.gguf", "f32", {"--no-tokenizer"});
  if (HasFatalFailure()) return;
  const std::vector<std::int32_t> prompt = golden_ids(from, "ids");
  const Answer before = ask(from, prompt, 8), after = ask(folder / "out.gguf", prompt, 8);
  EXPECT_EQ(after.ids, before.ids);
  EXPECT_LT(relative_error(after.logits, before.logits), 1e-5);
}

TEST(ConvertProgram, QuantisedTypesStayWithinTheirError) {
  const test::TempDir folder;
  write_test_model(folder / "in");
  const std::vector<std::int32_t> prompt = {5, 100, 33, 250, 400, 7, 90, 12};
  const Answer before = ask(folder / "in", prompt, 4);
  // Random weights drown in noise sooner than trained ones; each bound is half as much again as
  // what was measured.
  const std::pair<const char*, double> bounds[] = {
      {"f16", 0.0016}, {"bf16", 0.012},  {"q8_0", 0.034}, {"q6_k", 0.115},
      {"q5_k", 0.25},  {"q5_k_m", 0.24}, {"q5_1", 0.28},  {"q5_0", 0.28},
      {"q4_k", 0.43},  {"q4_k_m", 0.44}, {"q4_1", 0.52},  {"q4_0", 0.54}};
  for (const auto& [type, bound] : bounds) {
    const fs::path out = folder / (std::string(type) + ".gguf");
    convert(folder / "in", out, type);
    const double error = relative_error(ask(out, prompt, 4).logits, before.logits);
    EXPECT_LT(error, bound) << type;
    EXPECT_GT(error, 0) << type;
  }
}

TEST(ConvertProgram, EveryFamilyInEveryTypeStaysWithinItsError) {
  const test::TempDir folder;
  // Half as much again as the worst that was measured, as above. The fixtures' rows are no whole
  // blocks of the K types, whose place Q5_0 and Q8_0 take.
  const std::pair<const char*, double> bounds[] = {{"f16", 0.0021}, {"bf16", 0.022},
                                                   {"q8_0", 0.062}, {"q4_0", 0.78},
                                                   {"q4_k", 0.41},  {"q6_k", 0.062}};
  for (const fs::path& from : fixtures()) {
    const std::vector<std::int32_t> prompt = golden_ids(from, "ids");
    const Answer before = ask(from, prompt, 1);
    for (const auto& [type, bound] : bounds) {
      SCOPED_TRACE(fmt::format("{} as {}", from.filename().string(), type));
      const fs::path out = folder / fmt::format("{}-{}.gguf", from.filename().string(), type);
      const test::ProgramOutcome outcome =
          run_program({from.string(), out.string(), "--type", type, "--no-tokenizer"});
      ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
      EXPECT_LT(relative_error(ask(out, prompt, 1).logits, before.logits), bound);
    }
  }
}

TEST(ConvertProgram, TheTokenizerAndTemplateComeAlong) {
  const test::TempDir folder;
  write_test_model(folder / "in");
  convert(folder / "in", folder / "out.gguf", "q4_k_m");
  const auto before = tokenizer::load_tokenizer(folder / "in").take();
  const auto after = tokenizer::load_tokenizer(folder / "out.gguf").take();
  for (const char* text : {"Hello, world", "a\n\n  b", "größer 日本 👋"}) {
    EXPECT_EQ(before.encode(text, {true, true}).take(), after.encode(text, {true, true}).take());
  }
  EXPECT_EQ(*after.chat_template(), "{{ messages[0].content }}");
  const auto file = formats::read_gguf(folder / "out.gguf").take();
  EXPECT_EQ(file.metadata().integer("general.file_type").value(), 15);
  EXPECT_EQ(file.metadata().text("general.name").value(), "in");
  EXPECT_EQ(file.metadata().integers("tokenizer.ggml.token_type").value().size(), 740U);
}

TEST(ConvertProgram, ThreadsAndFormatsDoNotChangeTheBytes) {
  const test::TempDir folder;
  write_test_model(folder / "in");
  convert(folder / "in", folder / "one.gguf", "q4_k_m", {"--threads", "1"});
  convert(folder / "in", folder / "three.gguf", "q4_k_m", {"--threads", "3"});
  EXPECT_EQ(content(folder / "one.gguf"), content(folder / "three.gguf"));
  // Files are in the same order in every packaging.
  const fs::path gpt2 = test::source_path("tests/golden/gpt2_tiny");
  convert(gpt2, folder / "safetensors.gguf", "q8_0", {"--no-tokenizer"});
  convert(gpt2 / "pytorch", folder / "pytorch.gguf", "q8_0", {"--no-tokenizer"});
  const auto a = formats::read_gguf(folder / "safetensors.gguf").take();
  const auto b = formats::read_gguf(folder / "pytorch.gguf").take();
  ASSERT_EQ(a.tensors().size(), b.tensors().size());
  for (const formats::WeightTensor& tensor : a.tensors()) {
    ASSERT_NE(b.find(tensor.name), nullptr) << tensor.name;
    EXPECT_TRUE(std::ranges::equal(tensor.bytes, b.find(tensor.name)->bytes)) << tensor.name;
  }
}

TEST(ConvertProgram, RequantisesGgufAndKeepsItsFacts) {
  const test::TempDir folder;
  write_test_model(folder / "in");
  convert(folder / "in", folder / "f32.gguf", "f32");
  convert(folder / "f32.gguf", folder / "again.gguf", "f32");
  EXPECT_EQ(content(folder / "f32.gguf"), content(folder / "again.gguf"));
  // By way of a GGUF file or directly: the same.
  convert(folder / "in", folder / "direct.gguf", "q5_k_m");
  convert(folder / "f32.gguf", folder / "second.gguf", "q5_k_m");
  EXPECT_EQ(content(folder / "direct.gguf"), content(folder / "second.gguf"));
  // Blocks of the wanted type are taken as they are; decoding others is said.
  const auto same = run_program({folder / "direct.gguf", folder / "same.gguf", "--type", "q5_k_m"});
  EXPECT_EQ(content(folder / "direct.gguf"), content(folder / "same.gguf"));
  EXPECT_THAT(same.out, Not(HasSubstr("already")));
  const auto lossy = run_program({folder / "direct.gguf", folder / "lossy.gguf", "--type", "q4_0"});
  EXPECT_THAT(lossy.out, HasSubstr("quantised already"));
}

TEST(ConvertProgram, RotaryTablesOutliveTheSecondConversion) {
  const test::TempDir folder;
  for (const std::string name : {"llama", "phi3_long", "gemma3"}) {
    const fs::path from = test::source_path("tests/golden/families") / name;
    convert(from, folder / (name + ".gguf"), "f32", {"--no-tokenizer"});
    convert(folder / (name + ".gguf"), folder / (name + "-again.gguf"), "f32");
    EXPECT_EQ(content(folder / (name + ".gguf")), content(folder / (name + "-again.gguf")));
    convert(folder / (name + ".gguf"), folder / (name + "-q8_0.gguf"), "q8_0");
  }
}

TEST(ConvertProgram, NotesRowsThatAreNotWholeBlocks) {
  const test::TempDir folder;
  const auto outcome = run_program({test::source_path("tests/golden/families/llama"),
                                    folder / "out.gguf", "--type", "q4_k", "--no-tokenizer"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out,
              AllOf(HasSubstr("note:"), HasSubstr("Q5_0"), HasSubstr("bits per weight")));
  EXPECT_THAT(outcome.out, Not(HasSubstr("\x1b")));
}

TEST(ConvertProgram, SpeaksJson) {
  const test::TempDir folder;
  const auto outcome =
      run_program({test::source_path("tests/golden/gpt2_tiny"), folder / "out.gguf", "--type",
                   "q8_0", "--no-tokenizer", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const json::Value value = json::parse(outcome.out).take();
  const auto help = run_program({"--help"});
  for (const char* key : {"input", "output", "type", "tensors", "weights", "bytes_before",
                          "bytes_after", "bits_per_weight", "types", "notes", "seconds"}) {
    EXPECT_TRUE(value.as_object().contains(key)) << key;
    EXPECT_THAT(help.out, HasSubstr(key));
  }
  EXPECT_LT(value.at("bytes_after").as_int64(), value.at("bytes_before").as_int64());
  EXPECT_THAT(json::serialize(value.at("notes")), HasSubstr("no worker starts on it"));
  EXPECT_THAT(help.out, HasSubstr("no worker starts on such a file"));
}

// Differences of two readings are told in words, not as numbers of our own.
TEST(GgufNumbers, ADifferenceIsToldByName) {
  model::ModelConfig before;
  before.head_dim = 16;
  model::ModelConfig after = before;
  EXPECT_EQ(find_difference(before, after), "");
  after.activation = compute::Activation::Silu;
  EXPECT_EQ(find_difference(before, after), "the activation is gelu_tanh before and silu after");
  after = before;
  after.norm = model::NormKind::RmsNorm;
  EXPECT_EQ(find_difference(before, after),
            "the kind of norm is LayerNorm before and RMSNorm after");
  after = before;
  after.tied_output = true;
  EXPECT_EQ(find_difference(before, after), "a tied output is no before and yes after");
}

TEST(ConvertProgram, NamesTheTensorThatHoldsNoNumber) {
  const test::TempDir folder;
  write_test_model(folder / "in", {.has_nan = true});
  for (const char* type : {"f32", "f16", "q8_0", "q4_k_m"}) {
    const auto outcome = run_program({folder / "in", folder / "out.gguf", "--type", type});
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("blk.1.ffn_up.weight"), HasSubstr("nan"))) << type;
  }
  int left = 0;
  for (const auto& entry : fs::directory_iterator(folder.path())) left += entry.is_regular_file();
  EXPECT_EQ(left, 0) << "nothing half-written stays";
}

TEST(ConvertProgram, RefusesWithTheNextStep) {
  const test::TempDir folder;
  const std::string gpt2 = test::source_path("tests/golden/gpt2_tiny");
  const std::string out = folder / "out.gguf";
  const auto without = run_program({gpt2, out, "--type", "f16"});
  EXPECT_EQ(without.exit_code, 1);
  EXPECT_THAT(without.err, AllOf(StartsWith("llorch-convert: "), HasSubstr("tokenizer.json"),
                                 HasSubstr("--no-tokenizer")));
  ASSERT_TRUE(base::write_file_atomically(fs::path(out), std::string_view("mine")).ok());
  const auto there = run_program({gpt2, out, "--type", "f16", "--no-tokenizer"});
  EXPECT_EQ(there.exit_code, 1);
  EXPECT_THAT(there.err, HasSubstr("--force"));
  EXPECT_EQ(content(out), "mine");
  EXPECT_EQ(run_program({gpt2, out, "--type", "f16", "--no-tokenizer", "--force"}).exit_code, 0);
  const auto same = run_program({out, out, "--type", "f16", "--force"});
  EXPECT_EQ(same.exit_code, 1);
  EXPECT_THAT(same.err, HasSubstr("is the input"));
  EXPECT_THAT(run_program({"/nowhere", out + "2", "--type", "f16"}).err, HasSubstr("/nowhere"));
  EXPECT_THAT(run_program({gpt2, folder.path(), "--type", "f16"}).err, HasSubstr("folder"));
}

TEST(ConvertProgram, UsageErrorsAreTwo) {
  EXPECT_EQ(run_program({}).exit_code, 2);
  EXPECT_EQ(run_program({"a", "b"}).exit_code, 2);
  const auto type = run_program({"a", "b", "--type", "q3"});
  EXPECT_EQ(type.exit_code, 2);
  EXPECT_THAT(type.err, HasSubstr("q3"));
  EXPECT_EQ(run_program({"a", "b", "--type", "f16", "--threads", "-1"}).exit_code, 2);
  for (const char* seed : {"-1", "18446744073709551616", "1e3", ""}) {
    const auto random = run_program({"--random", "gpt2", "b", "--type", "f16", "--seed", seed});
    EXPECT_EQ(random.exit_code, 2) << seed;
    EXPECT_THAT(random.err, HasSubstr("0 to 18446744073709551615")) << seed;
  }
  const auto help = run_program({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("Examples:"), HasSubstr("q4_k_m")));
}

TEST(ConvertProgram, RandomModelsAreTheSameForTheSameSeed) {
  const test::TempDir folder;
  const auto make = [&](const char* name, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"--random", "smollm2-135m", folder / name, "--type",
                                          "q4_0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(arguments);
  };
  ASSERT_EQ(make("a.gguf", {}).exit_code, 0);
  ASSERT_EQ(make("b.gguf", {"--seed", "0", "--json"}).exit_code, 0);
  ASSERT_EQ(make("c.gguf", {"--seed", "7"}).exit_code, 0);
  const std::string first = content(folder / "a.gguf");
  EXPECT_TRUE(first == content(folder / "b.gguf"));
  EXPECT_FALSE(first == content(folder / "c.gguf"));
  EXPECT_THAT(make("a.gguf", {}).err, HasSubstr("--force"));
  EXPECT_EQ(make("a.gguf", {"another.gguf"}).exit_code, 2);
  const auto unknown = run_program({"--random", "nobody", folder / "d.gguf", "--type", "q4_0"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("nobody"));
  EXPECT_THAT(run_program({"a", "b", "--type", "f16", "--tokenizer", "c"}).err,
              HasSubstr("--random"));
}

class RealConversion : public testing::TestWithParam<const char*> {};

// A trained model with its own tokenizer: transformers' greedy ids from F32 and F16 GGUF.
TEST_P(RealConversion, ContinuesAsTransformersDoes) {
  const auto from = test::data_path(std::string("weights/") + GetParam() + "/hf");
  if (!from) GTEST_SKIP() << GetParam() << " is absent";
  const json::Value golden = json::parse(content(*from / "golden.json")).take();
  const auto ids_of = [&](const char* key) {
    std::vector<std::int32_t> ids;
    for (const json::Value& id : golden.at(key).as_array())
      ids.push_back(static_cast<std::int32_t>(id.as_int64()));
    return ids;
  };
  const std::vector<std::int32_t> prompt = ids_of("input_ids"), expected = ids_of("greedy_ids");
  const test::TempDir folder;
  for (const char* type : {"f32", "f16"}) {
    const fs::path out = folder / (std::string(type) + ".gguf");
    convert(*from, out, type);
    const Answer answer =
        ask(out, prompt, static_cast<std::int32_t>(expected.size() - prompt.size()));
    EXPECT_EQ(answer.ids, expected) << type;
    const auto text = std::string(json::view(golden.at("prompt").as_string()));
    EXPECT_EQ(tokenizer::load_tokenizer(out).take().encode(text, {true, true}).take(), prompt);
  }
}
INSTANTIATE_TEST_SUITE_P(SharedData, RealConversion,
                         testing::Values("stories260K", "minimind2-small"),
                         [](const auto& instance) {
                           return instance.index == 0 ? std::string("stories260K")
                                                      : std::string("minimind2_small");
                         });

}  // namespace
}  // namespace llorch::tools
