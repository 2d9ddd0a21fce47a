// llorch-checkpoints as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <vector>

#include "base/json.h"
#include "formats/safetensors_reader.h"
#include "support/run_program.h"
#include "support/test_paths.h"
#include "tools/test_model.h"

namespace llorch::tools {
namespace {

using testing::HasSubstr;
using testing::Not;

test::ProgramOutcome run_program(std::vector<std::string> arguments) {
  return test::run_program(LLORCH_CHECKPOINTS, std::move(arguments));
}

TEST(LlorchCheckpoints, PrintsTheLadder) {
  const auto outcome =
      run_program({"--model", test::source_path("tests/golden/gpt2_tiny").string()});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("12  end to end"));
  EXPECT_THAT(outcome.out, HasSubstr("all checkpoints pass"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("FAIL")));
  EXPECT_THAT(outcome.out, Not(HasSubstr("\x1b[")));  // no colour in a pipe
  EXPECT_EQ(outcome.err, "");
}

TEST(LlorchCheckpoints, AFullDiskIsAFailure) {
  const std::string command = std::string(LLORCH_CHECKPOINTS) + " --model " +
                              test::source_path("tests/golden/gpt2_tiny").string() + " >/dev/full";
  const auto outcome = test::run_program("/bin/sh", {"-c", command});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("llorch-checkpoints: the output could not be written"));
}

TEST(LlorchCheckpoints, ClimbsEveryFamily) {
  int climbed = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(test::source_path("tests/golden/families"))) {
    const auto outcome = run_program({"--model", entry.path().string()});
    EXPECT_EQ(outcome.exit_code, 0) << entry.path() << outcome.out << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("all checkpoints pass"));
    ++climbed;
  }
  EXPECT_GE(climbed, 8);
}

TEST(LlorchCheckpoints, SpeaksJson) {
  const auto outcome =
      run_program({"--model", test::source_path("tests/golden/gpt2_bf16").string(), "--json"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const json::Value parsed = json::parse(outcome.out).take();
  EXPECT_TRUE(parsed.at("passed").as_bool());
  ASSERT_EQ(parsed.at("checkpoints").as_array().size(), 12U);
  for (const json::Value& rung : parsed.at("checkpoints").as_array())
    EXPECT_TRUE(rung.at("passed").as_bool());
}

// A number between two halves goes to one or the other by its last bit, and a step of a half times
// a weight is more than the tolerance: the reference rounds to the side that the backend took.
TEST(LlorchCheckpoints, HoldsABackendThatRoundsItsInputToTheSameTolerances) {
  for (const char* form : {"f16", "int8"}) {
    std::int64_t taken = 0;
    for (const char* name : {"gpt2_bf16", "quantised/qwen2.gguf", "quantised/qwen3.gguf",
                             "quantised/mistral.gguf", "quantised/gemma3.gguf"}) {
      const std::string path = test::source_path("tests/golden").string() + "/" + name;
      const auto outcome = run_program({"--model", path, "--input", form, "--json"});
      EXPECT_EQ(outcome.exit_code, 0) << name << " " << form << outcome.out << outcome.err;
      taken += json::parse(outcome.out).take().at("inputs_taken").as_int64();
    }
    if (form == std::string_view("f16")) {
      EXPECT_GT(taken, 0);
    }
  }
  const auto wrong = run_program(
      {"--model", test::source_path("tests/golden/gpt2_tiny").string(), "--input", "f8"});
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_THAT(wrong.err, HasSubstr("--input f8: expected f32, f16, bf16 or int8"));
}

// --- What the prompt is, and an outside reference beside the model. ---

TEST(LlorchCheckpoints, UsesTextThroughTheModelsTokenizer) {
  const test::TempDir folder;
  write_test_model(folder.path());
  const auto with = run_program({"--model", folder.path().string()});
  EXPECT_EQ(with.exit_code, 0) << with.out << with.err;
  EXPECT_THAT(with.out, HasSubstr("text through the model's tokenizer"));
  EXPECT_THAT(with.out, HasSubstr("outside     none: no golden.json beside the model"));
  const auto bare = run_program({"--model", test::source_path("tests/golden/gpt2_tiny").string()});
  EXPECT_THAT(bare.out, HasSubstr("ids of no meaning"));
}

// The model and values of tests/golden/families/llama as another program would leave them.
class OutsideReferenceFolder {
 public:
  OutsideReferenceFolder() {
    const std::filesystem::path family = test::source_path("tests/golden/families/llama");
    for (const char* name : {"config.json", "model.safetensors"})
      std::filesystem::create_symlink(family / name, folder_ / name);
    const formats::WeightFile golden =
        formats::read_safetensors(family / "golden.safetensors").take();
    const auto ids = [&](const char* name) {
      const std::span<const std::byte> bytes = golden.find(name)->bytes;
      std::vector<std::int32_t> values(bytes.size() / 4);
      std::memcpy(values.data(), bytes.data(), bytes.size());
      return json::Array(values.begin(), values.end());
    };
    document_ = {
        {"input_ids", ids("ids")}, {"greedy_ids", ids("greedy_ids")}, {"transformers", "5.12.1"}};
    const std::span<const std::byte> bytes = golden.find("logits")->bytes;
    logits_.resize(bytes.size() / 4);
    std::memcpy(logits_.data(), bytes.data(), bytes.size());
  }

  json::Object& document() { return document_; }
  std::vector<float>& logits() { return logits_; }

  test::ProgramOutcome run() const {
    std::ofstream(folder_ / "golden.json") << json::serialize(document_);
    const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (12, 192), }\n";
    std::ofstream npy(folder_ / "golden_logits.npy", std::ios::binary);
    npy << "\x93NUMPY" << '\x01' << '\0' << static_cast<char>(header.size()) << '\0' << header;
    npy.write(reinterpret_cast<const char*>(logits_.data()),
              static_cast<std::streamsize>(logits_.size() * sizeof(float)));
    npy.close();
    return run_program({"--model", folder_.path().string()});
  }

 private:
  test::TempDir folder_;
  json::Object document_;
  std::vector<float> logits_;
};

TEST(LlorchCheckpoints, HoldsAModelToTheGoldenFileBesideIt) {
  OutsideReferenceFolder folder;
  const auto outcome = folder.run();
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("prompt      golden.json"));
  EXPECT_THAT(outcome.out, HasSubstr("golden_logits.npy (transformers 5.12.1): max error"));
  EXPECT_THAT(outcome.out, HasSubstr("10 ids continue alike"));
}

