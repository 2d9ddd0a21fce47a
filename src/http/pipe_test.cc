#include "http/pipe.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>

#include "http/feed.h"
#include "http/io_threads.h"
#include "http/test_server.h"
#include "http/tls_test_ca.h"
#include "http/url.h"
#include "support/eventually.h"
#include "support/test_paths.h"

namespace llorch::http {
namespace {

using ::testing::HasSubstr;

// A handler that upgrades and says back what it hears.
Task<Status> echo(Responder& responder) {
  Status told = co_await send_upgrade(responder, "echo");
  if (!told.ok()) co_return told;
  Pipe pipe = Pipe::take_over(responder);
  bool is_open = true;
  while (is_open) {
    const Result<std::string> bytes = co_await pipe.read_some();
    is_open = bytes.ok() && !bytes->empty();
    if (!is_open) break;
    const Status written = co_await pipe.write(*bytes);
    is_open = written.ok();
  }
  co_return ok_status();
}

class PipeTest : public ::testing::Test {
 protected:
  Router make_router() {
    Router router;
    router.add(Method::Post, "/echo",
               Handler([](const Request&, Responder& responder) { return echo(responder); }));
    router.add(Method::Post, "/refuse", [](const Request&) -> Result<Response> {
      return Response(409, "text/plain", "not today");
    });
    return router;
  }
  ServerOptions tls_options() {
    const test::TestCa::Files files = ca_.issue("server");
    ServerOptions options = test::plain_options();
    options.tls_certificate_file = files.certificate;
    options.tls_key_file = files.key;
    return options;
  }
  // Runs a coroutine and waits for what it returns.
  template <class T>
  T run(std::function<Task<T>()> body) {
    auto done = std::make_shared<std::promise<T>>();
    std::future<T> answer = done->get_future();
    io_.spawn([body, done]() -> Task<void> { done->set_value(co_await body()); });
    if (answer.wait_for(std::chrono::seconds(20)) != std::future_status::ready) {
      ADD_FAILURE() << "it hangs";
      io_.stop();
      std::abort();
    }
    return answer.get();
  }

  const llorch::test::TempDir folder_;
  test::TestCa ca_{folder_.path() / "ca"};
  PipeDialer dialer_{ClientOptions{.ca_file = ca_.file()}};
  IoThreads io_{2};
};

Task<std::string> say_and_hear(PipeDialer& dialer, std::string url, std::string text) {
  const ClientRequest request(Method::Post, url);
  Result<Pipe> pipe = co_await dialer.open(request, "echo");
  if (!pipe.ok()) co_return "error: " + pipe.error().message;
  std::string heard;
  Status written = co_await pipe->write(text);
  while (written.ok() && heard.size() < text.size()) {
    const Result<std::string> bytes = co_await pipe->read_some();
    if (!bytes.ok() || bytes->empty()) break;
    heard += *bytes;
  }
  pipe->close();
  co_return heard;
}

TEST_F(PipeTest, AnUpgradedConnectionCarriesBytesBothWays) {
  const auto server = test::start(make_router(), tls_options());
  const std::string url = fmt::format("https://localhost:{}/echo", server->port());
  for (const std::size_t size : {1U, 1000U, 16'384U, 60'000U}) {
    const std::string text(size, 'x');
    const std::string heard = run<std::string>([&] { return say_and_hear(dialer_, url, text); });
    EXPECT_EQ(heard, text);
  }
}

TEST_F(PipeTest, AnotherAnswerIsTheError) {
  const auto server = test::start(make_router(), tls_options());
  const std::string base = fmt::format("https://localhost:{}", server->port());
  EXPECT_THAT(run<std::string>([&] { return say_and_hear(dialer_, base + "/refuse", "x"); }),
              HasSubstr("status 409: not today"));
  EXPECT_THAT(run<std::string>([&] { return say_and_hear(dialer_, base + "/none", "x"); }),
              HasSubstr("status 404"));
  PipeDialer stranger{ClientOptions{}};
  EXPECT_THAT(run<std::string>([&] { return say_and_hear(stranger, base + "/echo", "x"); }),
              HasSubstr("name the file of its CA"));
}

TEST_F(PipeTest, TheServersEndEndsThePipe) {
  auto server = test::start(make_router(), tls_options());
  const std::string url = fmt::format("https://localhost:{}/echo", server->port());
  test::Gate opened;
  auto ended = std::make_shared<std::promise<bool>>();
  auto future = ended->get_future();
  io_.spawn([&, ended]() -> Task<void> {
    const ClientRequest request(Method::Post, url);
    Result<Pipe> pipe = co_await dialer_.open(request, "echo");
    EXPECT_TRUE(pipe.ok());
    opened.open();
    const Result<std::string> bytes = co_await pipe->read_some();
    ended->set_value(!bytes.ok() || bytes->empty());
  });
  ASSERT_TRUE(opened.wait());
  server->stop();
  ASSERT_EQ(future.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  EXPECT_TRUE(future.get());
}

// What the fleet does: a socket of this machine, a connection from elsewhere, and our own client
// and server at the two ends, who know nothing of either.
TEST_F(PipeTest, TwoJoinedPipesCarryHttp) {
  Router router = make_router();
  router.add(Method::Post, "/say", [](const Request& request) -> Result<Response> {
    return Response(200, "text/plain", request.body + request.body);
  });
  const auto server = test::start(std::move(router));
  const std::string far = (folder_.path() / "far.sock").string();
  ASSERT_TRUE(server->listen_unix(far).ok());
  const std::string near = (folder_.path() / "near.sock").string();
  std::stop_source stop;
  const auto end = std::make_shared<std::promise<bool>>();
  io_.spawn([&, end]() -> Task<void> {
    const std::function<void(int)> forward = [&](int fd) {
      io_.spawn([fd, far]() -> Task<void> {
        Result<Pipe> here = co_await Pipe::adopt(fd);
        Result<Pipe> there = co_await Pipe::connect_unix(far);
        if (here.ok() && there.ok()) co_await join_pipes(here.take(), there.take());
      });
    };
    const Status ended = co_await accept_pipes(near, forward, stop.get_token());
    end->set_value(ended.ok());
  });
  Client client;
  ClientRequest request(Method::Post, unix_url(near) + "/say");
  request.body = std::string(100'000, 'y');
  Result<Response> answer = Error{};
  ASSERT_TRUE(llorch::test::eventually([&] {  // until it listens
    answer = client.send(request);
    return answer.ok();
  })) << answer.error().message;
  for (int i = 0; i < 20; ++i) {
    answer = client.send(request);
    ASSERT_TRUE(answer.ok()) << answer.error().message;
    EXPECT_EQ(answer->body.size(), 200'000U);
  }
  stop.request_stop();
  auto ended = end->get_future();
  ASSERT_EQ(ended.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  EXPECT_TRUE(ended.get());
  EXPECT_FALSE(client.send(request).ok());
}

}  // namespace
}  // namespace llorch::http
