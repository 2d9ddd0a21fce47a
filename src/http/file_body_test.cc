// Ranges: the decision as a table, then over real sockets and with curl.
#include "http/file_body.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <stdexcept>

#include "base/file.h"
#include "http/client.h"
#include "http/server.h"
#include "http/test_server.h"
#include "support/run_program.h"
#include "support/test_paths.h"

namespace llorch::http {
namespace {

using llorch::test::TempDir;
using ::testing::HasSubstr;
using Kind = ByteRange::Kind;

constexpr std::string_view kCurl = "/usr/bin/curl";

Request request_with(std::string range, std::string if_range = {}) {
  Request request;
  request.method = Method::Get;
  if (!range.empty()) request.headers.add("Range", std::move(range));
  if (!if_range.empty()) request.headers.add("If-Range", std::move(if_range));
  return request;
}

TEST(ChooseRange, FollowsTheRfc) {
  struct Row {
    const char* range;
    std::int64_t size;
    Kind kind;
    std::int64_t offset;
    std::int64_t bytes;
  };
  const std::vector<Row> rows = {
      {"", 10, Kind::Whole, 0, 10},
      {"bytes=0-0", 10, Kind::Part, 0, 1},
      {"bytes=0-9", 10, Kind::Part, 0, 10},
      {"bytes=3-", 10, Kind::Part, 3, 7},
      {"bytes=9-9", 10, Kind::Part, 9, 1},
      {"bytes=5-100", 10, Kind::Part, 5, 5},
      {"bytes=-1", 10, Kind::Part, 9, 1},
      {"bytes=-10", 10, Kind::Part, 0, 10},
      {"bytes=-11", 10, Kind::Part, 0, 10},
      {"Bytes=1-2", 10, Kind::Part, 1, 2},
      {"bytes= 1-2 ", 10, Kind::Part, 1, 2},
      {"bytes=0-99999999999999999999999", 10, Kind::Part, 0, 10},
      {"bytes=-99999999999999999999999", 10, Kind::Part, 0, 10},
      {"bytes=10-", 10, Kind::Unsatisfiable, 0, 0},
      {"bytes=10-20", 10, Kind::Unsatisfiable, 0, 0},
      {"bytes=99999999999999999999999-", 10, Kind::Unsatisfiable, 0, 0},
      {"bytes=-0", 10, Kind::Unsatisfiable, 0, 0},
      {"bytes=0-", 0, Kind::Unsatisfiable, 0, 0},
      {"bytes=-5", 0, Kind::Whole, 0, 0},
      {"bytes=0-1,3-4", 10, Kind::Whole, 0, 10},  // several: allowed to be ignored
      {"bytes=5-2", 10, Kind::Whole, 0, 10},
      {"bytes=-", 10, Kind::Whole, 0, 10},
      {"bytes=", 10, Kind::Whole, 0, 10},
      {"bytes=a-b", 10, Kind::Whole, 0, 10},
      {"bytes=+1-2", 10, Kind::Whole, 0, 10},
      {"bytes=--1", 10, Kind::Whole, 0, 10},
      {"bytes 0-1", 10, Kind::Whole, 0, 10},
      {"lines=0-1", 10, Kind::Whole, 0, 10},
  };
  for (const Row& row : rows) {
    const ByteRange range = choose_range(request_with(row.range), row.size, "tag");
    EXPECT_EQ(range.kind, row.kind) << row.range << " of " << row.size;
    EXPECT_EQ(range.offset, row.offset) << row.range << " of " << row.size;
    EXPECT_EQ(range.bytes, row.bytes) << row.range << " of " << row.size;
  }
}

TEST(ChooseRange, OnlyWhenTheFileIsTheOneMeant) {
  EXPECT_EQ(choose_range(request_with("bytes=1-2", "\"tag\""), 10, "tag").kind, Kind::Part);
  for (const char* other : {"\"other\"", "tag", "W/\"tag\"", "Sat, 29 Oct 1994 19:43:31 GMT"})
    EXPECT_EQ(choose_range(request_with("bytes=1-2", other), 10, "tag").kind, Kind::Whole) << other;
  EXPECT_EQ(choose_range(request_with("bytes=1-2", "\"\""), 10, "").kind, Kind::Whole);
  Request head = request_with("bytes=1-2");
  head.method = Method::Head;
  EXPECT_EQ(choose_range(head, 10, "tag").kind, Kind::Whole) << "ranges are defined for GET only";
}

// Serves one file of random bytes at /file.
class FileServer {
 public:
  explicit FileServer(std::size_t bytes) : path_(folder_ / "file"), content_(bytes, '\0') {
    std::mt19937_64 random(bytes);
    for (char& c : content_) c = static_cast<char>(random());
    CHECK(base::write_file_atomically(path_, content_).ok(), "write");
    auto opened = base::PositionedFile::open(path_);
    CHECK(opened.ok(), "open");
    Router router;
    router.add(
        Method::Get, "/file",
        [this, file = *opened](const Request& request, Responder& responder) -> Task<Status> {
          const auto size = static_cast<std::int64_t>(content_.size());
          const ByteRange range = choose_range(request, size, "tag");
          if (range.kind == Kind::Unsatisfiable) {
            Response response(416, "text/plain", "behind the end");
            response.headers.add("Content-Range", unsatisfied_content_range(size));
            co_return co_await responder.send(std::move(response));
          }
          FileBody body;
          body.file = file;
          body.size = size;
          body.etag = "tag";
          co_return co_await send_file(responder, threads_, std::move(body), range);
        });
    server_ = test::start(std::move(router));
  }

