// The page's files as a browser gets them.
#include "orchestrator/web_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "http/client.h"
#include "orchestrator/routes.h"
#include "orchestrator/test_fleet.h"

namespace llorch::orchestrator {
namespace {

using ::testing::Contains, ::testing::HasSubstr, ::testing::Not;

TEST(WebPage, EveryFileIsThereAndMayUseNothingFromElsewhere) {
  test::TestFleet fleet{{.folder = testing::TempDir() + "web_page_" + std::to_string(::getpid())}};
  fleet.wait_until_ready();
  http::Client client;
  ASSERT_EQ(web_files().size(), 8U);
  for (const WebFile& file : web_files()) {
    const Result<http::Response> answer =
        client.send(http::ClientRequest(http::Method::Get, fleet.url(file.path)));
    ASSERT_TRUE(answer.ok()) << answer.error().message;
    EXPECT_EQ(answer->status, 200) << file.path;
    EXPECT_EQ(answer->body, file.content) << file.path;
    EXPECT_EQ(answer->headers.find("Content-Type"), file.content_type);
    EXPECT_EQ(answer->headers.find("X-Content-Type-Options"), "nosniff");
    EXPECT_THAT(std::string(answer->headers.find("Content-Security-Policy").value_or("")),
                HasSubstr("default-src 'none'; script-src 'self'"));
    EXPECT_THAT(paths_without_auth(), Contains(file.path));
  }
  const Result<http::Response> none =
      client.send(http::ClientRequest(http::Method::Get, fleet.url("/web/none.js")));
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->status, 404);
}

// What the policy forbids would only be seen in a browser as a page that does nothing.
TEST(WebPage, NamesNothingThatItsPolicyForbids) {
  for (const WebFile& file : web_files()) {
    for (const char* word : {"http://", "https://", "innerHTML", "eval(", " style=", " onclick=\""})
      EXPECT_THAT(file.content, Not(HasSubstr(word))) << file.path;
  }
}

}  // namespace
}  // namespace llorch::orchestrator
