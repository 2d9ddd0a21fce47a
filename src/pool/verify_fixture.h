// Verifying a model of a test host.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <algorithm>
#include <random>
#include <set>
#include "base/mutex.h"
#include "catalog/outdated.h"
#include "catalog/verify.h"
#include "http/file_body.h"
#include "hub_simulator/hub_simulator.h"
#include "pool/test_host.h"
#include "support/child_process.h"
#include "support/run_program.h"

namespace llorch::pool {

using catalog::Damage;
using catalog::VerifyReport;
using fetch::kChunkBytes;
using test::FakeNeighbour;
using test::Files;
using test::Host;
using test::random_bytes;
using test::rot_byte;
using ::testing::HasSubstr;

inline constexpr std::int64_t kSmall = 4096;  // chunks for tests that need many

inline VerifyReport verify(const Host& host, const std::string& id,
                           std::vector<fetch::Neighbour> neighbours = {}, bool repair = true) {
  catalog::VerifyRequest request;
  request.id = id;
  request.repair = repair;
  request.neighbours = std::move(neighbours);
  Result<VerifyReport> report = catalog::verify_model(host.downloader(), request, {}, {});
  EXPECT_TRUE(report.ok()) << report.error().message;
  return report.ok() ? report.take() : VerifyReport{};
}
inline VerifyReport check(const Host& host, const std::string& id) {
  return verify(host, id, {}, false);
}

// Answers ranges of `content`, each passed through `change` first.
inline FakeNeighbour::Answer ranges_of(std::string content,
                                       std::function<void(std::string&)> change) {
  return [content = std::move(content), change = std::move(change)](
             const http::Request& request, http::Responder& responder) -> http::Task<Status> {
    const http::ByteRange range =
        http::choose_range(request, static_cast<std::int64_t>(content.size()), "");
    std::string bytes = content.substr(static_cast<std::size_t>(range.offset),
                                       static_cast<std::size_t>(range.bytes));
    change(bytes);
    http::Response response(range.kind == http::ByteRange::Kind::Part ? 206 : 200,
                            "application/octet-stream", std::move(bytes));
    response.headers.add("Content-Range",
                         fmt::format("bytes {}-{}/{}", range.offset, range.offset + range.bytes - 1,
                                     content.size()));
    co_return co_await responder.send(std::move(response));
  };
}

}  // namespace llorch::pool
