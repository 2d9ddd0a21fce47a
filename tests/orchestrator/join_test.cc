// A pool that comes by itself over TLS, because nobody can reach its host: the real programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/json.h"
#include "doors_fixture.h"

namespace llorch::test {
namespace {

using ::testing::HasSubstr, ::testing::StartsWith;

class Join : public Doors {
 protected:
  void SetUp() override {
    Doors::SetUp();
    if (IsSkipped()) return;
    EXPECT_THAT(start({"--local-pool", "false"}), StartsWith("http://127.0.0.1:"));
    bearer_ = "Authorization: Bearer " + add_key("laptop", "infer");
    std::ofstream(attic_ / "key") << add_key("attic", "join") << "\n";
    std::ofstream(attic_ / "infer") << bearer_.substr(bearer_.rfind(' ') + 1) << "\n";
    std::ofstream(attic_ / "wrong") << "llk_0123456789abcdef_no-such-key-as-this\n";
    stop();
    url_ = start({"--host", address_, "--local-pool", "false"});
    ASSERT_THAT(url_, StartsWith("https://" + address_ + ":"));
  }
  void TearDown() override {
    stop_pool(attic_);
    Doors::TearDown();
  }

  ProgramOutcome pool(std::vector<std::string> arguments) const {
    return run_program(LLORCH_POOL, std::move(arguments),
                       {"LLORCH_HOME=" + attic_.path().string(), "LLORCH_POOL_PORT=0"});
  }
  ProgramOutcome join(const std::string& key_file, const std::string& name = "attic") const {
    return pool({"join", url_, "--token-file", (attic_ / key_file).string(), "--ca-file", ca(),
                 "--name", name});
  }
  // Of the joined host, as the fleet has it; empty: it has none.
  std::string host_state() const {
    const Result<json::Value> hosts = json::parse(llorch({"hosts", "--json"}).out);
    if (!hosts.ok()) return {};
    for (const json::Value& host : hosts->as_object().at("hosts").as_array()) {
      if (host.as_object().at("name") == "attic")
        return std::string(host.as_object().at("state").as_string());
    }
    return {};
  }
  bool is_connected() {
    return eventually([this] { return host_state() == "connected"; });
  }
  std::string story() const {
    return curl({"--cacert", ca(), "-H", bearer_, "-H", "Content-Type: application/json", "-d",
                 R"({"model":"builtin","prompt":"Once upon a time","max_tokens":20,"stream":true})",
                 url_ + "/v1/completions"})
        .out;
  }

