#include "http/router.h"

#include <gtest/gtest.h>

namespace llorch::http {
namespace {

PlainHandler nothing() {
  return [](const Request&) -> Result<Response> { return Response{}; };
}

Router workers() {
  Router router;
  router.add(Method::Get, "/", nothing());
  router.add(Method::Get, "/v2/workers/{id}", nothing());
  router.add(Method::Post, "/v2/workers/start", nothing());
  router.add(Method::Get, "/v2/{kind}/start", nothing());
  router.add(Method::Delete, "/v2/models/{id}/files/{file}", nothing());
  return router;
}

TEST(Router, FindsTheRouteAndItsParameters) {
  const Router router = workers();
  EXPECT_NE(router.find(Method::Get, {}).route, nullptr);
  const auto match = router.find(Method::Delete, {"v2", "models", "org/repo", "files", "a b"});
  ASSERT_NE(match.route, nullptr);
  EXPECT_EQ(match.params,
            (std::map<std::string, std::string>{{"id", "org/repo"}, {"file", "a b"}}));
}

TEST(Router, ALiteralWinsOverAParameterOfTheSameMethod) {
  const Router router = workers();
  EXPECT_TRUE(router.find(Method::Post, {"v2", "workers", "start"}).params.empty());
  const auto by_id = router.find(Method::Get, {"v2", "workers", "start"});
  EXPECT_EQ(by_id.params, (std::map<std::string, std::string>{{"id", "start"}}))
      << "the earlier literal (workers) decides";
}

TEST(Router, KnowsWhichMethodsAPathHas) {
  const Router router = workers();
  const auto match = router.find(Method::Put, {"v2", "workers", "start"});
  EXPECT_EQ(match.route, nullptr);
  EXPECT_EQ(match.allow, "GET, HEAD, POST");
  const auto absent = router.find(Method::Get, {"v2", "nothing"});
  EXPECT_EQ(absent.route, nullptr);
  EXPECT_EQ(absent.allow, "");
}

TEST(Router, HeadUsesTheGetRouteAndEmptySegmentsMatchNothing) {
  const Router router = workers();
  EXPECT_NE(router.find(Method::Head, {"v2", "workers", "x"}).route, nullptr);
  EXPECT_EQ(router.find(Method::Get, {"v2", "workers", ""}).route, nullptr);
  EXPECT_EQ(router.find(Method::Get, {"v2", "workers", "x", ""}).route, nullptr);
}

TEST(Router, ARestTakesEverythingBelowWhateverItIs) {
  Router router = workers();
  router.add(Method::Get, "/v2/workers/{id}/api/{path}", nothing(), {.takes_rest = true});
  router.add(Method::Get, "/v2/workers/{id}/api/{path}/own", nothing());
  for (const auto& segments : std::vector<std::vector<std::string>>{
           {"v2", "workers", "w", "api", ""},
           {"v2", "workers", "w", "api", "health"},
           {"v2", "workers", "w", "api", "v1", "..", "a/b", ""}}) {
    const auto match = router.find(Method::Get, segments);
    ASSERT_NE(match.route, nullptr);
    EXPECT_TRUE(match.route->options.takes_rest);
    EXPECT_EQ(match.params, (std::map<std::string, std::string>{{"id", "w"}}));
  }
  EXPECT_EQ(router.find(Method::Get, {"v2", "workers", "w", "api"}).route, nullptr);
  EXPECT_EQ(router.find(Method::Get, {"v2", "workers", "", "api", "x"}).route, nullptr);
  EXPECT_FALSE(
      router.find(Method::Get, {"v2", "workers", "w", "api", "x", "own"}).route->options.takes_rest)
      << "a route without a rest wins";
}

TEST(Router, NamesWhatMayBeMeantByAPathThatNoRouteHas) {
  Router router = workers();
  router.add(Method::Get, "/v1/models", nothing());
  router.add(Method::Get, "/v1/models/{model}", nothing());
  router.add(Method::Post, "/v1/chat/completions", nothing());
  router.answer_below("/v1", {});
  const auto near = [&](const std::vector<std::string>& segments) {
    return router.find(Method::Post, segments).near;
  };
  EXPECT_EQ(near({"chat", "completions"}), "/v1/chat/completions") << "a base URL without /v1";
  EXPECT_EQ(near({"v1", "v1", "chat", "completions"}), "/v1/chat/completions") << "/v1 twice";
  EXPECT_EQ(near({"v1", "responses"}), "/v1/chat/completions, /v1/models, /v1/models/{model}");
  EXPECT_EQ(near({"nothing"}), "");
  EXPECT_EQ(near({"v2", "workers", "a", "b"}), "") << "only folders that answer as one are listed";
  EXPECT_EQ(near({"v1", "models"}), "") << "there is such a path, with another method";
  EXPECT_EQ(near({}), "");
}

TEST(RouterDeathTest, TheSameRouteTwiceIsABug) {
  Router router = workers();
  EXPECT_DEATH(router.add(Method::Get, "/v2/workers/{name}", nothing()), "invariant broken");
}

}  // namespace
}  // namespace llorch::http