  std::uint16_t port() const { return server_->port(); }
  std::string url() const { return fmt::format("http://127.0.0.1:{}/file", port()); }
  const std::string& content() const { return content_; }
  const std::filesystem::path& path() const { return path_; }

 private:
  TempDir folder_;
  std::filesystem::path path_;
  std::string content_;
  WorkThreads threads_{2};
  std::unique_ptr<Server> server_;
};

TEST(SendFile, WholePartsHeadsAndWhatLiesBehindTheEnd) {
  const FileServer server(1000);
  RawSocket socket(server.port());  // one connection for all: the framing must be exact
  ASSERT_TRUE(socket.send(get("/file")));
  std::string answer = socket.read_response();
  EXPECT_EQ(status_of(answer), 200);
  EXPECT_EQ(header_of(answer, "content-length"), "1000");
  EXPECT_EQ(header_of(answer, "accept-ranges"), "bytes");
  EXPECT_EQ(header_of(answer, "etag"), "\"tag\"");
  EXPECT_TRUE(body_of(answer) == server.content());

  ASSERT_TRUE(socket.send(get("/file", "Range: bytes=10-19\r\n")));
  answer = socket.read_response();
  EXPECT_EQ(status_of(answer), 206);
  EXPECT_EQ(header_of(answer, "content-range"), "bytes 10-19/1000");
  EXPECT_TRUE(body_of(answer) == server.content().substr(10, 10));

  ASSERT_TRUE(socket.send(get("/file", "Range: bytes=1000-\r\n")));
  answer = socket.read_response();
  EXPECT_EQ(status_of(answer), 416);
  EXPECT_EQ(header_of(answer, "content-range"), "bytes */1000");

  ASSERT_TRUE(socket.send("HEAD /file HTTP/1.1\r\nHost: t\r\nRange: bytes=1-2\r\n\r\n"));
  answer = socket.read_until("\r\n\r\n");
  EXPECT_EQ(status_of(answer), 200);
  EXPECT_EQ(header_of(answer, "content-length"), "1000");

  ASSERT_TRUE(socket.send(get("/file", "Range: bytes=-3\r\nIf-Range: \"tag\"\r\n")));
  answer = socket.read_response();
  EXPECT_EQ(status_of(answer), 206);
  EXPECT_TRUE(body_of(answer) == server.content().substr(997));
}

TEST(SendFile, AnEmptyFileIsAnEmptyBody) {
  const FileServer server(0);
  RawSocket socket(server.port());
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(socket.send(get("/file")));
    const std::string answer = socket.read_response();
    EXPECT_EQ(status_of(answer), 200);
    EXPECT_EQ(header_of(answer, "content-length"), "0");
  }
}

TEST(SendFile, OldClientsGetALengthToo) {
  const FileServer server(700'000);  // more than one piece
  RawSocket socket(server.port());
  ASSERT_TRUE(socket.send("GET /file HTTP/1.0\r\nHost: t\r\n\r\n"));
  const std::string answer = socket.read_all();
  EXPECT_EQ(header_of(answer, "content-length"), "700000");
  EXPECT_TRUE(body_of(answer) == server.content());
}

TEST(SendFile, AFileThatShrinksBreaksTheStreamVisibly) {
  const FileServer server(8 << 20);
  RawSocket socket(server.port(), 4096);  // so that most of it is still to be read
  ASSERT_TRUE(socket.send(get("/file")));
  const std::string head = socket.read_until("\r\n\r\n");
  EXPECT_EQ(header_of(head, "content-length"), std::to_string(8 << 20));
  std::filesystem::resize_file(server.path(), 100'000);
  EXPECT_LT(socket.read_all().size(), std::size_t{8} << 20);

  Client client;
  const Result<Response> failed = client.send(ClientRequest(Method::Get, server.url()));
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::Unavailable) << failed.error().message;
}

TEST(SendFile, ALeavingClientLeavesTheServerWell) {
  const FileServer server(16 << 20);
  for (int i = 0; i < 10; ++i) {
    RawSocket socket(server.port(), 4096);
    ASSERT_TRUE(socket.send(get("/file")));
    socket.read_until("\r\n\r\n");
    socket.reset();
  }
  RawSocket socket(server.port());
  ASSERT_TRUE(socket.send(get("/file", "Range: bytes=0-0\r\n")));
  EXPECT_EQ(status_of(socket.read_response()), 206);
}

TEST(Stream, ALengthThatIsNotReachedIsVisible) {
  Router router;
  router.add(Method::Get, "/", [](const Request&, Responder& responder) -> Task<Status> {
    Headers headers;
    Result<Stream> stream = co_await responder.open_stream(200, "text/plain", headers, 10);
    if (!stream.ok()) co_return stream.error();
    co_return co_await stream->write("12345");
  });
  const auto server = test::start(std::move(router));
  RawSocket socket(server->port());
  ASSERT_TRUE(socket.send(get("/")));
  EXPECT_EQ(body_of(socket.read_all()), "12345");  // and the connection is closed
}

// What curl makes of our answers, byte for byte.
TEST(SendFile, CurlAgrees) {
  if (!std::filesystem::exists(kCurl)) GTEST_SKIP() << "no " << kCurl << " to compare with";
  const FileServer server(3'000'000);
  const TempDir folder;
  const auto curl = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--silent", "--show-error", "--fail", "--output",
                                         (folder / "got").string(), "--write-out", "%{http_code}"});
    arguments.push_back(server.url());
    return llorch::test::run_program(std::string(kCurl), arguments);
  };
  const auto got = [&] { return base::read_text_file(folder / "got", 10'000'000).take(); };
  EXPECT_EQ(curl({}).out, "200");
  EXPECT_TRUE(got() == server.content());
  struct Row {
    const char* range;
    std::size_t offset;
    std::size_t bytes;
  };
  for (const Row& row :
       {Row{"0-0", 0, 1}, Row{"-1", 2'999'999, 1}, Row{"262143-262144", 262'143, 2},
        Row{"2999999-", 2'999'999, 1}, Row{"1000000-9999999", 1'000'000, 2'000'000}}) {
    EXPECT_EQ(curl({"--range", row.range}).out, "206") << row.range;
    EXPECT_TRUE(got() == server.content().substr(row.offset, row.bytes)) << row.range;
  }
  const auto behind = curl({"--range", "3000000-"});
  EXPECT_EQ(behind.out, "416");
  EXPECT_NE(behind.exit_code, 0);

  // curl's own way to go on with half a file.
  std::ofstream(folder / "got", std::ios::binary) << server.content().substr(0, 1'234'567);
  const auto resumed = curl({"--continue-at", "-"});
  EXPECT_EQ(resumed.out, "206") << resumed.err;
  EXPECT_TRUE(got() == server.content());
  EXPECT_THAT(curl({"--head"}).out, HasSubstr("200"));
}

