// The routes that neighbours use, on a real server.
#include "pool/model_files.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/digest.h"
#include "base/json.h"
#include "fetch/neighbour.h"
#include "http/client.h"
#include "pool/test_host.h"
#include "support/run_program.h"

namespace llorch::pool {
namespace {

using test::Host;
using test::random_bytes;
using ::testing::HasSubstr;

constexpr std::string_view kCurl = "/usr/bin/curl";

http::Response request(const std::string& url, std::string range = {},
                       const std::string& token = {}) {
  http::ClientRequest request(http::Method::Get, url);
  if (!range.empty()) request.headers.add("Range", std::move(range));
  if (!token.empty()) request.headers.add("Authorization", "Bearer " + token);
  http::Client client;
  Result<http::Response> response = client.send(request);
  EXPECT_TRUE(response.ok()) << response.error().message;
  return response.ok() ? response.take() : http::Response{};
}

TEST(ModelFiles, TheManifestHasEveryHash) {
  Host host;
  const std::string a = random_bytes(20'000, 1);
  const std::string b = random_bytes(5, 2);
  host.add_model("m", {{"model.safetensors", a}, {"sub/config.json", b}}, 4096);
  host.serve();
  const http::Response answer = request(host.url() + "/v2/models/m/manifest");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const json::Value manifest = json::parse(answer.body).take();
  EXPECT_EQ(json::view(manifest.at("id").as_string()), "m");
  EXPECT_EQ(json::view(manifest.at("revision").as_string()), "rev-1");
  const json::Array& files = manifest.at("files").as_array();
  ASSERT_EQ(files.size(), 2U);
  EXPECT_EQ(json::view(files[0].at("path").as_string()), "model.safetensors");
  EXPECT_EQ(json::view(files[0].at("sha256").as_string()), base::sha256_hex(a));
  EXPECT_EQ(files[0].at("chunks").as_array().size(), 5U);
  EXPECT_EQ(json::view(files[1].at("sha256").as_string()), base::sha256_hex(b));
  EXPECT_EQ(answer.body.find(host.root().string()), std::string::npos) << "no path of this host";
}

TEST(ModelFiles, RangesOfAFile) {
  Host host;
  const std::string content = random_bytes(600'000, 3);
  host.add_model("m", {{"a", "first"}, {"b", content}});
  host.serve();
  const std::string url = host.url() + "/v2/models/m/files/1";
  const http::Response whole = request(url);
  EXPECT_EQ(whole.status, 200);
  EXPECT_TRUE(whole.body == content);
  EXPECT_EQ(whole.headers.find("ETag"), "\"" + base::sha256_hex(content) + "\"");
  EXPECT_EQ(whole.headers.find("Accept-Ranges"), "bytes");
  const http::Response first = request(url, "bytes=0-0");
  EXPECT_EQ(first.status, 206);
  EXPECT_EQ(first.headers.find("Content-Range"), "bytes 0-0/600000");
  EXPECT_EQ(first.body, content.substr(0, 1));
  EXPECT_TRUE(request(url, "bytes=-7").body == content.substr(content.size() - 7));
  EXPECT_TRUE(request(url, "bytes=262100-262200").body == content.substr(262'100, 101));
  EXPECT_TRUE(request(url, "bytes=599999-700000").body == content.substr(599'999));
  const http::Response behind = request(url, "bytes=600000-");
  EXPECT_EQ(behind.status, 416);
  EXPECT_EQ(behind.headers.find("Content-Range"), "bytes */600000");
  EXPECT_THAT(behind.body, HasSubstr(R"("code":"INVALID_REQUEST")")) << "the contract's envelope";
}

TEST(ModelFiles, OnlyWhatIsHereAndVerified) {
  Host host;
  host.add_model("m", {{"a", "bytes"}});
  host.register_in_place("unverified", host.root() / "elsewhere", {{"x", "y"}});
  ASSERT_TRUE(host.catalog()
                  .update([](catalog::CatalogContent& content) {
                    contract::ModelEntry known;
                    known.id = "not-here";
                    known.name = "not here";
                    content.put(known);
                    return ok_status();
                  })
                  .ok());
  host.serve();
  for (const auto& [path, words] : std::vector<std::pair<std::string, std::string>>{
           {"/v2/models/nobody/manifest", "nobody"},
           {"/v2/models/not-here/manifest", "no files on this host"},
           {"/v2/models/unverified/manifest", "models verify unverified"},
           {"/v2/models/unverified/files/0", "models verify unverified"},
           {"/v2/models/..%2F..%2Fetc/manifest", "not a model id"},
           {"/v2/models/m/files/1", "1 files"},
           {"/v2/models/m/files/-1", "numbered from 0"},
           {"/v2/models/m/files/0x0", "numbered from 0"},
           {"/v2/models/m/files/99999999999999999999999", "numbered from 0"},
           {"/v2/models/m/files/a", "numbered from 0"}}) {
    const http::Response answer = request(host.url() + path);
    EXPECT_EQ(answer.status, 404) << path;
    EXPECT_THAT(answer.body, HasSubstr(words)) << path;
    EXPECT_THAT(answer.body, HasSubstr("NOT_FOUND")) << path;
  }
}

TEST(ModelFiles, AFileThatChangedSinceIsNotServed) {
  Host host;
  host.add_model("m", {{"a", "the bytes"}, {"b", "others"}});
  host.serve();
  ASSERT_EQ(request(host.url() + "/v2/models/m/files/0").status, 200);
  const std::filesystem::path file = host.folder("m") / "a";
  const auto time = std::filesystem::last_write_time(file);
  std::filesystem::last_write_time(file, time + std::chrono::seconds(1));
  for (const char* path : {"/v2/models/m/files/0", "/v2/models/m/manifest"}) {
    const http::Response touched = request(host.url() + path);
    EXPECT_EQ(touched.status, 409) << path;
    EXPECT_THAT(touched.body, HasSubstr("models verify m")) << path;
  }
  EXPECT_EQ(request(host.url() + "/v2/models/m/files/1").status, 200);
  std::filesystem::last_write_time(file, time);
  EXPECT_EQ(request(host.url() + "/v2/models/m/files/0").status, 200);
  std::filesystem::resize_file(file, 3);
  std::filesystem::last_write_time(file, time);
  EXPECT_EQ(request(host.url() + "/v2/models/m/files/0").status, 409);
  std::filesystem::remove(file);
  EXPECT_EQ(request(host.url() + "/v2/models/m/files/0").status, 409);
  EXPECT_EQ(request(host.url() + "/v2/models/m/manifest").status, 409);
}

TEST(ModelFiles, FollowTheCatalog) {
  Host host;
  host.add_model("m", {{"a", "old"}});
  host.serve();
  EXPECT_EQ(request(host.url() + "/v2/models/m/files/0").body, "old");
  host.add_model("m", {{"a", "new and longer"}});
  EXPECT_EQ(request(host.url() + "/v2/models/m/files/0").body, "new and longer");
  ASSERT_TRUE(host.catalog()
                  .update([](catalog::CatalogContent& content) {
                    content.remove("m");
                    return ok_status();
                  })
                  .ok());
  EXPECT_EQ(request(host.url() + "/v2/models/m/files/0").status, 404);
}

TEST(ModelFiles, TheServersTokenIsAskedFor) {
  Host host;
  host.add_model("m", {{"a", "secret"}});
  host.serve("a-token-of-some-length");
  for (const char* path : {"/v2/models/m/manifest", "/v2/models/m/files/0"}) {
    EXPECT_EQ(request(host.url() + path).status, 401);
    EXPECT_EQ(request(host.url() + path, {}, "another-token-of-length").status, 401);
    EXPECT_EQ(request(host.url() + path, {}, "a-token-of-some-length").status, 200);
  }
}

TEST(ModelFiles, CurlResumesFromUs) {
  if (!std::filesystem::exists(kCurl)) GTEST_SKIP() << "no " << kCurl << " to compare with";
  Host host;
  const std::string content = random_bytes(3'000'000, 5);
  host.add_model("m", {{"a", content}});
  host.serve();
  const std::filesystem::path got = host.root() / "got";
  test::write_file(got, content.substr(0, 1'000'001));
  const auto outcome = llorch::test::run_program(
      std::string(kCurl), {"--silent", "--show-error", "--fail", "--continue-at", "-", "--output",
                           got.string(), host.url() + "/v2/models/m/files/0"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(test::read_file(got) == content);
}

TEST(ParseNeighbour, FillsInWhatIsNotSaid) {
  for (const auto& [text, url] :
       std::vector<std::pair<std::string, std::string>>{{"attic", "http://attic:9200"},
                                                        {"10.0.0.2", "http://10.0.0.2:9200"},
                                                        {"10.0.0.2:80", "http://10.0.0.2:80"},
                                                        {"http://attic:9300/", "http://attic:9300"},
                                                        {"https://attic", "https://attic:9200"},
                                                        {"[::1]", "http://[::1]:9200"},
                                                        {"[fe80::1]:81", "http://[fe80::1]:81"}}) {
    const auto parsed = fetch::parse_neighbour(text, "t");
    ASSERT_TRUE(parsed.ok()) << text << ": " << parsed.error().message;
    EXPECT_EQ(parsed->url, url);
    EXPECT_EQ(parsed->token, "t");
  }
  for (const char* text : {"", "http://", "a b", "user@host", "host/path", "host:", "host:0", "-x",
                           "host:99999", "host:12x", "ftp://host", "::1", "[::1", "a?b", "a#b"})
    EXPECT_EQ(fetch::parse_neighbour(text, "").error().code, ErrorCode::InvalidArgument) << text;
}

// Whatever a neighbour says, it names files below our folder and numbers that fit.
TEST(ResolveNeighbour, ValidatesTheManifest) {
  const std::string hash(64, 'a');
  const std::string file =
      fmt::format(R"({{"path":"a","size":3,"sha256":"{}","chunks":["{}"]}})", hash, hash);
  const auto resolve = [&](std::string manifest) {
    const test::FakeNeighbour fake(std::move(manifest), {});
    return fetch::resolve_neighbour(fake.neighbour(), "m", Host().downloader().source, {});
  };
  const auto good = resolve(fmt::format(R"({{"id":"m","files":[{}],"extra":1}})", file));
  ASSERT_TRUE(good.ok()) << good.error().message;
  ASSERT_EQ(good->files.size(), 1U);
  EXPECT_THAT(good->files[0].url, HasSubstr("/v2/models/m/files/0"));
  EXPECT_EQ(good->files[0].chunk_sha256, std::vector<std::string>{hash});
  for (const std::string& bad :
       {std::string("not json"), std::string("[]"), std::string(R"({"id":"m"})"),
        fmt::format(R"({{"id":"other","files":[{}]}})", file),
        std::string(R"({"id":"m","files":[]})"),
        fmt::format(R"({{"id":"m","files":[{},{}]}})", file, file),
        fmt::format(
            R"({{"id":"m","files":[{{"path":"../a","size":3,"sha256":"{}","chunks":["{}"]}}]}})",
            hash, hash),
        fmt::format(R"({{"id":"m","files":[{{"path":"a","size":3,"sha256":"{}","chunks":[]}}]}})",
                    hash)}) {
    const auto resolved = resolve(bad);
    ASSERT_FALSE(resolved.ok()) << bad;
    EXPECT_EQ(resolved.error().code, ErrorCode::Corrupt) << bad << ": " << resolved.error().message;
  }
}

TEST(ResolveNeighbour, SaysWhyThereIsNothing) {
  Host host;
  host.add_model("m", {{"a", "x"}});
  host.serve("a-token-of-some-length");
  const fetch::SourceOptions options = host.downloader().source;
  EXPECT_EQ(fetch::resolve_neighbour(host.neighbour(), "m", options, {}).error().code,
            ErrorCode::Unauthorized);
  const auto none =
      fetch::resolve_neighbour(host.neighbour("a-token-of-some-length"), "n", options, {});
  EXPECT_EQ(none.error().code, ErrorCode::NotFound) << none.error().message;
  EXPECT_TRUE(
      fetch::resolve_neighbour(host.neighbour("a-token-of-some-length"), "m", options, {}).ok());
  const fetch::Neighbour gone = host.neighbour();
  host.stop_serving();
  EXPECT_EQ(fetch::resolve_neighbour(gone, "m", options, {}).error().code, ErrorCode::Unavailable);
}

}  // namespace
}  // namespace llorch::pool
