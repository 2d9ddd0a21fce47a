#include "http/url.h"

#include <gtest/gtest.h>

namespace llorch::http {
namespace {

using Query = std::map<std::string, std::string>;

TEST(PercentDecode, DecodesEveryByteButNul) {
  EXPECT_EQ(percent_decode("a%20b%2Fc%e2%82%ac+").take(), "a b/c\xE2\x82\xAC+");
  for (const std::string_view broken : {"%", "%4", "%4x", "%x4", "a%", "%%20", "%00"}) {
    EXPECT_FALSE(percent_decode(broken).ok()) << broken;
  }
}

TEST(PercentEncode, ComesBackAsItWas) {
  std::string bytes;
  for (int i = 1; i < 256; ++i) bytes += static_cast<char>(i);
  EXPECT_EQ(percent_decode(percent_encode(bytes)).take(), bytes);
  EXPECT_EQ(percent_encode("hf:org/repo@main ~x"), "hf%3Aorg%2Frepo%40main%20~x");
}

TEST(ParseQuery, DecodesNamesAndValues) {
  EXPECT_EQ(parse_query("").take(), Query{});
  EXPECT_EQ(parse_query("a=1&b=x%26y+z&c&d=&&e=f=g").take(),
            (Query{{"a", "1"}, {"b", "x&y z"}, {"c", ""}, {"d", ""}, {"e", "f=g"}}));
  EXPECT_FALSE(parse_query("a=%zz").ok());
  const auto twice = parse_query("a=1&%61=2");
  ASSERT_FALSE(twice.ok());
  EXPECT_NE(twice.error().message.find("'a'"), std::string::npos);
}

TEST(ParseTarget, SplitsBeforeDecoding) {
  const auto target = parse_target("/v2/models/hf%3Aorg%2Frepo/x?q=1#frag");
  ASSERT_TRUE(target.ok());
  EXPECT_EQ(target->path, "/v2/models/hf%3Aorg%2Frepo/x");
  EXPECT_EQ(target->segments, (std::vector<std::string>{"v2", "models", "hf:org/repo", "x"}));
  EXPECT_EQ(target->query, (Query{{"q", "1"}}));
}

TEST(ParseTarget, KeepsEmptySegments) {
  EXPECT_TRUE(parse_target("/")->segments.empty());
  EXPECT_EQ(parse_target("/a/")->segments, (std::vector<std::string>{"a", ""}));
  EXPECT_EQ(parse_target("//a")->segments, (std::vector<std::string>{"", "a"}));
  EXPECT_EQ(parse_target("/a//b")->segments, (std::vector<std::string>{"a", "", "b"}));
}

TEST(ParseTarget, UnderstandsTheAbsoluteForm) {
  EXPECT_EQ(parse_target("http://host:1/a?b=c")->path, "/a");
  EXPECT_EQ(parse_target("http://host")->path, "/");
  EXPECT_EQ(parse_target("http://host?a=b")->path, "/");
  for (const std::string_view broken : {"", "*", "a/b", "https://h/", "/%", "/?%"}) {
    EXPECT_FALSE(parse_target(broken).ok()) << broken;
  }
}

TEST(ParseUrl, TakesHostPortAndTarget) {
  const auto url = parse_url("http://example.org:8080/a?b#c");
  ASSERT_TRUE(url.ok());
  EXPECT_EQ(url->host, "example.org");
  EXPECT_EQ(url->port, 8080);
  EXPECT_EQ(url->target, "/a?b");
  EXPECT_EQ(parse_url("http://h")->target, "/");
  EXPECT_EQ(parse_url("http://h?x")->target, "/?x");
  EXPECT_EQ(parse_url("http://h")->port, 80);
  EXPECT_EQ(parse_url("http://[::1]:9/")->host, "::1");
  EXPECT_EQ(parse_url("http://[::1]:9/")->authority(), "[::1]:9");
}

TEST(ParseUrl, KnowsTls) {
  EXPECT_TRUE(parse_url("https://h/x")->is_tls);
  EXPECT_EQ(parse_url("https://h/x")->port, 443);
  EXPECT_EQ(parse_url("https://h:8443/x")->port, 8443);
  EXPECT_FALSE(parse_url("http://h/x")->is_tls);
}

TEST(ParseUrl, KnowsUnixSockets) {
  const auto url = parse_url("http+unix://%2Frun%2Fa%20b%2Fpool.sock/v2/state?since=1");
  ASSERT_TRUE(url.ok()) << url.error().message;
  EXPECT_EQ(url->unix_path, "/run/a b/pool.sock");
  EXPECT_EQ(url->target, "/v2/state?since=1");
  EXPECT_EQ(url->authority(), "localhost:80");
  EXPECT_EQ(url->peer(), "/run/a b/pool.sock");
  EXPECT_EQ(parse_url(unix_url("/run/x%y.sock"))->unix_path, "/run/x%y.sock");
  EXPECT_EQ(parse_url(unix_url("/run/x.sock"))->target, "/");
  const auto tunnel = parse_url(unix_url("/run/a:b.sock") + ":9200/health");
  ASSERT_TRUE(tunnel.ok()) << tunnel.error().message;
  EXPECT_EQ(tunnel->unix_path, "/run/a:b.sock");
  EXPECT_EQ(tunnel->authority(), "localhost:9200") << "the name that the other end answers to";
  EXPECT_EQ(tunnel->target, "/health");
  for (const std::string& broken :
       {std::string("http+unix://"), std::string("http+unix:///run/x.sock"),
        std::string("http+unix://run%2Fx.sock/"), std::string("http+unix://%2Frun%00/"),
        std::string("http+unix://%2Frun%2Fx.sock:/"), std::string("http+unix://%2Frun%2Fx.sock:x/"),
        unix_url("/" + std::string(kUnixPathBytesMax, 'x'))}) {
    EXPECT_FALSE(parse_url(broken).ok()) << broken;
  }
}

TEST(ParseUrl, SaysWhatIsWrong) {
  for (const std::string_view broken :
       {"", "h", "ftp://h", "http://", "http://:80", "http://h:", "http://h:0", "http://h:65536",
        "http://h:8x", "http://[::1", "http://[::1]x", "http://[[1]:91/", "http://a]b/",
        "http://u:p@h/", "http://h/a b", "http://h/\r\nX: y"}) {
    EXPECT_FALSE(parse_url(broken).ok()) << broken;
  }
}

TEST(IsLoopback, KnowsThisMachineBySpellingAlone) {
  for (const std::string_view host : {"localhost", "127.0.0.1", "127.255.0.3", "::1", "[::1]"})
    EXPECT_TRUE(is_loopback(host)) << host;
  for (const std::string_view host : {"", "127", "127.0.0.1.example.org", "127.0.0", "127.0.0.256",
                                      "128.0.0.1", "::2", "localhost.example.org", "10.0.0.1"})
    EXPECT_FALSE(is_loopback(host)) << host;
}

}  // namespace
}  // namespace llorch::http