// Both backends agree with each other here: only the outside reference can tell.
TEST(LlorchCheckpoints, FailsWhereOnlyTheGoldenFileDisagrees) {
  OutsideReferenceFolder logits;
  logits.logits()[777] += 0.01F;
  const auto other_logit = logits.run();
  EXPECT_EQ(other_logit.exit_code, 1);
  EXPECT_THAT(other_logit.out, HasSubstr("FAIL: max error 0.01"));
  OutsideReferenceFolder ids;
  json::Value& fourth = ids.document().at("greedy_ids").as_array()[15];
  fourth = (fourth.as_int64() + 1) % 192;
  const auto other_id = ids.run();
  EXPECT_EQ(other_id.exit_code, 1);
  EXPECT_THAT(other_id.out, HasSubstr("3 ids continue alike"));
  OutsideReferenceFolder nan;
  nan.logits()[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(nan.run().exit_code, 1);
}

TEST(LlorchCheckpoints, RefusesAGoldenFileOfAnotherModel) {
  OutsideReferenceFolder shorter;
  shorter.logits().pop_back();
  const auto cut = shorter.run();
  EXPECT_EQ(cut.exit_code, 1);
  EXPECT_THAT(cut.err, HasSubstr("golden_logits.npy: expected a NumPy file"));
  OutsideReferenceFolder foreign;
  foreign.document().at("input_ids").as_array()[0] = 5000;
  EXPECT_THAT(foreign.run().err, HasSubstr("outside the vocabulary of 192"));
}

TEST(LlorchCheckpoints, SaysWhyItCannotRun) {
  const auto absent = run_program({"--model", "/nonexistent/model.gguf"});
  EXPECT_EQ(absent.exit_code, 1);
  EXPECT_THAT(absent.err, HasSubstr("/nonexistent/model.gguf"));
  EXPECT_EQ(absent.out, "");
  const auto device = run_program(
      {"--model", test::source_path("tests/golden/gpt2_tiny").string(), "--backend", "tpu"});
  EXPECT_EQ(device.exit_code, 1);
  EXPECT_THAT(device.err, HasSubstr("tpu"));
}

TEST(LlorchCheckpoints, UsageErrorsAreTwo) {
  EXPECT_EQ(run_program({}).exit_code, 2);
  EXPECT_EQ(run_program({"--modle", "x"}).exit_code, 2);
  const auto help = run_program({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("Examples:"));
}

}  // namespace
}  // namespace llorch::tools
