#include "catalog/transfer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <future>
#include <iterator>
#include <string>
#include <thread>

#include "base/digest.h"
#include "base/file_lock.h"
#include "catalog/http_fetch.h"
#include "catalog/retry.h"
#include "hub_simulator/hub_simulator.h"
#include "support/child_process.h"
#include "support/test_paths.h"

namespace llorch::catalog {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using test::SimFault;

constexpr std::int64_t kRange = std::int64_t{64} << 10;
constexpr int kAlways = 1'000'000;

std::string content_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void flip_byte(const fs::path& path, std::int64_t offset) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(offset);
  const char byte = static_cast<char>(file.get() ^ 0x20);
  file.seekp(offset);
  file.put(byte);
}

std::string git_sha1_of(const std::string& content) {
  base::Digest digest(base::DigestKind::Sha1);
  digest.add(fmt::format("blob {}", content.size()) + '\0' + content);
  return digest.finish_hex();
}

class TransferTest : public testing::Test {
 protected:
  // `ranges` whole ranges and one that is a bit shorter.
  void put(int ranges, test::SimFile file = {.etag = "\"one\""}) {
    content_ = test::random_bytes(static_cast<std::size_t>((ranges + 1) * kRange - 123), 7);
    file.content = content_;
    hub_.put_file("/m.gguf", file);
    remote_ = {};
    remote_.path = "m.gguf";
    remote_.url = hub_.url() + "/m.gguf";
    remote_.size = static_cast<std::int64_t>(content_.size());
    remote_.sha256 = base::sha256_hex(content_);
  }
  // Only the ETag says what the file is.
  void forget_hash() {
    remote_.sha256.clear();
    remote_.etag = "\"one\"";
  }
  void promise_chunks() {
    remote_.chunk_bytes = kRange;
    for (std::size_t at = 0; at < content_.size(); at += kRange)
      remote_.chunk_sha256.push_back(base::sha256_hex(content_.substr(at, kRange)));
  }

  Result<FileChunks> fetch(std::stop_token stop = {}) {
    return fetch_file(
        remote_, target_, options_,
        [this](const TransferProgress& progress) {
          last_ = progress;
          if (!progress.note.empty()) notes_ += progress.note + "\n";
          if (on_progress_) on_progress_(progress);
        },
        stop);
  }
  // A call that is given up when about so many bytes are there.
  void fetch_and_cancel(std::int64_t bytes) {
    std::stop_source source;
    on_progress_ = [&](const TransferProgress& progress) {
      if (progress.bytes_done >= bytes) source.request_stop();
    };
    const Result<FileChunks> cut = fetch(source.get_token());
    on_progress_ = {};
    ASSERT_FALSE(cut.ok());
    ASSERT_EQ(cut.error().code, ErrorCode::Cancelled) << cut.error().message;
    ASSERT_TRUE(fs::exists(part()));
  }
  void throttle(std::int64_t bytes_per_second) {
    hub_.add_fault({.path = "/m.gguf", .times = kAlways, .bytes_per_second = bytes_per_second});
  }

  void expect_right(const Result<FileChunks>& result) {
    ASSERT_TRUE(result.ok()) << result.error().message;
    EXPECT_EQ(content_of(target_), content_);
    // hash_file reads what lies there: another way to the same numbers.
    const Result<FileChunks> again = hash_file(target_, remote_.path, {}, result->chunk_bytes);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(*result, *again);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), {}), 1) << "left-overs";
  }
  ErrorCode expect_failure(const Result<FileChunks>& result) {
    EXPECT_FALSE(result.ok());
    EXPECT_FALSE(fs::exists(target_));
    if (result.ok()) return ErrorCode::Internal;
    message_ = result.error().message;
    return result.error().code;
  }

  std::size_t num_requests() const { return hub_.requests("/m.gguf").size(); }
  fs::path part() const { return target_.string() + ".part"; }

  test::TempDir folder_;
  test::HubSimulator hub_;
  std::string content_;
  RemoteFile remote_;
  fs::path target_ = folder_ / "m.gguf";
  TransferOptions options_{
      .range_bytes = kRange,
      .stall_timeout = milliseconds(300),
      .retry = {.first_pause = milliseconds(4), .longest_pause = milliseconds(20)}};
  std::function<void(const TransferProgress&)> on_progress_;
  TransferProgress last_;
  std::string notes_;
  std::string message_;
};

