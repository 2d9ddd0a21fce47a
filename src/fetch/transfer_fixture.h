// A transfer from the hub simulator into a folder of its own, for tests.
#pragma once

#include "fetch/transfer.h"

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
#include "fetch/http_fetch.h"
#include "fetch/retry.h"
#include "hub_simulator/hub_simulator.h"
#include "support/child_process.h"
#include "support/test_paths.h"

namespace llorch::fetch {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using test::SimFault;

inline constexpr std::int64_t kRange = std::int64_t{64} << 10;
inline constexpr int kAlways = 1'000'000;

inline std::string content_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void flip_byte(const fs::path& path, std::int64_t offset) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(offset);
  const char byte = static_cast<char>(file.get() ^ 0x20);
  file.seekp(offset);
  file.put(byte);
}

inline std::string git_sha1_of(const std::string& content) {
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
    return transfer_file(
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

}  // namespace llorch::fetch
