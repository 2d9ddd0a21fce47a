// The orchestrator beyond loopback, as curl, llorch and a stranger meet it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "base/json.h"
#include "doors_fixture.h"

namespace llorch::test {
namespace {

using ::testing::HasSubstr, ::testing::StartsWith;

TEST_F(Doors, NobodyListensBeyondLoopbackWithoutAKey) {
  EXPECT_EQ(start({"--host", address_, "--local-pool", "false"}), "");
  EXPECT_THAT(orchestrator_->err(), HasSubstr("llorch keys add"));
}

TEST_F(Doors, AnAnswerComesOverTlsToThoseWhoTrustTheHomesAuthority) {
  const std::string key = make_key();
  const std::string url = start({"--host", address_});
  ASSERT_THAT(url, StartsWith("https://" + address_ + ":"));
  const std::string bearer = "Authorization: Bearer " + key;
  const std::string body =
      R"({"model":"builtin","prompt":"Once upon a time","max_tokens":12,"stream":true})";
  const ProgramOutcome story =
      curl({"--cacert", ca(), "-H", bearer, "-H", "Content-Type: application/json", "-d", body,
            url + "/v1/completions"});
  EXPECT_EQ(story.exit_code, 0) << story.err;
  EXPECT_THAT(story.out, HasSubstr("\"text\""));
  EXPECT_THAT(story.out, HasSubstr("data: [DONE]")) << orchestrator_->err();

  const ProgramOutcome stranger = curl({"-H", bearer, url + "/v1/models"});
  EXPECT_EQ(stranger.exit_code, 60) << "curl knows no such authority: " << stranger.err;
  const ProgramOutcome keyless =
      curl({"--cacert", ca(), "-o", "/dev/null", "-w", "%{http_code}", url + "/v1/models"});
  EXPECT_EQ(keyless.out, "401");
  const ProgramOutcome plain = curl({"http" + url.substr(5) + "/health"});
  EXPECT_EQ(plain.exit_code, 0) << plain.err;
  EXPECT_THAT(plain.out, HasSubstr("https://")) << "in plain words, and a clean end";
}

TEST_F(Doors, OurOwnCommandsTrustTheHomeAndOthersByFile) {
  const std::string key = make_key();
  const std::string url = start({"--host", "0.0.0.0", "--local-pool", "false"});
  ASSERT_THAT(url, StartsWith("https://127.0.0.1:"));
  const std::string port = url.substr(url.rfind(':'));
  const std::string remote = "https://" + address_ + port;
  const std::string token = "LLORCH_TOKEN=" + key;

  const ProgramOutcome here = llorch({"status"});
  EXPECT_EQ(here.exit_code, 0) << "this user needs no key: " << here.err;
  EXPECT_THAT(here.out, HasSubstr(url));
  EXPECT_EQ(llorch({"jobs", "list", "--orchestrator", remote}, {token}).exit_code, 0);
  EXPECT_NE(llorch({"jobs", "list", "--orchestrator", remote}).exit_code, 0)
      << "a key is wanted there";

  const TempDir elsewhere;
  const std::string other = "LLORCH_HOME=" + elsewhere.path().string();
  const ProgramOutcome unknown = llorch({"jobs", "list", "--orchestrator", remote}, {token, other});
  EXPECT_EQ(unknown.exit_code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("name the file of its CA"));
  EXPECT_EQ(llorch({"jobs", "list", "--orchestrator", remote, "--ca-file", ca()}, {token, other})
                .exit_code,
            0);
  EXPECT_EQ(
      llorch({"jobs", "list", "--orchestrator", remote}, {token, other, "LLORCH_CA_FILE=" + ca()})
          .exit_code,
      0);
  const ProgramOutcome wrong_name =
      llorch({"jobs", "list", "--orchestrator", "https://127.0.0.2" + port}, {token});
  EXPECT_EQ(wrong_name.exit_code, 1);
  EXPECT_THAT(wrong_name.err, HasSubstr("not for '127.0.0.2'"));

  const ProgramOutcome facts = llorch({"ca", "--json"});
  ASSERT_EQ(facts.exit_code, 0) << facts.err;
  const Result<json::Value> value = json::parse(facts.out);
  ASSERT_TRUE(value.ok());
  EXPECT_EQ(value->as_object().at("file").as_string(), ca());
  if (std::filesystem::exists("/usr/bin/openssl")) {
    const ProgramOutcome said =
        run_program("/usr/bin/openssl", {"x509", "-in", ca(), "-noout", "-fingerprint", "-sha256"});
    EXPECT_THAT(said.out,
                HasSubstr(std::string(value->as_object().at("fingerprint_sha256").as_string())));
  }
  EXPECT_THAT(llorch({"ca"}).out, HasSubstr("--cacert " + ca()));
  EXPECT_THAT(llorch({"ca", "--pem"}).out, StartsWith("-----BEGIN CERTIFICATE-----"));
}

TEST_F(Doors, ThePageIsShownToEverybodyAndWhatItAsksForToKeys) {
  const std::string key = make_key();
  const std::string url = start({"--host", address_, "--local-pool", "false"});
  const ProgramOutcome page = curl({"--cacert", ca(), url + "/"});
  EXPECT_THAT(page.out, StartsWith("<!doctype html>"));
  const auto status = [&](const std::vector<std::string>& words) {
    std::vector<std::string> all = {"--cacert", ca(), "-o", "/dev/null", "-w", "%{http_code}"};
    all.insert(all.end(), words.begin(), words.end());
    return curl(all).out;
  };
  EXPECT_EQ(status({url + "/v2/status"}), "401");
  EXPECT_EQ(status({"-H", "Authorization: Bearer " + key, url + "/v2/models"}), "200");
}

TEST_F(Doors, PlainHttpBeyondLoopbackMustBeAskedFor) {
  const std::string key = make_key();
  const std::string url = start({"--host", address_, "--plain-http", "--local-pool", "false"});
  ASSERT_THAT(url, StartsWith("http://" + address_ + ":"));
  EXPECT_THAT(orchestrator_->err(), HasSubstr("can be read on the way"));
  EXPECT_FALSE(std::filesystem::exists(ca()));
  const ProgramOutcome answer = curl({"-H", "Authorization: Bearer " + key, "-o", "/dev/null", "-w",
                                      "%{http_code}", url + "/v1/models"});
  EXPECT_EQ(answer.out, "200");
}

TEST_F(Doors, FilesOfTheOwnerAreUsedAsTheyAre) {
  const std::string key = make_key();
  ASSERT_THAT(start({"--host", address_, "--local-pool", "false"}), StartsWith("https://"));
  stop();
  const std::string own = (folder_ / "own.pem").string();
  std::filesystem::copy_file(folder_ / "tls" / "orchestrator.pem", own);
  const std::string url =
      start({"--host", "127.0.0.1", "--tls-cert", own, "--tls-key", own, "--local-pool", "false"});
  ASSERT_THAT(url, StartsWith("https://127.0.0.1:"));
  EXPECT_EQ(curl({"--cacert", ca(), url + "/health"}).exit_code, 0);
  EXPECT_EQ(llorch({"status"}).exit_code, 0) << "by the socket, whatever the names are";
  stop();
  EXPECT_EQ(start({"--tls-cert", own, "--local-pool", "false"}), "");
  EXPECT_THAT(orchestrator_->err(), HasSubstr("--tls-key"));
}

}  // namespace
}  // namespace llorch::test
