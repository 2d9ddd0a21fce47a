#include "worker/run_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "contract/pool_info.h"
#include "support/test_paths.h"
#include "template/chat_template.h"

namespace llorch::worker {
namespace {

using ::testing::HasSubstr;

TEST(BuiltinTemplates, AreThoseThatThePoolKnows) {
  EXPECT_THAT(jinja::builtin_template_names(),
              ::testing::ElementsAreArray(contract::kChatTemplates));
}

class Options : public ::testing::Test {
 protected:
  ParsedCommand parse(std::vector<std::string> more = {}, bool is_terminal = false) {
    std::vector<std::string> arguments = {"--worker-id", "w-1", "--model", "m.gguf", "--port", "0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return parse_command(
        contract::kCpuKind, arguments,
        [this](const char* name) -> const char* {
          const auto found = variables_.find(name);
          return found == variables_.end() ? nullptr : found->second.c_str();
        },
        is_terminal);
  }

  std::map<std::string, std::string> variables_;
};

TEST_F(Options, DefaultsAreTheContracts) {
  const ParsedCommand parsed = parse();
  ASSERT_TRUE(parsed.options.has_value()) << parsed.text;
  EXPECT_EQ(parsed.options->worker_id, "w-1");
  EXPECT_EQ(parsed.options->model, "m.gguf");
  EXPECT_EQ(parsed.options->port, 0);
  EXPECT_EQ(parsed.options->host, "127.0.0.1");
  EXPECT_EQ(parsed.options->inference_timeout, std::chrono::seconds(300));
  EXPECT_FALSE(parsed.options->kv_memory_bytes.has_value());
}

TEST_F(Options, LogsArePrettyForPeopleAndJsonForMachines) {
  EXPECT_EQ(parse({}, true).options->log_format, base::LogFormat::Pretty);
  EXPECT_EQ(parse({}, false).options->log_format, base::LogFormat::Json);
  EXPECT_EQ(parse({"--log-format", "pretty"}, false).options->log_format, base::LogFormat::Pretty);
}

TEST_F(Options, AliasesMayBeSeveral) {
  EXPECT_TRUE(parse().options->aliases.empty());
  const ParsedCommand parsed = parse({"--alias", "gpt-4", "--alias", "org/model"});
  ASSERT_TRUE(parsed.options.has_value()) << parsed.text;
  EXPECT_EQ(parsed.options->aliases, (std::vector<std::string>{"gpt-4", "org/model"}));
  EXPECT_EQ(parse({"--alias", ""}).exit_code, 2);
}

TEST_F(Options, OriginsMayBeSeveral) {
  using ::testing::ElementsAre;
  EXPECT_TRUE(parse().options->allow_origins.empty());
  EXPECT_THAT(
      parse({"--allow-origin", "https://a", "--allow-origin=https://b"}).options->allow_origins,
      ElementsAre("https://a", "https://b"));
  variables_["LLORCH_ALLOW_ORIGIN"] = "https://a,http://localhost:3000";
  EXPECT_THAT(parse().options->allow_origins, ElementsAre("https://a", "http://localhost:3000"));
  EXPECT_THAT(parse({"--allow-origin", "*"}).options->allow_origins, ElementsAre("*"));
}

TEST_F(Options, WhoeverStartedItMayKnowItByAMark) {
  EXPECT_EQ(parse().options->callback_mark, "");
  variables_["LLORCH_WORKER_MARK"] = "m4rk";
  EXPECT_EQ(parse().options->callback_mark, "m4rk");
}

TEST_F(Options, SizesHaveUnits) {
  EXPECT_EQ(parse({"--kv-memory", "3"}).options->kv_memory_bytes, 3U);
  EXPECT_EQ(parse({"--kv-memory", "512MB"}).options->kv_memory_bytes, 512U << 20);
  EXPECT_EQ(parse({"--kv-memory", "2GiB"}).options->kv_memory_bytes, 2ULL << 30);
  EXPECT_EQ(parse({"--kv-memory", "many"}).exit_code, 2);
}

TEST_F(Options, TheCacheHasOneOfTwoTypes) {
  EXPECT_EQ(parse().options->kv_dtype, tensor::DType::F16);
  EXPECT_EQ(parse({"--kv", "q8_0"}).options->kv_dtype, tensor::DType::Q8_0);
  variables_["LLORCH_KV"] = "q8_0";
  EXPECT_EQ(parse().options->kv_dtype, tensor::DType::Q8_0);
  EXPECT_EQ(parse({"--kv", "f16"}).options->kv_dtype, tensor::DType::F16);
  EXPECT_EQ(parse({"--kv", "q4_0"}).exit_code, 2);
}

TEST_F(Options, APlanNeedsAModelOnly) {
  const Environment none = [](const char*) -> const char* { return nullptr; };
  const ParsedCommand plan =
      parse_command(contract::kCpuKind, {"--plan-memory", "--model", "m"}, none, false);
  ASSERT_TRUE(plan.options.has_value()) << plan.text;
  EXPECT_TRUE(plan.options->plan_memory);
  EXPECT_EQ(parse_command(contract::kCpuKind, {"--plan-memory"}, none, false).exit_code, 2);
  EXPECT_EQ(parse_command(contract::kCpuKind, {"--model", "m"}, none, false).exit_code, 2);
}

TEST_F(Options, OnlyAGpuWorkerHasAGpu) {
  EXPECT_EQ(parse({"--gpu-device", "1"}).exit_code, 2);
  const Environment none = [](const char*) -> const char* { return nullptr; };
  const ParsedCommand parsed = parse_command(
      contract::kCudaKind, {"--plan-memory", "--model", "m", "--gpu-device", "3"}, none, false);
  ASSERT_TRUE(parsed.options.has_value()) << parsed.text;
  EXPECT_EQ(parsed.options->gpu_devices, std::vector<std::int32_t>{3});
  const auto gpus_of = [&](const std::string& text) {
    return parse_command(contract::kCudaKind,
                         {"--plan-memory", "--model", "m", "--gpu-device", text}, none, false);
  };
  EXPECT_EQ(gpus_of("0,2").options->gpu_devices, (std::vector<std::int32_t>{0, 2}));
  EXPECT_EQ(gpus_of("0,0").options->gpu_devices, (std::vector<std::int32_t>{0, 0}));
  EXPECT_EQ(gpus_of("0,x").exit_code, 2);
  EXPECT_EQ(gpus_of("-1").exit_code, 2);
}

TEST_F(Options, FlagBeforeEnvironmentBeforeFileBeforeDefault) {
  const test::TempDir folder;
  std::ofstream(folder / "config.toml") << "# ours\n[worker]\nmax-queue = 7\nhost = \"::1\"\n\n"
                                           "[pool]\nmax-queue = 9\nsurprise = 1\n";
  variables_["LLORCH_HOME"] = folder.path().string();
  EXPECT_EQ(parse().options->max_queue, 7);
  EXPECT_EQ(parse().options->host, "::1");
  EXPECT_EQ(parse().options->max_batch, 16);
  variables_["LLORCH_MAX_QUEUE"] = "8";
  EXPECT_EQ(parse().options->max_queue, 8);
  EXPECT_EQ(parse({"--max-queue=10"}).options->max_queue, 10);
  EXPECT_EQ(parse({"--max-queue", "10"}).options->max_queue, 10);
  variables_["LLORCH_MAX_QUEUE"] = "none";
  const ParsedCommand wrong = parse();
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.text, HasSubstr("--max-queue"));
}

TEST_F(Options, TheFileIsLookedForWhereXdgSays) {
  const test::TempDir folder;
  std::filesystem::create_directories(folder / ".config/llorch");
  std::ofstream(folder / ".config/llorch/config.toml") << "[worker]\nctx = 77\n";
  variables_["HOME"] = folder.path().string();
  EXPECT_EQ(parse().options->context, 77);
  variables_["XDG_CONFIG_HOME"] = folder / "elsewhere";
  EXPECT_EQ(parse().options->context, 0);
}

TEST_F(Options, AnUnknownKeyOfTheFileIsAnError) {
  const test::TempDir folder;
  std::ofstream(folder / "config.toml") << "[worker]\nmax-que = 7\n";
  variables_["LLORCH_CONFIG"] = (folder / "config.toml").string();
  const ParsedCommand parsed = parse();
  EXPECT_EQ(parsed.exit_code, 2);
  EXPECT_THAT(parsed.text, HasSubstr("max-que"));
  EXPECT_THAT(parsed.text, HasSubstr("config.toml"));
}

TEST_F(Options, QuestionsAreAnswered) {
  const ParsedCommand version = parse({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_FALSE(version.options.has_value());
  EXPECT_THAT(parse({"--help"}).text, HasSubstr("--inference-timeout-sec"));
}

}  // namespace
}  // namespace llorch::worker
