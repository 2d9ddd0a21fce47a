#include "pool/run_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "support/test_paths.h"

namespace llorch::pool {
namespace {

using ::testing::AllOf, ::testing::HasSubstr;

class PoolOptionsTest : public ::testing::Test {
 protected:
  ParsedPoolCommand parse(const std::vector<std::string>& arguments = {}, bool terminal = false) {
    return parse_pool_command(
        "pool-managerd", arguments,
        [this](const char* name) -> const char* {
          const auto found = variables_.find(name);
          return found == variables_.end() ? nullptr : found->second.c_str();
        },
        "/opt/bin", terminal);
  }

  std::map<std::string, std::string> variables_;
};

TEST_F(PoolOptionsTest, DefaultsAreTheContracts) {
  const ParsedPoolCommand parsed = parse();
  ASSERT_TRUE(parsed.options.has_value()) << parsed.text;
  EXPECT_EQ(parsed.options->host, "127.0.0.1");
  EXPECT_EQ(parsed.options->port, 9200);
  EXPECT_EQ(parsed.options->workers_first_port, 8000);
  EXPECT_EQ(parsed.options->worker_cpu, "/opt/bin/llorch-cpud");
  EXPECT_EQ(parsed.options->worker_cuda, "/opt/bin/worker-orcd");
  EXPECT_EQ(parsed.options->keeper, "/opt/bin/llorch-pool");
  EXPECT_TRUE(parsed.options->confine_workers);
  EXPECT_EQ(parsed.options->log_format, base::LogFormat::Json);
  EXPECT_EQ(parse({}, true).options->log_format, base::LogFormat::Pretty);
}

TEST_F(PoolOptionsTest, FlagBeforeEnvironmentBeforeFileBeforeDefault) {
  const llorch::test::TempDir folder;
  std::ofstream(folder / "config.toml")
      << "[worker]\nthreads = 3\n\n[pool]\nport = 9300\nmax-downloads = 5\n"
         "confine-workers = false\nworker-cpu = \"/x/cpud\"\n";
  variables_["LLORCH_HOME"] = folder.path().string();
  EXPECT_EQ(parse().options->port, 9300);
  EXPECT_EQ(parse().options->max_downloads, 5);
  EXPECT_FALSE(parse().options->confine_workers);
  EXPECT_EQ(parse().options->worker_cpu, "/x/cpud");
  variables_["LLORCH_POOL_PORT"] = "9400";
  variables_["LLORCH_POOL"] = "http://elsewhere:9200";  // the CLI's, not a setting
  EXPECT_EQ(parse().options->port, 9400);
  EXPECT_EQ(parse({"--port", "0"}).options->port, 0);
}

TEST_F(PoolOptionsTest, MistakesAreUsageErrors) {
  for (const std::vector<std::string>& mistake :
       std::vector<std::vector<std::string>>{{"--port", "70000"},
                                             {"--port", "x"},
                                             {"--max-downloads", "0"},
                                             {"--surprise"},
                                             {"word"},
                                             {"--confine-workers", "perhaps"},
                                             {"--log-format", "xml"}}) {
    const ParsedPoolCommand parsed = parse(mistake);
    EXPECT_EQ(parsed.exit_code, 2) << mistake[0];
    EXPECT_THAT(parsed.text, ::testing::StartsWith("pool-managerd: "));
  }
  const llorch::test::TempDir folder;
  std::ofstream(folder / "config.toml") << "[pool]\nprot = 1\n";
  variables_["LLORCH_HOME"] = folder.path().string();
  EXPECT_EQ(parse().exit_code, 2);
  EXPECT_THAT(parse().text, AllOf(HasSubstr("config.toml"), HasSubstr("prot")));
  std::ofstream(folder / "config.toml") << "[pool]\n\nmax-downloads = \"many\"\n";
  EXPECT_THAT(parse().text,
              AllOf(HasSubstr("--max-downloads"), HasSubstr("config.toml, line 3, says so")));
  EXPECT_EQ(parse({"--max-downloads", "many"}).text.find("line 3"), std::string::npos);
  variables_["LLORCH_POOL_MAX_DOWNLOADS"] = "99";
  EXPECT_THAT(parse().text, HasSubstr("LLORCH_POOL_MAX_DOWNLOADS says so"));
}

TEST_F(PoolOptionsTest, QuestionsAreAnswered) {
  EXPECT_EQ(parse({"--version"}).exit_code, 0);
  EXPECT_THAT(parse({"--help"}).text, AllOf(HasSubstr("--api-token-file"), HasSubstr("Examples")));
}

}  // namespace
}  // namespace llorch::pool
