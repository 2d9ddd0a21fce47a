// Servers and clients over unix sockets.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "http/client.h"
#include "http/test_server.h"
#include "http/url.h"
#include "support/test_paths.h"

namespace llorch::http {
namespace {

using ::testing::HasSubstr;

Router hello_router() {
  Router router;
  router.add(Method::Get, "/hello", [](const Request& request) -> Result<Response> {
    return Response(200, "text/plain",
                    fmt::format("host={} loopback={}", request.headers.find("Host").value_or(""),
                                request.from_loopback));
  });
  router.add(Method::Get, "/pieces",
             Handler([](const Request&, Responder& responder) -> Task<Status> {
               Result<Stream> stream = co_await responder.open_stream(200, "text/plain");
               if (!stream.ok()) co_return stream.error();
               for (const std::string_view piece : {"one ", "two ", "three"}) {
                 Status written = co_await stream->write(piece);
                 if (!written.ok()) co_return written;
               }
               co_return ok_status();
             }));
  return router;
}

mode_t mode_of(const std::filesystem::path& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
}

// A socket file that nobody listens on, as a process that was killed leaves it.
void leave_socket(const std::string& path) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  ::close(fd);
}

class UnixSocket : public ::testing::Test {
 protected:
  const llorch::test::TempDir folder_;
  const std::string path_ = (folder_.path() / "run" / "pool.sock").string();
  Client client_;

  Result<Response> get(std::string_view target, const std::string& path) {
    return client_.send(ClientRequest(Method::Get, unix_url(path) + std::string(target)));
  }
};

TEST_F(UnixSocket, ServesTheSameAsThePortWithoutTokenAndHostCheck) {
  ServerOptions options = test::plain_options();
  options.bearer_token = "a-token-of-many-characters";
  const auto server = start(hello_router(), options);
  ASSERT_TRUE(server->listen_unix(path_).ok());
  const Result<Response> answer = get("/hello", path_);
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body, "host=localhost:80 loopback=true");
  const auto over_tcp = client_.send(
      ClientRequest(Method::Get, fmt::format("http://127.0.0.1:{}/hello", server->port())));
  EXPECT_EQ(over_tcp->status, 401);
  EXPECT_EQ(get("/pieces", path_)->body, "one two three");
}

// Whoever can reach a port without a token is anybody.
TEST_F(UnixSocket, ClaimsCountFromKnownCallersAlone) {
  const auto claim_at = [](const std::string& url, const std::string& token) {
    ClientRequest request(Method::Get, url + "/claim");
    request.headers.add("x-claim", "7");
    if (!token.empty()) request.headers.add("Authorization", "Bearer " + token);
    const Result<Response> answer = Client().send(request);
    return answer.ok() ? answer->body : answer.error().message;
  };
  const auto make_router = [] {
    Router router;
    router.add(Method::Get, "/claim", [](const Request& request) -> Result<Response> {
      return Response(200, "text/plain", std::string(request.headers.find("X-Claim").value_or("")));
    });
    return router;
  };
  ServerOptions options = test::plain_options();
  options.fields_of_known = {"X-Claim"};
  const auto open = start(make_router(), options);
  ASSERT_TRUE(open->listen_unix(path_).ok());
  const std::string port = fmt::format("http://127.0.0.1:{}", open->port());
  EXPECT_EQ(claim_at(unix_url(path_), ""), "7");
  EXPECT_EQ(claim_at(port, ""), "");
  EXPECT_EQ(claim_at(port, "0123456789abcdef"), "") << "a token that nobody gave out";
  options.bearer_token = "0123456789abcdef";
  const auto guarded = start(make_router(), options);
  EXPECT_EQ(claim_at(fmt::format("http://127.0.0.1:{}", guarded->port()), options.bearer_token),
            "7");
}

TEST_F(UnixSocket, IsItsOwnersAloneAndGoesWithTheServer) {
  {
    const auto server = start(hello_router());
    ASSERT_TRUE(server->listen_unix(path_).ok());
    EXPECT_EQ(mode_of(path_), 0600);
    EXPECT_EQ(mode_of(folder_.path() / "run"), 0700);
    EXPECT_EQ(server->listen_unix(path_ + "2").error().code, ErrorCode::Conflict);
  }
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(UnixSocket, TakesThePlaceOfADeadProcessAndNotOfALivingOne) {
  std::filesystem::create_directories(folder_.path() / "run");
  leave_socket(path_);
  const auto first = start(hello_router());
  ASSERT_TRUE(first->listen_unix(path_).ok());
  const auto second = start(hello_router());
  const Status refused = second->listen_unix(path_);
  EXPECT_EQ(refused.error().code, ErrorCode::Conflict);
  EXPECT_THAT(refused.error().message, HasSubstr(path_));
  EXPECT_EQ(get("/hello", path_)->status, 200);
}

TEST_F(UnixSocket, LeavesWhatIsNotItsOwn) {
  std::filesystem::create_directories(folder_.path() / "run");
  std::ofstream(path_) << "precious";
  const auto server = start(hello_router());
  EXPECT_THAT(server->listen_unix(path_).error().message, HasSubstr("no socket"));
  EXPECT_TRUE(std::filesystem::exists(path_));
  // Somebody replaces ours: the end of the server leaves theirs alone.
  const std::string other = path_ + ".b";
  {
    const auto owner = start(hello_router());
    ASSERT_TRUE(owner->listen_unix(other).ok());
    std::filesystem::remove(other);
    leave_socket(other);
  }
  EXPECT_TRUE(std::filesystem::is_socket(other));
}

TEST_F(UnixSocket, ALongOrRelativePathIsRefusedWithItsLength) {
  const auto server = start(hello_router());
  const std::string long_path = folder_.path().string() + "/" + std::string(120, 'x');
  EXPECT_THAT(server->listen_unix(long_path).error().message,
              HasSubstr(std::to_string(long_path.size())));
  EXPECT_EQ(server->listen_unix("pool.sock").error().code, ErrorCode::InvalidArgument);
  EXPECT_EQ(get("/hello", long_path).error().code, ErrorCode::InvalidArgument);
}

TEST_F(UnixSocket, TheClientNamesTheSocketThatIsNotThere) {
  const Result<Response> nobody = get("/hello", path_);
  EXPECT_EQ(nobody.error().code, ErrorCode::Unavailable);
  EXPECT_THAT(nobody.error().message, HasSubstr(path_));
  std::filesystem::create_directories(folder_.path() / "run");
  leave_socket(path_);
  EXPECT_THAT(get("/hello", path_).error().message, HasSubstr("nothing listens"));
}

TEST_F(UnixSocket, KeptConnectionsAreUsedAgain) {
  const auto server = start(hello_router());
  ASSERT_TRUE(server->listen_unix(path_).ok());
  Client keeping(ClientOptions{.max_idle_connections = 2});
  for (int i = 0; i < 5; ++i) {
    const auto answer = keeping.send(ClientRequest(Method::Get, unix_url(path_) + "/hello"));
    ASSERT_TRUE(answer.ok()) << answer.error().message;
  }
  EXPECT_EQ(server->num_connections(), 1U);
}

}  // namespace
}  // namespace llorch::http