TEST_F(TransferTest, FetchesEveryRangeOnce) {
  put(20);
  expect_right(fetch());
  EXPECT_EQ(num_requests(), 21U);
  EXPECT_EQ(hub_.bytes_sent("/m.gguf"), *remote_.size);
  EXPECT_EQ(last_.bytes_done, *remote_.size);
  EXPECT_EQ(last_.bytes_total, *remote_.size);
  EXPECT_EQ(last_.retries, 0);
}

TEST_F(TransferTest, UsesTheConnectionsItMay) {
  put(40);
  throttle(1 << 20);
  expect_right(fetch());
  EXPECT_EQ(hub_.most_at_once(), 8);
}

TEST_F(TransferTest, UsesNoMoreConnectionsThanItMay) {
  put(40);
  throttle(1 << 20);
  options_.max_connections = 3;
  expect_right(fetch());
  EXPECT_EQ(hub_.most_at_once(), 3);
}

TEST_F(TransferTest, TakesFilesOfAnySize) {
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{kRange} - 1, std::size_t{kRange},
        std::size_t{kRange} + 1, 3 * std::size_t{kRange}}) {
    for (const bool knows_size : {true, false}) {
      put(0);
      content_ = test::random_bytes(size, size);
      hub_.put_file("/m.gguf", {.content = content_, .etag = "\"one\""});
      remote_.sha256 = base::sha256_hex(content_);
      remote_.size = static_cast<std::int64_t>(size);
      if (!knows_size) remote_.size.reset();
      SCOPED_TRACE(fmt::format("{} bytes, known before: {}", size, knows_size));
      expect_right(fetch());
    }
  }
}

TEST_F(TransferTest, ChecksEveryPublishedHash) {
  put(3);
  remote_.git_sha1 = git_sha1_of(content_);
  base::Digest digest(base::DigestKind::Sha512);
  digest.add(content_);
  remote_.integrity = "sha512-" + digest.finish_base64();
  expect_right(fetch());

  RemoteFile right = remote_;
  fs::remove(target_);
  for (int i = 0; i < 3; ++i) {
    remote_ = right;
    if (i == 0) remote_.sha256 = base::sha256_hex("other");
    if (i == 1) remote_.git_sha1 = git_sha1_of("other");
    if (i == 2) remote_.integrity = "sha512-AAAA";
    EXPECT_EQ(expect_failure(fetch()), ErrorCode::Corrupt);
    const std::string& expected = i == 0   ? remote_.sha256
                                  : i == 1 ? remote_.git_sha1
                                           : remote_.integrity;
    const std::string& found = i == 0 ? right.sha256 : i == 1 ? right.git_sha1 : right.integrity;
    EXPECT_NE(message_.find(expected), std::string::npos) << message_;
    EXPECT_NE(message_.find(found), std::string::npos) << message_;
    EXPECT_FALSE(fs::exists(part()));
  }
}

TEST_F(TransferTest, SecretsStayWithTheirOrigin) {
  put(12, {.etag = "\"one\"", .redirect_to = hub_.cdn_url() + "/far/m.gguf?Signature=s"});
  hub_.put_file("/far/m.gguf", {.content = content_, .etag = "\"one\""});
  remote_.headers = {{"Authorization", "Bearer secret"}};
  expect_right(fetch());
  std::size_t near = 0;
  for (const test::SimRequest& request : hub_.requests()) {
    const bool is_near = request.origin == hub_.url();
    near += is_near ? 1U : 0U;
    EXPECT_EQ(request.headers.contains("authorization"), is_near) << request.target;
  }
  // The first request finds out where the file is; the others go there.
  EXPECT_EQ(near, 1U);
  EXPECT_EQ(hub_.requests("/far/").size(), 13U);
}

TEST_F(TransferTest, AsksAgainWhereAnExpiredAddressNowIs) {
  put(12, {.redirect_to = hub_.cdn_url() + "/far/m.gguf"});
  hub_.put_file("/far/m.gguf", {.content = content_, .etag = "\"one\""});
  hub_.add_fault({.path = "/far/", .skip = 4, .times = 2, .status = 403});
  expect_right(fetch());
  std::size_t near = 0;
  for (const test::SimRequest& request : hub_.requests())
    near += request.origin == hub_.url() ? 1U : 0U;
  EXPECT_GE(near, 2U);
}

