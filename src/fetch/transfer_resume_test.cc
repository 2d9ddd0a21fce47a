#include "fetch/transfer_fixture.h"

namespace llorch::fetch {
namespace {

TEST_F(TransferTest, ACancelledCallIsTakenUp) {
  put(40);
  throttle(512 << 10);
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

}  // namespace
}  // namespace llorch::fetch
