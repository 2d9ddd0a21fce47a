#include "fetch/transfer_fixture.h"

namespace llorch::fetch {
namespace {

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
  // After the twelve requests that the first attempt can make at most, so in the second.
  hub_.add_fault({.path = "/m.gguf", .skip = 14, .times = 1, .etag = "\"three\""});
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

}  // namespace
}  // namespace llorch::fetch