TEST_F(TransferTest, AnAddressThatIsRefusedTwiceIsNotTheTokensFault) {
  put(3, {.redirect_to = hub_.cdn_url() + "/far/m.gguf?Signature=s"});
  hub_.put_file("/far/m.gguf", {.content = content_, .etag = "\"one\""});
  remote_.refusal_hint = "set HF_TOKEN";
  hub_.add_fault({.path = "/far/", .times = kAlways, .status = 403});
  EXPECT_EQ(expect_failure(fetch()), ErrorCode::Forbidden);
  EXPECT_EQ(message_.find("HF_TOKEN"), std::string::npos) << message_;
  EXPECT_EQ(message_.find("Signature"), std::string::npos) << message_;
  EXPECT_NE(message_.find(hub_.cdn_url() + "/far/m.gguf\" answered 403"), std::string::npos)
      << message_;
  EXPECT_NE(message_.find("had let us in"), std::string::npos) << message_;
  EXPECT_EQ(hub_.requests("/far/").size(), 2U) << "asked for again once";
  // Of the host itself it is.
  hub_.clear_faults();
  hub_.add_fault({.path = "/m.gguf", .times = kAlways, .status = 403});
  EXPECT_EQ(expect_failure(fetch()), ErrorCode::Forbidden);
  EXPECT_NE(message_.find("set HF_TOKEN"), std::string::npos) << message_;
}

TEST_F(TransferTest, RefusesBadRedirects) {
  put(1, {.redirect_to = hub_.url() + "/m.gguf"});
  EXPECT_EQ(expect_failure(fetch()), ErrorCode::Unavailable);
  EXPECT_NE(message_.find("more than 5 times"), std::string::npos) << message_;
  EXPECT_EQ(num_requests(), 6U);
  put(1, {.redirect_to = "file:///etc/passwd"});
  EXPECT_EQ(expect_failure(fetch()), ErrorCode::Unavailable);
  EXPECT_NE(message_.find("neither http nor https"), std::string::npos) << message_;
  EXPECT_NE(redirect_problem("https://a/x", "http://a/x"), "");
  EXPECT_EQ(redirect_problem("http://a/x", "https://a/x"), "");
  EXPECT_EQ(redirect_problem("https://a/x", "https://b/x"), "");
}