TEST(WorkThreads, LeaveTheIoThreadFree) {
  test::Gate go;
  test::Gate busy;
  WorkThreads threads(1);
  Router router;
  router.add(Method::Get, "/wait", [&](const Request&, Responder& responder) -> Task<Status> {
    std::function<Result<std::string>()> work = [&]() -> Result<std::string> {
      busy.open();
      if (!go.wait()) return Error{ErrorCode::DeadlineExceeded, "nobody opened the gate"};
      return std::string("done");
    };
    Result<std::string> text = co_await threads.run<std::string>(std::move(work));
    if (!text.ok()) co_return text.error();
    co_return co_await responder.send(Response(200, "text/plain", text.take()));
  });
  router.add(Method::Get, "/health", [](const Request&) -> Result<Response> { return Response{}; });
  ServerOptions options = test::plain_options();
  options.io_threads = 1;
  const auto server = test::start(std::move(router), options);
  RawSocket first(server->port());
  RawSocket health(server->port());
  ASSERT_TRUE(first.send(get("/wait")));
  ASSERT_TRUE(busy.wait());
  ASSERT_TRUE(health.send(get("/health")));
  EXPECT_EQ(status_of(health.read_response()), 200) << "the one io thread is free";
  go.open();
  EXPECT_EQ(body_of(first.read_response()), "done");
}

