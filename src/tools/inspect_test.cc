#include "tools/inspect.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/file.h"
#include "formats/gguf_writer.h"
#include "formats/test_gguf.h"
#include "model/architecture.h"
#include "support/run_program.h"
#include "support/test_paths.h"
#include "tools/test_model.h"

extern char** environ;

namespace llorch::tools {
namespace {

using ::testing::AllOf, ::testing::ElementsAre, ::testing::HasSubstr, ::testing::IsEmpty,
    ::testing::Not, ::testing::StartsWith;

using test::ProgramOutcome;

ProgramOutcome run_program(std::vector<std::string> arguments) {
  return test::run_program(LLORCH_INSPECT, std::move(arguments));
}

std::string golden(std::string_view relative) {
  return test::source_path("tests/golden") / relative;
}

// Weights alone make no worker: the fixtures have no tokenizer, and nothing else is amiss.
constexpr const char* kNoTokenizer = "runs here:      no: no usable tokenizer";

TEST(InspectProgram, ShowsAModelThatRunsOnOneScreen) {
  const test::TempDir folder;
  write_test_model(folder.path());
  const ProgramOutcome run = run_program({folder.path().string()});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_EQ(run.err, "");
  EXPECT_THAT(run.out, AllOf(HasSubstr("llama"), HasSubstr("SafeTensors"), HasSubstr("F32")));
  EXPECT_THAT(run.out, HasSubstr("runs here:      yes"));
  EXPECT_THAT(run.out, Not(HasSubstr("\x1b"))) << "no colour into a file";
  EXPECT_LE(std::count(run.out.begin(), run.out.end(), '\n'), 24);
}

TEST(InspectProgram, ReadsEveryPackaging) {
  for (const char* relative :
       {"gpt2_tiny/model.safetensors", "gpt2_tiny/pytorch", "gpt2_tiny/pytorch/pytorch_model.bin",
        "gpt2_tiny/sharded_safetensors", "gpt2_tiny/sharded_pytorch", "gpt2_bf16",
        "gpt2_bf16/pytorch"}) {
    const ProgramOutcome run = run_program({golden(relative)});
    EXPECT_EQ(run.exit_code, 0) << relative << ": " << run.err;
    EXPECT_THAT(run.out, HasSubstr(kNoTokenizer)) << relative;
    EXPECT_EQ(run.out.find("no: "), run.out.rfind("no: ")) << relative << ": nothing else";
  }
}

TEST(InspectProgram, ListsTensorsWhenAsked) {
  EXPECT_THAT(run_program({golden("gpt2_tiny")}).out, Not(HasSubstr("ln_f.weight")));
  EXPECT_THAT(run_program({"--tensors", golden("gpt2_tiny")}).out, HasSubstr("ln_f.weight"));
}

TEST(InspectProgram, GivesOneJsonObjectWithThePromisedKeys) {
  const ProgramOutcome run = run_program({golden("gpt2_tiny"), "--json"});
  EXPECT_EQ(run.exit_code, 0);
  const Result<json::Value> value = json::parse(run.out);
  ASSERT_TRUE(value.ok()) << value.error().message;
  std::vector<std::string> keys;
  for (const auto& entry : value->get_object()) keys.emplace_back(json::view(entry.key()));
  EXPECT_THAT(
      keys, ElementsAre("path", "format", "files", "file_bytes", "name", "architecture",
                        "parameters", "quantization", "context_length", "vocab_size", "num_layers",
                        "embedding_length", "num_heads", "num_kv_heads", "head_dim", "ffn_length",
                        "tokenizer", "tensor_bytes", "types", "tensors", "runs_here", "obstacles",
                        "chat_template_error", "assumed"));
  const ProgramOutcome help = run_program({"--help"});
  for (const std::string& key : keys) EXPECT_THAT(help.out, HasSubstr(key)) << "not documented";
  EXPECT_FALSE(value->get_object().at("runs_here").get_bool());
  EXPECT_TRUE(value->get_object().at("tokenizer").is_null());
  const json::Object& first = value->get_object().at("tensors").get_array().at(0).get_object();
  EXPECT_TRUE(first.at("shape").is_array() && first.at("bytes").is_int64());
}

TEST(InspectProgram, ExplainsItself) {
  const ProgramOutcome help = run_program({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, AllOf(HasSubstr("MODEL"), HasSubstr("--tensors"), HasSubstr("Examples:")));
  EXPECT_EQ(help.err, "");
  const ProgramOutcome version = run_program({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_THAT(version.out, StartsWith("llorch-inspect "));
}

TEST(InspectProgram, TellsUsageErrorsFromFailures) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{}, {"--colour", "x"}, {"a", "b"}, {"--json"}}) {
    const ProgramOutcome run = run_program(arguments);
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_EQ(run.out, "");
    EXPECT_NE(run.err, "");
  }
  const ProgramOutcome missing = run_program({"/nowhere/model.gguf"});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_EQ(missing.out, "");
  EXPECT_THAT(missing.err, AllOf(StartsWith("llorch-inspect: "), HasSubstr("/nowhere/model.gguf")));
  const ProgramOutcome source = run_program({test::source_path("tests/golden/README.md")});
  EXPECT_EQ(source.exit_code, 1);
  EXPECT_THAT(source.err, HasSubstr("README.md"));
}

TEST(InspectProgram, FailsWhenItsOutputCannotBeWritten) {
  const std::string command =
      std::string("'") + LLORCH_INSPECT + "' '" + golden("gpt2_tiny") + "' >/dev/full 2>&1";
  const int status = std::system(command.c_str());
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1);
}

// A GGUF file with one tensor of that type.
std::filesystem::path write_gguf(const test::TempDir& folder, const char* architecture,
                                 tensor::DType dtype, const char* name = "model") {
  formats::GgufWriter writer;
  writer.add_text("general.architecture", architecture);
  writer.add_text("general.name", name);
  const std::vector<std::byte> bytes(
      static_cast<std::size_t>(tensor::storage_bytes(dtype, 256).value()));
  writer.add_tensor({"blk.0.ffn_gate.weight", dtype, {1, 256}, bytes, {}});
  const std::filesystem::path path = folder / "model.gguf";
  const Status written = writer.write(path);
  EXPECT_TRUE(written.ok()) << (written.ok() ? "" : written.error().message);
  return path;
}

TEST(Inspect, SaysWhichArchitectureAndTypeAreMissing) {
  const test::TempDir folder;
  const Result<Inspection> inspection = inspect(write_gguf(folder, "mamba", tensor::DType::Q8_K));
  ASSERT_TRUE(inspection.ok());
  EXPECT_FALSE(inspection->runs_here());
  ASSERT_EQ(inspection->obstacles.size(), 3U);
  EXPECT_THAT(inspection->obstacles[2], StartsWith("no usable tokenizer"));
  EXPECT_THAT(inspection->obstacles[0],
              StartsWith(R"(architecture "mamba" is not supported; known: )"));
  EXPECT_EQ(inspection->obstacles[1], "not supported: Q8_K in blk.0.ffn_gate.weight");
  EXPECT_THAT(report_text(inspection.value(), false, false),
              HasSubstr(R"(runs here:      no: architecture "mamba" is not supported)"));
}

TEST(Inspect, NeverSendsControlCharactersOfAFileToTheTerminal) {
  const test::TempDir folder;
  const Result<Inspection> inspection =
      inspect(write_gguf(folder, "\x1b]0;owned\x07", tensor::DType::F32, "\x1b[2J\xff"));
  ASSERT_TRUE(inspection.ok());
  EXPECT_THAT(report_text(inspection.value(), true, false), Not(HasSubstr("\x1b")));
  EXPECT_TRUE(json::parse(json::serialize(report_json(inspection.value()))).ok());
}

TEST(Inspect, ColoursOnlyWhenAsked) {
  const test::TempDir folder;
  write_test_model(folder.path());
  const Result<Inspection> inspection = inspect(folder.path());
  ASSERT_TRUE(inspection.ok());
  EXPECT_THAT(report_text(inspection.value(), false, true), HasSubstr("\x1b[32myes\x1b[0m"));
}

TEST(Inspect, LooksAtTheTokenizerAsAWorkerDoes) {
  const test::TempDir folder;
  write_test_model(folder.path());
  EXPECT_TRUE(inspect(folder.path())->runs_here());
  // Of a kind that we do not have.
  const std::filesystem::path tokenizer = folder / "tokenizer.json";
  ASSERT_TRUE(
      base::write_file_atomically(
          tokenizer, R"({"model": {"type": "Morphemes", "vocab": {"a": 0}}, "added_tokens": []})")
          .ok());
  const Result<Inspection> unknown = inspect(folder.path());
  ASSERT_EQ(unknown->obstacles.size(), 1U);
  EXPECT_THAT(unknown->obstacles[0],
              AllOf(StartsWith("no usable tokenizer: tokenizer.json: "), HasSubstr("Morphemes")));
  std::filesystem::remove(tokenizer);
  const Result<Inspection> none = inspect(folder.path());
  ASSERT_EQ(none->obstacles.size(), 1U);
  EXPECT_THAT(none->obstacles[0], HasSubstr("tokenizer.json"));
  EXPECT_THAT(report_text(none.value(), false, false), HasSubstr(kNoTokenizer));
}

TEST(Inspect, GgufWithAnUnknownPreTokenizerOrNoneDoesNotRun) {
  const test::TempDir folder;
  for (const char* kind : {"no_vocab", "gpt2"}) {
    formats::GgufWriter writer;
    writer.add_text("general.architecture", "llama");
    writer.add_text("tokenizer.ggml.model", kind);
    writer.add_text("tokenizer.ggml.pre", "of-tomorrow");
    const std::vector<std::string> tokens = {"a", "b"};
    formats::add_texts(writer, "tokenizer.ggml.tokens", tokens);
    ASSERT_TRUE(writer.write(folder / "model.gguf").ok());
    const Result<Inspection> inspection = inspect(folder / "model.gguf");
    ASSERT_TRUE(inspection.ok()) << inspection.error().message;
    ASSERT_FALSE(inspection->obstacles.empty());
    EXPECT_THAT(inspection->obstacles.back(),
                AllOf(StartsWith("no usable tokenizer: "),
                      HasSubstr(kind == std::string_view("gpt2") ? "of-tomorrow" : "no_vocab")));
  }
}

TEST(Inspect, AChatTemplateThatDoesNotParseIsTold) {
  const test::TempDir folder;
  write_test_model(folder.path(), {.chat_template = "{% for m in messages %}{{ m.content }}"});
  const Result<Inspection> inspection = inspect(folder.path());
  EXPECT_TRUE(inspection->runs_here()) << "completions work without it";
  EXPECT_NE(inspection->template_error, "");
  EXPECT_THAT(report_text(inspection.value(), false, false),
              HasSubstr("chat template   not usable: "));
}

TEST(Inspect, NamesTheDefaultsItTook) {
  const test::TempDir folder;
  write_test_model(folder.path());
  EXPECT_THAT(inspect(folder.path())->assumed, IsEmpty());
  json::Value config =
      json::parse(base::read_text_file(folder / "config.json", 1 << 20).take()).take();
  config.as_object().erase("rms_norm_eps");
  ASSERT_TRUE(base::write_file_atomically(folder / "config.json", json::serialize(config)).ok());
  const Result<Inspection> inspection = inspect(folder.path());
  EXPECT_THAT(inspection->assumed, ElementsAre("rms_norm_eps = 1e-06"));
  EXPECT_THAT(report_text(inspection.value(), false, false), HasSubstr("rms_norm_eps = 1e-06"));
}

TEST(Inspect, CountsParametersAsTheModelDoes) {
  for (const char* relative :
       {"gpt2_tiny", "gpt2_tiny/pytorch", "gpt2_bf16", "families/llama", "families/qwen2",
        "families/qwen2/pytorch", "families/qwen3", "families/phi3", "families/gemma3"}) {
    const Result<Inspection> inspection = inspect(golden(relative));
    ASSERT_TRUE(inspection.ok());
    const Result<model::ModelPlan> plan = model::plan_model(inspection->file);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    ASSERT_EQ(inspection->obstacles.size(), 1U) << relative;
    EXPECT_THAT(inspection->obstacles[0], StartsWith("no usable tokenizer")) << relative;
    EXPECT_EQ(inspection->summary.parameters, model::count_parameters(plan.value())) << relative;
  }
}

TEST(Inspect, ReadsEveryRealModel) {
  const std::optional<std::filesystem::path> data = test::data_path("weights");
  if (!data) GTEST_SKIP() << "no real weights";
  int models = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(data->parent_path())) {
    const std::filesystem::path& path = entry.path();
    const bool in_fuzz = path.string().find("/fuzz/") != std::string::npos;
    if (in_fuzz || (path.extension() != ".gguf" && path.filename() != "model.safetensors"))
      continue;
    const Result<Inspection> inspection =
        inspect(path.extension() == ".gguf" ? path : path.parent_path());
    ASSERT_TRUE(inspection.ok()) << path << ": " << inspection.error().message;
    EXPECT_NE(inspection->summary.architecture, "") << path;
    // The vocabularies beside them hold no weights.
    const bool random = path.string().find("/tiny-random/") != std::string::npos;
    if (random) {
      ASSERT_EQ(inspection->obstacles.size(), 1U) << path;
      EXPECT_THAT(inspection->obstacles[0], StartsWith("no usable tokenizer")) << path;
    } else if (path.string().find("/weights/") != std::string::npos) {
      EXPECT_TRUE(inspection->runs_here()) << path << ": " << inspection->obstacles.front();
    }
    EXPECT_TRUE(inspection->summary.vocab_size && inspection->summary.num_layers) << path;
    EXPECT_TRUE(json::parse(json::serialize(report_json(inspection.value()))).ok());
    ++models;
  }
  EXPECT_GE(models, 20);
}

}  // namespace
}  // namespace llorch::tools