  const TempDir attic_;
  std::string url_;
  std::string bearer_;
};

TEST_F(Join, AnAnswerComesFromAPoolThatJoinedAndItLeaves) {
  const ProgramOutcome joined = join("key");
  ASSERT_EQ(joined.exit_code, 0) << joined.err;
  EXPECT_THAT(joined.out, HasSubstr("as attic"));
  ASSERT_TRUE(is_connected());
  EXPECT_THAT(story(), HasSubstr("data: [DONE]")) << orchestrator_->err();
  EXPECT_EQ(llorch({"why", "nothing"}).exit_code, 1);

  const ProgramOutcome left = pool({"leave"});
  EXPECT_EQ(left.exit_code, 0) << left.err;
  EXPECT_TRUE(eventually([this] { return host_state() != "connected"; }));
  EXPECT_FALSE(std::filesystem::exists(attic_ / "join.json"));
  EXPECT_EQ(pool({"leave"}).exit_code, 1);
  EXPECT_EQ(join("key").exit_code, 0) << "and comes again";
  EXPECT_TRUE(is_connected());
}

TEST_F(Join, ItComesBackAfterItsPoolOrTheOrchestratorWasKilled) {
  ASSERT_EQ(join("key").exit_code, 0);
  ASSERT_TRUE(is_connected());
  const auto manager = api::read_daemon_address(attic_ / "pool.json");
  ASSERT_TRUE(manager);
  ::kill(manager->process.pid, SIGKILL);
  EXPECT_TRUE(eventually([this] { return host_state() != "connected"; }));
  ASSERT_EQ(pool({"start"}).exit_code, 0);
  EXPECT_TRUE(is_connected()) << "the pool remembers";
  EXPECT_THAT(story(), HasSubstr("data: [DONE]"));

  orchestrator_->signal(SIGKILL);
  orchestrator_->wait();
  const std::string port = url_.substr(url_.rfind(':') + 1);
  ASSERT_EQ(start({"--host", address_, "--local-pool", "false"}, port), url_);
  EXPECT_TRUE(is_connected()) << "and so does the orchestrator";
  EXPECT_THAT(story(), HasSubstr("data: [DONE]"));
}

TEST_F(Join, AModelOfAHostThatIsAwayIsNotUnknown) {
  ASSERT_EQ(join("key").exit_code, 0);
  ASSERT_TRUE(is_connected());
  EXPECT_THAT(story(), HasSubstr("data: [DONE]"));
  ASSERT_EQ(pool({"stop"}).exit_code, 0);
  orchestrator_->signal(SIGKILL);
  orchestrator_->wait();
  const std::string port = url_.substr(url_.rfind(':') + 1);
  ASSERT_EQ(start({"--host", address_, "--local-pool", "false"}, port), url_);
  EXPECT_TRUE(eventually([this] {
    return story().find("model 'builtin' is on host attic, which is not connected since 20") !=
           std::string::npos;
  })) << story();
  ASSERT_EQ(pool({"start"}).exit_code, 0);
  EXPECT_TRUE(is_connected());
  EXPECT_THAT(story(), HasSubstr("data: [DONE]"));
}

// A host of that name in ~/.ssh/config would be another machine.
TEST_F(Join, NoCommandGoesThereWithSsh) {
  ASSERT_EQ(join("key").exit_code, 0);
  ASSERT_TRUE(is_connected());
  const TempDir programs;
  std::ofstream(programs / "ssh") << "#!/bin/sh\necho \"$@\" >> '" << programs.path().string()
                                  << "/called'\nexit 255\n";
  std::filesystem::permissions(programs / "ssh", std::filesystem::perms::owner_all);
  const std::string path = "PATH=" + programs.path().string() + ":" + std::string(::getenv("PATH"));
  const std::vector<std::string> remove = {"pool", "models", "unregister", "builtin", "--host"};
  for (const std::string where : {"attic", "all", "attic,local"}) {
    std::vector<std::string> words = remove;
    words.push_back(where);
    const ProgramOutcome refused = llorch(words, {path});
    EXPECT_EQ(refused.exit_code, 1) << where << refused.out;
    EXPECT_THAT(refused.out + refused.err, HasSubstr("host 'attic' joined by itself")) << where;
    EXPECT_THAT(refused.out + refused.err, HasSubstr("run the command there")) << where;
  }
  const ProgramOutcome object = llorch({"pool", "status", "--json", "--host", "all"}, {path});
  EXPECT_EQ(object.exit_code, 1);
  const Result<json::Value> value = json::parse(object.out);
  ASSERT_TRUE(value.ok()) << object.out << object.err;
  EXPECT_EQ(value->at("hosts").at(0).at("exit_code"), 1) << object.out;
  const ProgramOutcome up = llorch({"up", "attic"}, {path});
  EXPECT_EQ(up.exit_code, 1);
  EXPECT_THAT(up.err, HasSubstr("`llorch-pool join` there"));

  // A plan changes nothing: its pool is asked over the connection that it made.
  const ProgramOutcome plan = llorch({"plan", "builtin"}, {path});
  EXPECT_EQ(plan.exit_code, 0) << plan.out << plan.err;
  EXPECT_THAT(plan.out, HasSubstr("attic"));
  EXPECT_THAT(plan.out, HasSubstr("fits"));
  EXPECT_FALSE(std::filesystem::exists(programs / "called"));
}

TEST_F(Join, WhoMayNotIsToldSo) {
  const ProgramOutcome wrong = join("wrong");
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_THAT(wrong.err, HasSubstr("token"));
  const ProgramOutcome infer = join("infer");
  EXPECT_EQ(infer.exit_code, 1);
  EXPECT_THAT(infer.err, HasSubstr("--scope join"));
  for (const char* word : {"local", "all"})
    EXPECT_THAT(join("key", word).err, HasSubstr("neither 'local' nor 'all'"));
  EXPECT_THAT(join("key", "../x").err, HasSubstr("name:"));
  const ProgramOutcome plain = pool({"join", "http" + url_.substr(5), "--token-file",
                                     (attic_ / "key").string(), "--name", "attic"});
  EXPECT_THAT(plain.err, HasSubstr("https://"));
  const ProgramOutcome unknown =
      pool({"join", url_, "--token-file", (attic_ / "key").string(), "--name", "attic"});
  EXPECT_THAT(unknown.err, HasSubstr("name the file of its CA"));
  EXPECT_EQ(host_state(), "");

  // The key of a pool opens nothing else, and no other pool's connections.
  std::ifstream file(attic_ / "key");
  std::string key;
  std::getline(file, key);
  const auto status_of = [&](const std::string& path, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {
        "--cacert", ca(),        "-H", "Authorization: Bearer " + key,
        "-o",       "/dev/null", "-w", "%{http_code}"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    arguments.push_back(url_ + path);
    return curl(std::move(arguments)).out;
  };
  EXPECT_EQ(status_of("/v1/models"), "403");
  EXPECT_EQ(status_of("/v2/status"), "403");
  EXPECT_EQ(status_of("/v2/keys"), "403");
  const std::vector<std::string> upgrade = {
      "-X", "POST", "-H", "Content-Type: application/json", "-H", "Upgrade: llorch-pool"};
  EXPECT_EQ(status_of("/v2/pools/attic/connect", upgrade), "404") << "it has not joined";
  EXPECT_EQ(
      status_of("/v2/pools/attic/connect", {"-X", "POST", "-H", "Content-Type: application/json"}),
      "400");
}

TEST_F(Join, ARevokedKeyEndsItsConnectionsAndANameIsOneKeys) {
  ASSERT_EQ(join("key").exit_code, 0);
  ASSERT_TRUE(is_connected());
  std::ofstream(attic_ / "other") << add_key("cellar", "join") << "\n";
  EXPECT_THAT(join("other").err, HasSubstr("joined with another key"));
  EXPECT_EQ(llorch({"keys", "revoke", "attic"}).exit_code, 0);
  EXPECT_TRUE(eventually([this] { return host_state() != "connected"; }));
  EXPECT_EQ(join("other").exit_code, 0) << "the name of a revoked key is free";
  EXPECT_TRUE(is_connected());
  EXPECT_EQ(llorch({"down", "attic"}).exit_code, 0);
  EXPECT_TRUE(eventually([this] { return host_state() != "connected"; }));
  // It was taken out by somebody, and does not come again by itself.
  EXPECT_TRUE(eventually([this] {
    return curl({"--unix-socket", (attic_ / "run" / "pool.sock").string(),
                 "http://localhost/v2/join"})
               .out.find("refused") != std::string::npos;
  }));
}

}  // namespace
}  // namespace llorch::test
