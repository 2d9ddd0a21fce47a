#include "api/local_ca.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "api/answers.h"
#include "api/daemon_address.h"
#include "api/tls_door.h"
#include "base/file.h"
#include "http/client.h"
#include "http/server.h"
#include "support/test_paths.h"

namespace llorch::api {
namespace {

namespace fs = std::filesystem;
using ::testing::Contains, ::testing::HasSubstr, ::testing::IsEmpty, ::testing::Not;

constexpr std::time_t kDay = 24 * 60 * 60;

class LocalCa : public ::testing::Test {
 protected:
  std::string text_of(const fs::path& file) { return *base::read_text_file(file, 1 << 20); }
  ServerCertificate certificate(std::time_t now, const std::vector<std::string>& names = {
                                                     "DNS:localhost", "IP:127.0.0.1"}) {
    Result<ServerCertificate> made = find_or_make_certificate(home_, "orchestrator", names, now);
    EXPECT_TRUE(made.ok()) << made.error().message;
    return made.ok() ? made.take() : ServerCertificate{};
  }
  std::unique_ptr<http::Server> serve(const std::string& file) {
    http::ServerOptions options;
    options.render_error = render_error;
    options.tls_certificate_file = file;
    options.tls_key_file = file;
    http::Router router;
    router.add(http::Method::Get, "/hello", [](const http::Request&) -> Result<http::Response> {
      return http::Response(200, "text/plain", "hello");
    });
    auto server = http::Server::start(std::move(router), std::move(options));
    EXPECT_TRUE(server.ok()) << server.error().message;
    return server.ok() ? server.take() : nullptr;
  }
  static Result<http::Response> ask(const http::Server& server, const std::string& host,
                                    const http::ClientOptions& trust) {
    http::Client client(trust);
    const std::string url = "https://" + host + ":" + std::to_string(server.port()) + "/hello";
    return client.send({http::Method::Get, url});
  }