TEST_F(TransferTest, TriesAgainWhatMayPass) {
  const std::vector<std::pair<std::string, SimFault>> faults = {
      {"429", {.status = 429}},         {"500", {.status = 500}},
      {"503", {.status = 503}},         {"416", {.status = 416}},
      {"reset", {.cut_after = 0}},      {"cut", {.cut_after = 30'000}},
      {"stall", {.stall_after = 1000}}, {"silence", {.stall_after = 0}}};
  for (const auto& [name, fault] : faults) {
    for (const int skip : {0, 5}) {
      SCOPED_TRACE(fmt::format("{} after {}", name, skip));
      put(10);
      hub_.forget_requests();
      hub_.clear_faults();
      SimFault here = fault;
      here.path = "/m.gguf";
      here.skip = skip;
      here.times = 3;
      hub_.add_fault(here);
      expect_right(fetch());
      EXPECT_EQ(num_requests(), 11U + 3U);
      EXPECT_EQ(last_.retries, 3);
      EXPECT_NE(notes_.find("waiting"), std::string::npos);
      fs::remove(target_);
    }
  }
}

TEST_F(TransferTest, KeepsWhatACutConnectionBrought) {
  put(4);
  options_.max_connections = 1;
  hub_.add_fault({.path = "/m.gguf", .only_offset = 0, .stall_after = 50'000});
  expect_right(fetch());
  EXPECT_EQ(hub_.bytes_sent("/m.gguf"), *remote_.size);
  const std::vector<test::SimRequest> requests = hub_.requests("/m.gguf");
  EXPECT_TRUE(std::any_of(requests.begin(), requests.end(), [](const test::SimRequest& request) {
    return request.headers.at("range") == fmt::format("bytes=50000-{}", kRange - 1);
  }));
}

TEST_F(TransferTest, AConnectionThatOnlyTricklesIsCutAndAtLastGivenUp) {
  put(0);
  options_.max_connections = 1;
  options_.min_bytes_per_second = 1000;
  options_.stall_timeout = milliseconds(400);
  // Never silent for the length of a stall, and never done.
  hub_.add_fault({.path = "/m.gguf", .times = kAlways, .bytes_per_second = 10});
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(expect_failure(fetch()), ErrorCode::Unavailable);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
  EXPECT_NE(message_.find("less than 1000 bytes a second, 6 times in a row"), std::string::npos)
      << message_;
  EXPECT_EQ(num_requests(), 6U);
  hub_.clear_faults();
  expect_right(fetch());
}

TEST_F(TransferTest, SilenceIsSaidWhileItLasts) {
  put(0);
  options_.wait_shown = milliseconds(100);
  options_.stall_timeout = std::chrono::hours(1);
  for (const bool before_the_head : {true, false}) {
    SCOPED_TRACE(before_the_head);
    SimFault fault{.path = "/m.gguf", .times = kAlways};
    fault.stall_head = before_the_head;
    if (!before_the_head) fault.stall_after = 100;
    hub_.clear_faults();
    hub_.add_fault(fault);
    std::stop_source source;
    TransferProgress seen;
    on_progress_ = [&](const TransferProgress& progress) {
      if (progress.waiting.count() == 0) return;
      seen = progress;
      source.request_stop();
    };
    EXPECT_EQ(expect_failure(fetch(source.get_token())), ErrorCode::Cancelled);
    EXPECT_GE(seen.waiting, milliseconds(100));
    EXPECT_EQ("http://" + seen.waiting_for, hub_.url());
    on_progress_ = {};
  }
  hub_.clear_faults();
  expect_right(fetch());
  EXPECT_EQ(last_.waiting.count(), 0);
}

TEST_F(TransferTest, WaitsAsLongAsTheServerAsks) {
  put(4);
  hub_.add_fault({.path = "/m.gguf", .status = 429, .headers = {{"Retry-After", "1"}}});
  const auto begin = std::chrono::steady_clock::now();
  expect_right(fetch());
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(1000));
  EXPECT_EQ(num_requests(), 6U);
  fs::remove(target_);
  hub_.add_fault({.path = "/m.gguf", .status = 503, .headers = {{"Retry-After", "86400"}}});
  EXPECT_EQ(expect_failure(fetch()), ErrorCode::Unavailable);
  EXPECT_NE(message_.find("86400"), std::string::npos) << message_;
}

TEST_F(TransferTest, GivesUpAfterSoManyFailures) {
  put(10);
  hub_.add_fault({.path = "/m.gguf", .times = kAlways, .only_offset = 4 * kRange, .status = 502});
  EXPECT_EQ(expect_failure(fetch()), ErrorCode::Unavailable);
  EXPECT_NE(message_.find("502"), std::string::npos) << message_;
  int tries = 0;
  for (const test::SimRequest& request : hub_.requests("/m.gguf"))
    tries += request.headers.at("range").starts_with(fmt::format("bytes={}-", 4 * kRange)) ? 1 : 0;
  EXPECT_EQ(tries, options_.retry.max_attempts);
  // The next call goes on from there.
  hub_.clear_faults();
  hub_.forget_requests();
  expect_right(fetch());
  EXPECT_EQ(num_requests(), 1U);
}

TEST_F(TransferTest, FailsAtOnceWhatWillNotPass) {
  const std::vector<std::pair<int, ErrorCode>> answers = {{400, ErrorCode::Unavailable},
                                                          {401, ErrorCode::Unauthorized},
                                                          {403, ErrorCode::Forbidden},
                                                          {404, ErrorCode::NotFound},
                                                          {410, ErrorCode::NotFound}};
  for (const auto& [status, code] : answers) {
    put(2);
    hub_.clear_faults();
    hub_.forget_requests();
    hub_.add_fault({.path = "/m.gguf",
                    .times = kAlways,
                    .status = status,
                    .headers = {{"X-Error-Message", "because"}}});
    EXPECT_EQ(expect_failure(fetch()), code);
    EXPECT_EQ(num_requests(), 1U);
    EXPECT_NE(message_.find(std::to_string(status)), std::string::npos) << message_;
    EXPECT_NE(message_.find("because"), std::string::npos) << message_;
  }
}

TEST_F(TransferTest, NobodyListeningIsAnErrorAfterAllAttempts) {
  put(1);
  remote_.url = "http://127.0.0.1:1/m.gguf";
  EXPECT_EQ(expect_failure(fetch()), ErrorCode::Unavailable);
  EXPECT_NE(message_.find("6 times in a row"), std::string::npos) << message_;
}

TEST_F(TransferTest, StreamsWhereThereAreNoRanges) {
  struct Case {
    const char* name;
    test::SimFile file;
    bool knows_size;
  };
  const std::vector<Case> cases = {
      {"no ranges", {.ranges = false}, true},
      {"no ranges, size unknown", {.ranges = false}, false},
      {"no length", {.ranges = false, .length = false}, false},
      {"no length, size known", {.ranges = false, .length = false}, true},
      {"no total", {.total = false}, false}};
  for (const Case& one : cases) {
    SCOPED_TRACE(one.name);
    put(10, one.file);
    hub_.clear_faults();
    if (!one.knows_size) remote_.size.reset();
    expect_right(fetch());
    fs::remove(target_);
    // A cut stream begins anew: nothing else is possible. (Without a length its end is no proof.)
    if (!one.file.length && !one.knows_size) continue;
    hub_.add_fault({.path = "/m.gguf", .skip = one.file.total ? 0 : 1, .cut_after = 300'000});
    hub_.forget_requests();
    expect_right(fetch());
    EXPECT_EQ(num_requests(), one.file.total ? 2U : 3U);
    fs::remove(target_);
  }
}

TEST_F(TransferTest, AnotherSizeThanPromisedIsCorrupt) {
  put(3);
  remote_.size = *remote_.size - 1;
  EXPECT_EQ(expect_failure(fetch()), ErrorCode::Corrupt);
  EXPECT_NE(message_.find(std::to_string(*remote_.size)), std::string::npos) << message_;
  EXPECT_EQ(num_requests(), 1U);
}

TEST_F(TransferTest, AServerThatSaysMoreThanItSendsIsFound) {
  put(3);
  remote_.size.reset();
  hub_.add_fault({.path = "/m.gguf", .times = kAlways, .claimed_size = 5 * kRange});
  const ErrorCode code = expect_failure(fetch());
  EXPECT_EQ(code, ErrorCode::Unavailable) << message_;
}

TEST_F(TransferTest, BytesBehindTheEndDoNoHarm) {
  put(3);
  hub_.add_fault({.path = "/m.gguf", .skip = 1, .times = 2, .extra_bytes = 5000});
  expect_right(fetch());
}

TEST_F(TransferTest, BeginsAgainOnceWhenTheFileChanges) {
  put(12);
  forget_hash();
  options_.max_connections = 2;
  hub_.add_fault({.path = "/m.gguf", .skip = 5, .times = 1, .etag = "\"two\""});
  expect_right(fetch());
  EXPECT_NE(notes_.find("beginning again"), std::string::npos) << notes_;
  EXPECT_GT(num_requests(), 13U);
  fs::remove(target_);
  hub_.add_fault({.path = "/m.gguf", .skip = 5, .times = 1, .etag = "\"two\""});
  hub_.add_fault({.path = "/m.gguf", .skip = 8, .times = 1, .etag = "\"three\""});
  EXPECT_EQ(expect_failure(fetch()), ErrorCode::Unavailable);
  EXPECT_NE(message_.find("changed"), std::string::npos) << message_;
}

TEST_F(TransferTest, ABadChunkIsFetchedAgainAlone) {
  put(12);
  promise_chunks();
  hub_.add_fault({.path = "/m.gguf", .only_offset = 5 * kRange, .corrupt_at = 5 * kRange + 77});
  expect_right(fetch());
  EXPECT_EQ(num_requests(), 14U);
  EXPECT_EQ(hub_.bytes_sent("/m.gguf"), *remote_.size + kRange);
  EXPECT_NE(notes_.find("chunk 5"), std::string::npos) << notes_;
}

TEST_F(TransferTest, AChunkThatIsAlwaysBadIsCorrupt) {
  put(12);
  promise_chunks();
  hub_.add_fault(
      {.path = "/m.gguf", .times = kAlways, .only_offset = 5 * kRange, .corrupt_at = 5 * kRange});
  EXPECT_EQ(expect_failure(fetch()), ErrorCode::Corrupt);
  EXPECT_NE(message_.find(remote_.chunk_sha256[5]), std::string::npos) << message_;
}

TEST_F(TransferTest, AWrongFileIsFetchedOnceMoreThenCorrupt) {
  put(12);
  hub_.add_fault({.path = "/m.gguf", .only_offset = 5 * kRange, .corrupt_at = 5 * kRange + 77});
  expect_right(fetch());
  EXPECT_EQ(num_requests(), 26U);
  EXPECT_NE(notes_.find("once more"), std::string::npos) << notes_;
  fs::remove(target_);
  hub_.add_fault({.path = "/m.gguf", .times = kAlways, .corrupt_at = 5 * kRange + 77});
  EXPECT_EQ(expect_failure(fetch()), ErrorCode::Corrupt);
  EXPECT_NE(message_.find(remote_.sha256), std::string::npos) << message_;
  EXPECT_NE(message_.find("0 of its 13 chunks"), std::string::npos) << message_;
  EXPECT_FALSE(fs::exists(part()));
}

TEST_F(TransferTest, ACancelledCallIsTakenUp) {
  put(40);
  throttle(2 << 20);
  fetch_and_cancel(*remote_.size / 2);
  hub_.clear_faults();
  hub_.forget_requests();
  expect_right(fetch());
  EXPECT_LE(hub_.bytes_sent("/m.gguf"), *remote_.size / 2);
}

TEST_F(TransferTest, WhatEightSlowConnectionsBeganIsNotLost) {
  put(127);
  options_.range_bytes = 16 * kRange;  // eight chunks: none of them is whole when it is cut
  throttle(1 << 20);
  fetch_and_cancel(*remote_.size / 4);
  hub_.clear_faults();
  hub_.forget_requests();
  expect_right(fetch());
  EXPECT_LE(hub_.bytes_sent("/m.gguf"), *remote_.size * 3 / 4);
  EXPECT_EQ(num_requests(), 8U);
}

TEST_F(TransferTest, CancelWaitsForNothing) {
  options_.stall_timeout = std::chrono::hours(1);
  options_.retry.first_pause = std::chrono::hours(1);
  options_.retry.longest_pause = std::chrono::hours(1);
  for (const bool is_pause : {true, false}) {
    put(3);
    hub_.clear_faults();
    hub_.forget_requests();
    SimFault fault{.path = "/m.gguf", .times = kAlways};
    (is_pause ? fault.status : fault.times) = is_pause ? 500 : kAlways;
    if (!is_pause) fault.stall_after = 100;
    hub_.add_fault(fault);
    std::stop_source source;
    auto running = std::async(std::launch::async, [&] { return fetch(source.get_token()); });
    while (num_requests() == 0) std::this_thread::sleep_for(milliseconds(1));
    source.request_stop();
    ASSERT_EQ(running.wait_for(std::chrono::seconds(20)), std::future_status::ready);
    EXPECT_EQ(expect_failure(running.get()), ErrorCode::Cancelled);
  }
}

TEST_F(TransferTest, AChunkThatRottedOnTheDiskIsFetchedAgainAlone) {
  put(40);
  throttle(2 << 20);
  fetch_and_cancel(*remote_.size / 2);
  hub_.clear_faults();
  hub_.forget_requests();
  flip_byte(part(), 2 * kRange + 5);
  expect_right(fetch());
  EXPECT_NE(notes_.find("1 of 41 chunks were damaged on the disk"), std::string::npos) << notes_;
  int fetches = 0;
  for (const test::SimRequest& request : hub_.requests("/m.gguf"))
    fetches +=
        request.headers.at("range").starts_with(fmt::format("bytes={}-", 2 * kRange)) ? 1 : 0;
  EXPECT_EQ(fetches, 1);
  EXPECT_LE(hub_.bytes_sent("/m.gguf"), *remote_.size / 2 + 10 * kRange);
}

TEST_F(TransferTest, AnotherFilesPartIsNotUsed) {
  put(20);
  throttle(1 << 19);
  fetch_and_cancel(*remote_.size / 2);
  hub_.clear_faults();
  hub_.forget_requests();
  content_ = test::random_bytes(content_.size(), 99);
  hub_.put_file("/m.gguf", {.content = content_, .etag = "\"two\""});
  remote_.sha256 = base::sha256_hex(content_);
  expect_right(fetch());
  EXPECT_EQ(hub_.bytes_sent("/m.gguf"), *remote_.size);
  EXPECT_EQ(num_requests(), 21U);
}

TEST_F(TransferTest, ADamagedStateBeginsFromNothing) {
  for (const std::string text : {"", "{", "{\"version\":1}", "[]", "{\"version\":2}"}) {
    put(4);
    std::ofstream(part()) << "something";
    std::ofstream(part().string() + ".json") << text;
    expect_right(fetch());
  }
}

TEST_F(TransferTest, UnderAnETagAPartIsTakenUpToo) {
  put(40);
  forget_hash();
  throttle(2 << 20);
  fetch_and_cancel(*remote_.size / 2);
  hub_.clear_faults();
  hub_.forget_requests();
  expect_right(fetch());
  EXPECT_LE(hub_.bytes_sent("/m.gguf"), *remote_.size / 2 + 9 * kRange);
  EXPECT_EQ(hub_.requests("/m.gguf")[0].headers.at("if-range"), "\"one\"");
}

TEST_F(TransferTest, WithoutRoomNothingIsAsked) {
  put(1);
  remote_.size = std::int64_t{1} << 41;
  EXPECT_EQ(expect_failure(fetch()), ErrorCode::OutOfMemory);
  EXPECT_EQ(num_requests(), 0U);
  EXPECT_NE(message_.find("2.00 TiB"), std::string::npos) << message_;
}

TEST_F(TransferTest, OneAtATime) {
  put(4);
  const auto lock = base::FileLock::acquire(folder_ / "m.gguf.lock", milliseconds(0));
  ASSERT_TRUE(lock.ok());
  EXPECT_EQ(expect_failure(fetch()), ErrorCode::Conflict);
  EXPECT_NE(message_.find(std::to_string(::getpid())), std::string::npos) << message_;
  EXPECT_EQ(num_requests(), 0U);
}

class TransferProcessTest : public TransferTest {
 protected:
  std::vector<std::string> arguments() const {
    return {remote_.url, target_.string(), std::to_string(*remote_.size), remote_.sha256,
            std::to_string(kRange)};
  }
};

TEST_F(TransferProcessTest, GoesOnAfterKill9AtAnyMoment) {
  put(160);
  throttle(2 << 20);
  const std::int64_t size = *remote_.size;
  for (const std::int64_t percent : {3, 25, 50, 75, 97}) {
    test::ChildProcess child(LLORCH_FETCH, arguments());
    while (hub_.bytes_sent("/m.gguf") < size * percent / 100 && child.is_running())
      std::this_thread::sleep_for(milliseconds(2));
    child.signal(SIGKILL);
    EXPECT_EQ(child.wait(), -1) << "it ended before it was killed";
    EXPECT_FALSE(fs::exists(target_));
  }
  hub_.clear_faults();
  expect_right(fetch());
  const std::int64_t again = hub_.bytes_sent("/m.gguf") - size;
  fmt::print("fetched again after five kills: {} chunks of {}\n", again / kRange, size / kRange);
  // At each kill: eight under way, eight done and not yet saved, and eight that ended in that turn.
  EXPECT_LE(again, 5 * (8 + 8 + 8) * kRange);
}

TEST_F(TransferProcessTest, TwoProcessesDoNotMeet) {
  put(40);
  throttle(kRange);
  test::ChildProcess first(LLORCH_FETCH, arguments());
  while (num_requests() < 2 && first.is_running()) std::this_thread::sleep_for(milliseconds(2));
  test::ChildProcess second(LLORCH_FETCH, arguments());
  EXPECT_EQ(second.wait(), 1);
  EXPECT_NE(second.err().find(std::to_string(first.pid())), std::string::npos) << second.err();
  EXPECT_TRUE(first.is_running());
}

TEST_F(TransferProcessTest, AFullDiskLosesNothing) {
  put(40);
  std::vector<std::string> limited = arguments();
  limited.push_back(std::to_string(20 * kRange));
  test::ChildProcess child(LLORCH_FETCH, limited);
  EXPECT_EQ(child.wait(), 1);
  EXPECT_NE(child.err().find("File too large"), std::string::npos) << child.err();
  hub_.forget_requests();
  expect_right(fetch());
  EXPECT_LE(hub_.bytes_sent("/m.gguf"), 30 * kRange);
}

// What is fetched with a user's token is not for others to read.
TEST_F(TransferTest, TheFileIsItsOwnersFromItsFirstByte) {
  using std::filesystem::perms;
  const auto mode = [](const std::filesystem::path& file) {
    return std::filesystem::status(file).permissions();
  };
  put(20);
  throttle(1 << 19);
  fetch_and_cancel(*remote_.size / 2);
  EXPECT_EQ(mode(part()), perms::owner_read | perms::owner_write);
  hub_.clear_faults();
  expect_right(fetch());
  EXPECT_EQ(mode(target_), perms::owner_read | perms::owner_write);
}

TEST_F(TransferTest, OneRangeIntoMemory) {
  put(10);
  hub_.add_fault({.path = "/m.gguf", .times = 2, .status = 500});
  const Result<std::string> range = fetch_range(remote_, 1000, 5000, options_, {});
  ASSERT_TRUE(range.ok()) << range.error().message;
  EXPECT_EQ(*range, content_.substr(1000, 5000));
  put(10, {.ranges = false});
  const Result<std::string> none = fetch_range(remote_, 1000, 5000, options_, {});
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::Unsupported) << none.error().message;
}

TEST(ContentRange, ReadsWhatServersSend) {
  const auto range = parse_content_range("bytes 5-9/100");
  ASSERT_TRUE(range);
  EXPECT_EQ(range->first, 5);
  EXPECT_EQ(range->last, 9);
  EXPECT_EQ(range->total, 100);
  EXPECT_FALSE(parse_content_range("bytes 5-9/*")->total);
  for (const char* bad :
       {"", "bytes", "bytes 5/9", "bytes 9-5/100", "bytes 5-9/9", "bytes -5-9/10", "bytes 5-9/x",
        "items 5-9/100", "bytes */100", "bytes 99999999999999999999-9/100"}) {
    EXPECT_FALSE(parse_content_range(bad)) << bad;
  }
}

TEST(FetchText, WaitsAsLongAsTheServerAsks) {
  test::HubSimulator hub;
  hub.put_file("/list", {.content = "all of it"});
  hub.add_fault({.path = "/list", .times = 2, .status = 429, .headers = {{"Retry-After", "70"}}});
  const base::ManualClock clock;
  const auto begin = clock.now();
  TextRequest request;
  request.request.url = hub.url() + "/list";
  request.max_bytes = 100;
  const Result<TextAnswer> answer = fetch_text(request, {.clock = &clock}, {}, {});
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->body, "all of it");
  EXPECT_GE(clock.now() - begin, std::chrono::seconds(140));
  EXPECT_LT(clock.now() - begin, std::chrono::seconds(150));
}

TEST(Retry, PausesDoubleWithinBoundsAndFollowTheSeed) {
  const RetryPolicy policy;
  std::uint64_t state = 1;
  std::uint64_t same = 1;
  std::uint64_t other = 2;
  bool differs = false;
  for (int failures = 1; failures < 50; ++failures) {
    const milliseconds full =
        std::min(policy.longest_pause, policy.first_pause * (1 << std::min(failures - 1, 10)));
    const milliseconds pause = pause_after(policy, failures, state);
    EXPECT_GE(pause, full / 2);
    EXPECT_LE(pause, full);
    EXPECT_EQ(pause, pause_after(policy, failures, same));
    differs = differs || pause != pause_after(policy, failures, other);
  }
  EXPECT_TRUE(differs);
  EXPECT_EQ(pause_after(policy, 1, std::chrono::seconds(7), state), milliseconds(7000));
  EXPECT_FALSE(pause_after(policy, 1, std::chrono::hours(1), state));
}

TEST(Retry, ASlowLineIsSharedByItsConnections) {
  const milliseconds window(30'000);
  EXPECT_TRUE(is_too_slow(30, window, 1, 1024)) << "a byte a second";
  EXPECT_TRUE(is_too_slow(30, window, 16, 1024));
  EXPECT_TRUE(is_too_slow(30 * 1024 - 1, window, 1, 1024));
  EXPECT_FALSE(is_too_slow(30 * 1024, window, 1, 1024));
  // A modem of 7 KiB/s with eight connections.
  EXPECT_FALSE(is_too_slow(30 * 7 * 1024 / 8, window, 8, 1024));
  EXPECT_FALSE(is_too_slow(0, window, 1, 0)) << "no minimum";
}

TEST(Retry, OnlyWhatMayPass) {
  for (const int status : {408, 416, 425, 429, 500, 502, 503, 504, 599})
    EXPECT_TRUE(may_pass(status));
  for (const int status : {200, 206, 301, 400, 401, 403, 404, 410, 451})
    EXPECT_FALSE(may_pass(status));
}

TEST(ShownUrl, KeepsSignaturesToItself) {
  EXPECT_EQ(shown_url("https://a/b?Signature=x#y"), "\"https://a/b\"");
  EXPECT_EQ(origin_of("HTTPS://A.example/x"), "https://a.example:443");
  EXPECT_EQ(origin_of("http://a:8080/x"), "http://a:8080");
  EXPECT_EQ(origin_of("ftp://a/x"), "");
}

}  // namespace
}  // namespace llorch::catalog
