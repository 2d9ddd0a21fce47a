// One server holding thousands of silent streams: memory stays small and /health answers quickly.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "http/server.h"
#include "http/sse.h"
#include "http/stream.h"
#include "http/test_events.h"
#include "http/test_server.h"
#include "support/idle_sockets.h"

namespace llorch::http {
namespace {

constexpr std::size_t kStreams = 2000;

TEST(Server, HoldsTwoThousandSilentStreams) {
  if (!llorch::test::allow_descriptors(2 * kStreams + 200))
    GTEST_SKIP() << "RLIMIT_NOFILE is too low for " << kStreams << " streams";
  Router router;
  router.add(Method::Get, "/health", [](const Request&) -> Result<Response> { return Response{}; });
  router.add(Method::Get, "/events", [](const Request&, Responder& responder) -> Task<Status> {
    const auto feed = std::make_shared<EventFeed<std::string>>(16);
    Result<Stream> stream = co_await responder.open_stream(200, std::string(kEventStreamType));
    if (!stream.ok()) co_return stream.error();
    co_return co_await test::pump_events(*stream, feed, std::chrono::minutes(10));
  });
  const auto server = test::start(std::move(router));
  const std::size_t before = test::resident_bytes();

  std::vector<std::unique_ptr<test::RawSocket>> clients;
  for (std::size_t i = 0; i < kStreams; ++i) {
    clients.push_back(std::make_unique<test::RawSocket>(server->port()));
    ASSERT_TRUE(clients.back()->send(test::get("/events")));
  }
  for (const auto& client : clients)
    ASSERT_EQ(test::status_of(client->read_until("\r\n\r\n")), 200);
  EXPECT_EQ(server->num_connections(), kStreams);
  const std::size_t after = test::resident_bytes();

  std::vector<double> health_ms;
  test::RawSocket asker(server->port());
  for (int i = 0; i < 200; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_TRUE(asker.send(test::get("/health")));
    ASSERT_EQ(test::status_of(asker.read_response()), 200);
    health_ms.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
            .count());
  }
  std::sort(health_ms.begin(), health_ms.end());
  fmt::print(
      "{} streams: VmRSS {:.1f} MB, {:.1f} KB per stream; /health p50 {:.3f} ms, p99 {:.3f} ms\n",
      kStreams, static_cast<double>(after) / 1e6,
      static_cast<double>(after - before) / 1e3 / kStreams, health_ms[health_ms.size() / 2],
      health_ms[health_ms.size() * 99 / 100]);
#if !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)  // a sanitizer's own memory proves nothing
  EXPECT_LT(after, std::size_t{200} << 20);
#endif

  // All clients leave at once; the server notices every one of them.
  clients.clear();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (server->num_connections() > 1 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  EXPECT_EQ(server->num_connections(), 1u);
}

}  // namespace
}  // namespace llorch::http