  const test::TempDir folder_;
  const base::Home home_{folder_ / "config.toml", folder_.path(), folder_.path(), folder_ / "c"};
  const std::time_t now_ = std::time(nullptr);
};

TEST_F(LocalCa, IsMadeOnceAndItsKeyStaysPrivate) {
  const Result<CaFacts> made = find_or_make_ca(home_, now_);
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_TRUE(made->was_made);
  EXPECT_EQ(made->fingerprint.size(), 32 * 3 - 1);
  const Result<CaFacts> again = find_or_make_ca(home_, now_);
  ASSERT_TRUE(again.ok());
  EXPECT_FALSE(again->was_made);
  EXPECT_EQ(again->fingerprint, made->fingerprint);
  EXPECT_EQ(text_of(ca_file(home_)), made->pem);
  EXPECT_THAT(made->pem, Not(HasSubstr("PRIVATE")));
  for (const auto& entry : fs::directory_iterator(folder_ / "tls")) {
    struct stat facts {};
    ASSERT_EQ(::stat(entry.path().c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777U, 0600U) << entry.path();
  }
  struct stat facts {};
  ASSERT_EQ(::stat((folder_ / "tls").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777U, 0700U);
}

TEST_F(LocalCa, ManyAtOnceMakeOne) {
  std::vector<std::string> seen(8);
  {
    std::vector<std::jthread> threads;
    for (std::string& fingerprint : seen) {
      threads.emplace_back([this, &fingerprint] {
        const Result<CaFacts> ca = find_or_make_ca(home_, now_);
        if (ca.ok()) fingerprint = ca->fingerprint;
      });
    }
  }
  EXPECT_THAT(seen, ::testing::Each(seen.front()));
  EXPECT_THAT(seen.front(), Not(IsEmpty()));
}

TEST_F(LocalCa, ACertificateIsMadeAnewBeforeItEndsAndForANewName) {
  const std::string first = text_of(certificate(now_).file);
  EXPECT_FALSE(certificate(now_).was_made);
  EXPECT_FALSE(certificate(now_ + 59 * kDay).was_made);
  const ServerCertificate renewed = certificate(now_ + 61 * kDay);
  EXPECT_TRUE(renewed.was_made);
  EXPECT_NE(text_of(renewed.file), first);
  EXPECT_FALSE(certificate(now_ + 61 * kDay, {"DNS:localhost"}).was_made) << "fewer names will do";
  EXPECT_TRUE(certificate(now_ + 61 * kDay, {"DNS:localhost", "IP:192.0.2.7"}).was_made);
  EXPECT_THAT(names_in_certificate(renewed.file), Contains("IP:192.0.2.7"));
}

TEST_F(LocalCa, ADamagedCertificateIsReplacedADamagedAuthorityIsNot) {
  const ServerCertificate good = certificate(now_);
  std::ofstream(good.file) << "torn";
  EXPECT_TRUE(certificate(now_).was_made);
  const std::string authority = text_of(folder_ / "tls" / "ca-private.pem");
  std::ofstream(folder_ / "tls" / "ca-private.pem") << authority.substr(0, authority.size() / 2);
  const auto refused = find_or_make_certificate(home_, "orchestrator", {"DNS:a"}, now_);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("ca-private.pem"));
  std::ofstream(folder_ / "tls" / "ca-private.pem") << authority;
  fs::remove(ca_file(home_));
  EXPECT_FALSE(find_or_make_ca(home_, now_)->was_made) << "the public half comes from the private";
  EXPECT_TRUE(fs::exists(ca_file(home_)));
}

TEST_F(LocalCa, AnAuthorityThatEndsIsFollowedByAnother) {
  const Result<CaFacts> old = find_or_make_ca(home_, now_);
  const ServerCertificate before = certificate(now_);
  const std::time_t late = now_ + 3640 * kDay;
  const Result<CaFacts> next = find_or_make_ca(home_, late);
  ASSERT_TRUE(next.ok());
  EXPECT_TRUE(next->was_made);
  EXPECT_NE(next->fingerprint, old->fingerprint);
  EXPECT_TRUE(certificate(late).was_made) << "what the old one signed is worth nothing now";
}

TEST_F(LocalCa, NamesAreThoseOfTheMachineAndNothingElse) {
  const auto names =
      names_of_server("192.0.2.7", {"box.example", "evil,IP:6.6.6.6", "-x", "two words", "::1"});
  for (const char* expected : {"IP:192.0.2.7", "DNS:box.example", "DNS:localhost", "IP:127.0.0.1"})
    EXPECT_THAT(names, Contains(expected));
  for (const std::string& name : names) {
    EXPECT_THAT(name, Not(HasSubstr("evil")));
    EXPECT_THAT(name, Not(HasSubstr(" ")));
  }
  EXPECT_THAT(names_of_server("0.0.0.0", {}), Not(Contains("IP:0.0.0.0")));
  const ServerCertificate made = certificate(now_, names);
  EXPECT_THAT(names_in_certificate(made.file), ::testing::UnorderedElementsAreArray(names));
}

TEST_F(LocalCa, ClientsThatTrustItAreServedOthersRefuse) {
  const auto server = serve(certificate(now_).file.string());
  const std::string ca = ca_file(home_).string();
  for (const http::ClientOptions& trust :
       {http::ClientOptions{.ca_file = ca}, http::ClientOptions{.more_ca_file = ca}}) {
    const auto answer = ask(*server, "127.0.0.1", trust);
    ASSERT_TRUE(answer.ok()) << answer.error().message;
    EXPECT_EQ(answer->body, "hello");
  }
  EXPECT_EQ(ask(*server, "127.0.0.1", {}).error().code, ErrorCode::Unauthorized);
  const auto absent = ask(*server, "127.0.0.1", {.more_ca_file = "/nowhere/ca.pem"});
  EXPECT_EQ(absent.error().code, ErrorCode::Unauthorized);
  const auto elsewhere = serve(certificate(now_, {"DNS:box.example"}).file.string());
  const auto other = ask(*elsewhere, "127.0.0.1", {.ca_file = ca});
  EXPECT_THAT(other.error().message, HasSubstr("not for '127.0.0.1'"));
}

TEST_F(LocalCa, TheDoorFollowsItsFlags) {
  const auto door = [this](const TlsFlags& flags, const std::string& host) {
    return TlsDoor::open(flags, home_, "orchestrator", host);
  };
  EXPECT_FALSE(door({}, "127.0.0.1")->is_tls());
  EXPECT_FALSE(fs::exists(folder_ / "tls")) << "loopback needs no authority";
  EXPECT_FALSE(door({.plain_http = true}, "192.0.2.7")->is_tls());
  EXPECT_FALSE(fs::exists(folder_ / "tls"));
  const auto own = door({.certificate_file = "/a.pem", .key_file = "/a.key"}, "127.0.0.1");
  EXPECT_TRUE(own->is_tls());
  EXPECT_TRUE(own->has_owners_files());
  EXPECT_FALSE(door({.certificate_file = "/a.pem"}, "127.0.0.1").ok());
  EXPECT_FALSE(door({.key_file = "/a.key"}, "127.0.0.1").ok());
  EXPECT_FALSE(
      door({.certificate_file = "/a.pem", .key_file = "/a.key", .plain_http = true}, "::").ok());
  const auto made = door({.names = {"box.example"}}, "0.0.0.0");
  ASSERT_TRUE(made.ok());
  EXPECT_FALSE(made->has_owners_files());
  EXPECT_THAT(names_in_certificate(made->certificate_file()), Contains("DNS:box.example"));
}

TEST_F(LocalCa, TheDoorHandsTheServerWhatItsOwnerRenewed) {
  const std::string file = (folder_ / "own.pem").string();
  const auto issue = [&](const std::string& name) {
    const auto made = find_or_make_certificate(home_, name, {"IP:127.0.0.1"}, now_);
    fs::copy_file(made->file, file, fs::copy_options::overwrite_existing);
  };
  issue("first");
  Result<TlsDoor> door =
      TlsDoor::open({.certificate_file = file, .key_file = file}, home_, "x", "127.0.0.1");
  ASSERT_TRUE(door.ok());
  const auto server = serve(file);
  fs::remove_all(folder_ / "tls");  // another authority from now on
  issue("second");
  const http::ClientOptions trust{.ca_file = ca_file(home_).string()};
  EXPECT_FALSE(ask(*server, "127.0.0.1", trust).ok());
  door->look(*server);
  const auto answer = ask(*server, "127.0.0.1", trust);
  EXPECT_TRUE(answer.ok()) << answer.error().message;
}

TEST(DaemonAddress, OthersReachOneThatListensEverywhereByItsAddresses) {
  const auto urls = [](const std::string& host, const std::string& url) {
    return urls_for_others({.url = url, .host = host});
  };
  EXPECT_TRUE(urls("127.0.0.1", "http://127.0.0.1:8080").empty());
  EXPECT_TRUE(urls("192.0.2.7", "https://192.0.2.7:8080").empty()) << "that is its address";
  EXPECT_TRUE(urls("", "http://127.0.0.1:8080").empty()) << "an older daemon does not say";
  std::size_t beyond = 0;
  for (const std::string& name : names_of_server("0.0.0.0", {}))
    beyond += name.starts_with("IP:") && name.find(':', 3) == std::string::npos &&
              !name.starts_with("IP:127.");
  const std::vector<std::string> all = urls("0.0.0.0", "https://127.0.0.1:8080");
  EXPECT_EQ(all.size(), beyond);
  for (const std::string& url : all) {
    EXPECT_TRUE(url.starts_with("https://")) << url;
    EXPECT_TRUE(url.ends_with(":8080")) << url;
  }
}

}  // namespace
}  // namespace llorch::api