// One thread, busy: what waits behind it is answered when its time is over or nobody wants it, and
// never begins.
TEST(WorkThreads, GiveUpWhatNobodyWaitsFor) {
  test::Gate busy, go;
  WorkThreads threads(1, 1);
  std::atomic<int> begun = 0;
  Router router;
  router.add(Method::Get, "/busy", [&](const Request&, Responder&) -> Task<Status> {
    std::function<Result<int>()> work = [&]() -> Result<int> {
      busy.open();
      return go.wait() ? Result<int>(1) : Error{ErrorCode::Internal, "nobody opened the gate"};
    };
    const Result<int> result = co_await threads.run<int>(std::move(work));
    if (!result.ok()) co_return result.error();
    co_return Error{ErrorCode::NotFound, "done"};
  });
  router.add(Method::Get, "/behind", [&](const Request& request, Responder&) -> Task<Status> {
    std::stop_source stop;
    base::WorkLimit limit{stop.get_token()};
    if (request.query.contains("late")) limit.deadline = std::chrono::steady_clock::now();
    if (request.query.contains("stopped")) stop.request_stop();
    std::function<Result<int>()> work = [&begun]() -> Result<int> { return ++begun; };
    const Result<int> result = co_await threads.run<int>(std::move(work), limit);
    stop.request_stop();
    co_return result.ok() ? Error{ErrorCode::Internal, "it ran"} : result.error();
  });
  const auto server = test::start(std::move(router));
  RawSocket first(server->port());
  ASSERT_TRUE(first.send(get("/busy")));
  ASSERT_TRUE(busy.wait());
  // The queue holds one: each makes room for the next.
  for (const auto& [query, code] :
       {std::pair{"late", "DeadlineExceeded"}, std::pair{"stopped", "Cancelled"},
        std::pair{"late", "DeadlineExceeded"}}) {
    RawSocket socket(server->port());
    ASSERT_TRUE(socket.send(get(fmt::format("/behind?{}=1", query))));
    EXPECT_THAT(body_of(socket.read_response()),
                HasSubstr(std::string_view(code) == "Cancelled" ? "nobody waits" : "time"));
  }
  go.open();
  EXPECT_EQ(status_of(first.read_response()), 404);
  EXPECT_EQ(begun, 0);
}

TEST(WorkThreads, SurviveWorkThatThrows) {
  WorkThreads threads(1);
  Router router;
  router.add(Method::Get, "/", [&](const Request& request, Responder&) -> Task<Status> {
    std::function<Result<int>()> work = [memory =
                                             request.query.contains("memory")]() -> Result<int> {
      if (memory) throw std::bad_alloc();
      throw std::runtime_error("surprise");
    };
    const Result<int> result = co_await threads.run<int>(std::move(work));
    co_return result.ok() ? Error{ErrorCode::NotFound, "it went well"} : result.error();
  });
  const auto server = test::start(std::move(router));
  for (int i = 0; i < 3; ++i) {
    RawSocket socket(server->port());
    ASSERT_TRUE(socket.send(get("/")));
    EXPECT_THAT(body_of(socket.read_response()), HasSubstr("surprise"));
    ASSERT_TRUE(socket.send(get("/?memory=1")));
    EXPECT_THAT(body_of(socket.read_response()), HasSubstr("out of memory"));
  }
}

TEST(WorkThreads, RefuseWhatIsTooMuch) {
  WorkThreads threads(1, 0);
  Router router;
  router.add(Method::Get, "/", [&](const Request&, Responder&) -> Task<Status> {
    std::function<Result<int>()> work = []() -> Result<int> { return 1; };
    const Result<int> result = co_await threads.run<int>(std::move(work));
    EXPECT_FALSE(result.ok());
    co_return result.error();
  });
  const auto server = test::start(std::move(router));
  RawSocket socket(server->port());
  ASSERT_TRUE(socket.send(get("/")));
  EXPECT_EQ(status_of(socket.read_response()), 503);
}

}  // namespace
}  // namespace llorch::http
