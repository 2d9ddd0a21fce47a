// Whose word counts, and a file that comes from several hosts.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "base/digest.h"
#include "catalog/verify.h"
#include "fetch/neighbour.h"
#include "fetch/offers.h"
#include "http/file_body.h"
#include "http/work_threads.h"
#include "hub_simulator/hub_simulator.h"
#include "pool/test_host.h"

namespace llorch::catalog {
namespace {

using pool::test::FakeNeighbour, pool::test::fetch_text, pool::test::Files, pool::test::Host,
    pool::test::random_bytes, pool::test::read_file;
using ::testing::ElementsAre, ::testing::HasSubstr;

class Notes {
 public:
  fetch::OnNote sink() {
    return [this](const std::string& text) { all_ += text + "\n"; };
  }
  const std::string& text() const { return all_; }

 private:
  std::string all_;
};

fetch::RemoteFile remote(std::string path, std::int64_t size, std::string sha256) {
  fetch::RemoteFile file;
  file.path = std::move(path);
  file.size = size;
  file.sha256 = std::move(sha256);
  return file;
}

fetch::ModelSource source_of(std::string revision, std::vector<fetch::RemoteFile> files) {
  fetch::ModelSource source;
  source.revision = std::move(revision);
  source.files = std::move(files);
  return source;
}

std::vector<std::string> names(const std::vector<fetch::Offer>& offers) {
  std::vector<std::string> out;
  for (const fetch::Offer& offer : offers) out.push_back(offer.from);
  return out;
}

TEST(MergeOffers, TheOriginDecidesWhatTheFilesAre) {
  const std::string a(64, 'a');
  const std::string b(64, 'b');
  const fetch::NamedSource origin{"hub", source_of("1", {remote("w", 10, a), remote("c", 3, "")})};
  fetch::RemoteFile& config = const_cast<fetch::RemoteFile&>(origin.second.files[1]);
  config.git_sha1 = "0123";
  const fetch::NamedSource same{"same", source_of("x", {remote("w", 10, a), remote("c", 3, b)})};
  const fetch::NamedSource other{"other", source_of("1", {remote("w", 10, b), remote("c", 4, b)})};
  const fetch::NamedSource less{"less", source_of("1", {remote("c", 3, b)})};
  Notes notes;
  const fetch::OfferedModel model = fetch::merge_offers(origin, {other, same, less}, notes.sink());
  ASSERT_EQ(model.offers.size(), 2U);
  EXPECT_THAT(names(model.offers[0]), ElementsAre("same", "hub"));
  EXPECT_THAT(names(model.offers[1]), ElementsAre("same", "less", "hub"));
  EXPECT_EQ(model.offers[1][0].file.git_sha1, "0123") << "the origin's hash is checked too";
  EXPECT_EQ(model.source.revision, "1");
  EXPECT_THAT(notes.text(), HasSubstr("other does not have the same \"w\""));
}

TEST(MergeOffers, WhatCannotBeComparedIsNotTaken) {
  const std::string a(64, 'a');
  const fetch::NamedSource origin{"web", source_of("etag-1", {remote("w", 10, "")})};
  const fetch::NamedSource same{"same", source_of("etag-1", {remote("w", 10, a)})};
  const fetch::NamedSource unknown{"unknown", source_of("", {remote("w", 10, a)})};
  Notes notes;
  EXPECT_THAT(names(fetch::merge_offers(origin, {unknown, same}, notes.sink()).offers[0]),
              ElementsAre("same", "web"));
  fetch::NamedSource archive = origin;
  archive.second.is_tarball = true;
  EXPECT_THAT(names(fetch::merge_offers(archive, {same}, notes.sink()).offers[0]),
              ElementsAre("web"));
  EXPECT_THAT(notes.text(), HasSubstr("archive"));
}

TEST(MergeOffers, WithoutAnOriginTheFirstNeighbourDecides) {
  const std::string a(64, 'a');
  const std::string b(64, 'b');
  const fetch::NamedSource first{"first", source_of("1", {remote("w", 10, a)})};
  const fetch::NamedSource liar{"liar", source_of("1", {remote("w", 10, b)})};
  const fetch::NamedSource third{"third", source_of("2", {remote("w", 10, a)})};
  Notes notes;
  EXPECT_THAT(
      names(fetch::merge_offers(std::nullopt, {first, liar, third}, notes.sink()).offers[0]),
      ElementsAre("first", "third"));
}

TEST(FindOffers, AsksNeighboursAndThenTheSource) {
  test::HubSimulator hub;
  const std::string weights = random_bytes(50'000, 1);
  const std::string commit(40, 'a');
  hub.put_repo({.name = "org/repo",
                .commit = commit,
                .files = {{.path = "model.safetensors", .content = weights, .lfs = true},
                          {.path = "config.json", .content = "{}"}}});
  Host honest;
  Host other;
  Host empty;
  honest.add_model("m", {{"model.safetensors", weights}, {"config.json", "{}"}});
  other.add_model("m", {{"model.safetensors", random_bytes(50'000, 2)}, {"config.json", "[]"}});
  for (Host* host : {&honest, &other, &empty}) host->serve();
  fetch::SourceOptions options = honest.downloader().source;
  options.hf_endpoint = hub.url();
  fetch::OfferQuestion question;
  question.id = "m";
  question.neighbours = {empty.neighbour(), other.neighbour(), honest.neighbour()};
  question.ref = fetch::parse_model_ref("hf:org/repo").take();
  Notes notes;
  const auto model = fetch::find_offers(question, options, notes.sink(), {});
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->source.revision, commit);
  for (std::size_t i = 0; i < model->source.files.size(); ++i) {
    if (model->source.files[i].path != "model.safetensors") continue;
    EXPECT_THAT(names(model->offers[i]), ElementsAre(honest.url(), "hf:org/repo"));
  }
  EXPECT_THAT(notes.text(), HasSubstr(empty.url()));
  EXPECT_THAT(notes.text(), HasSubstr(other.url()));

  // A hub that is not there is said and done without; one that refuses is believed.
  hub.add_fault({.path = "/api/models", .times = 1000, .status = 503});
  const auto without = fetch::find_offers(question, options, notes.sink(), {});
  ASSERT_TRUE(without.ok()) << without.error().message;
  EXPECT_EQ(without->offers[0].front().from, other.url()) << "the first that has it";
  hub.clear_faults();
  question.ref = fetch::parse_model_ref("hf:org/nothing").take();
  EXPECT_FALSE(fetch::find_offers(question, options, notes.sink(), {}).ok());

  question.ref.reset();
  question.only_neighbours = true;
  hub.forget_requests();
  ASSERT_TRUE(fetch::find_offers(question, options, notes.sink(), {}).ok());
  EXPECT_TRUE(hub.requests().empty()) << "--from asks nobody else";
  question.neighbours = {empty.neighbour()};
  const auto nobody = fetch::find_offers(question, options, notes.sink(), {});
  ASSERT_FALSE(nobody.ok());
  EXPECT_THAT(nobody.error().message, HasSubstr(empty.url()));
}

// A file of several chunks, at three places: one that cuts after the first chunk, one that lies in
// the fourth, one that is honest. What is right is kept, nothing wrong gets in.
TEST(TransferOffered, GoesOnWithTheNextWhereOneDiesOrLies) {
  constexpr std::int64_t kChunk = 64 * 1024;
  const std::string content = random_bytes(4 * kChunk + 100, 3);
  Host honest;
  Host me;
  honest.add_model("m", {{"a", content}}, kChunk);
  honest.serve();
  const std::string manifest = fetch_text(honest.url() + "/v2/models/m/manifest");
  const auto answer_with = [&content](std::function<bool(std::int64_t, std::string&)> change) {
    return [&content, change = std::move(change)](
               const http::Request& request, http::Responder& responder) -> http::Task<Status> {
      const auto size = static_cast<std::int64_t>(content.size());
      const http::ByteRange range = http::choose_range(request, size, "");
      std::string bytes = content.substr(static_cast<std::size_t>(range.offset),
                                         static_cast<std::size_t>(range.bytes));
      const bool goes_on = change(range.offset, bytes);
      http::Headers headers;
      headers.add("Content-Range", fmt::format("bytes {}-{}/{}", range.offset,
                                               range.offset + range.bytes - 1, size));
      Result<http::Stream> stream =
          co_await responder.open_stream(206, "application/octet-stream", headers, range.bytes);
      if (!stream.ok()) co_return stream.error();
      if (!goes_on) bytes.resize(bytes.size() / 2);
      const Status written = co_await stream->write(bytes);
      if (!goes_on) co_return Error{ErrorCode::Internal, "cut in the middle of a chunk"};
      co_return written;
    };
  };
  const FakeNeighbour dying(
      manifest, answer_with([](std::int64_t offset, std::string&) { return offset < kChunk; }));
  const FakeNeighbour lying(manifest, answer_with([](std::int64_t offset, std::string& bytes) {
                              const std::int64_t lie = 4 * kChunk - 1 - offset;
                              if (lie >= 0 && lie < static_cast<std::int64_t>(bytes.size()))
                                bytes[static_cast<std::size_t>(lie)] ^= 1;
                              return true;
                            }));
  std::vector<fetch::NamedSource> sources;
  for (const fetch::Neighbour& neighbour :
       {dying.neighbour(), lying.neighbour(), honest.neighbour()}) {
    auto source = fetch::resolve_neighbour(neighbour, "m", me.downloader().source, {});
    ASSERT_TRUE(source.ok()) << source.error().message;
    sources.emplace_back(neighbour.url, source.take());
  }
  Notes notes;
  const fetch::OfferedModel model = fetch::merge_offers(std::nullopt, sources, notes.sink());
  ASSERT_EQ(model.offers[0].size(), 3U);
  fetch::TransferOptions options = me.downloader().transfer;
  options.range_bytes = kChunk;
  options.max_connections = 1;
  std::filesystem::create_directories(me.folder("m"));
  const auto fetched =
      fetch::transfer_offered(model.offers[0], me.folder("m") / "a", options, {}, notes.sink(), {});
  ASSERT_TRUE(fetched.ok()) << fetched.error().message;
  EXPECT_TRUE(read_file(me.folder("m") / "a") == content);
  EXPECT_EQ(fetched->sha256, base::sha256_hex(content));
  EXPECT_THAT(notes.text(), HasSubstr("going on with " + lying.url()));
  EXPECT_THAT(notes.text(), HasSubstr("going on with " + honest.url()));
  EXPECT_GE(lying.num_file_requests(), 1);
}

// The files of a small real model: what is downloaded is described by reading it.
Files golden_model() {
  Files files;
  const auto folder = test::source_path("tests/golden/gpt2_tiny/sharded_safetensors");
  for (const auto& one : std::filesystem::directory_iterator(folder))
    files.emplace_back(one.path().filename().string(), read_file(one.path()));
  std::sort(files.begin(), files.end());
  return files;
}

void expect_same(const Files& files, const contract::ModelEntry& entry) {
  for (const auto& [path, content] : files)
    EXPECT_TRUE(read_file(std::filesystem::path(entry.path) / path) == content) << path;
}

TEST(DownloadFromNeighbours, EndToEndAndOnwards) {
  constexpr const char* kToken = "a-token-of-some-length";
  const Files files = golden_model();
  ASSERT_GE(files.size(), 4U);
  const test::TempDir elsewhere;
  Host first;
  Host second;
  Host third;
  first.register_in_place("tiny", elsewhere.path(), files);
  first.serve(kToken);
  DownloadRequest request;
  request.id = "tiny";
  request.only_neighbours = true;
  request.neighbours = {first.neighbour(kToken)};
  const auto unverified = second.downloader().download(request, {}, {});
  ASSERT_FALSE(unverified.ok());
  EXPECT_THAT(unverified.error().message, HasSubstr("models verify tiny"));
  ASSERT_TRUE(
      verify_model(first.downloader(), {.id = "tiny", .repair = false, .neighbours = {}}, {}, {})
          .ok());

  request.neighbours = {first.neighbour("another-token-of-length")};
  const auto refused = second.downloader().download(request, {}, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("LLORCH_TOKEN"));
  EXPECT_EQ(refused.error().message.find("another-token"), std::string::npos);

  request.neighbours = {first.neighbour(kToken)};
  const auto taken = second.downloader().download(request, {}, {});
  ASSERT_TRUE(taken.ok()) << taken.error().message;
  EXPECT_TRUE(taken->downloaded);
  EXPECT_EQ(taken->architecture, "gpt2");
  expect_same(files, *taken);

  // What came from a neighbour is verified, so it can go on to the next host at once.
  second.serve();
  request.neighbours = {second.neighbour()};
  const auto onwards = third.downloader().download(request, {}, {});
  ASSERT_TRUE(onwards.ok()) << onwards.error().message;
  expect_same(files, *onwards);
  const auto report =
      verify_model(third.downloader(), {.id = "tiny", .repair = false, .neighbours = {}}, {}, {});
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_TRUE(report->is_whole());
  EXPECT_FALSE(report->hashed_first_time);
}

TEST(DownloadFromNeighbours, TheRestComesFromTheHub) {
  test::HubSimulator hub;
  const Files files = golden_model();
  test::SimRepo repo;
  repo.name = "org/tiny";
  repo.commit = std::string(40, 'c');
  for (const auto& [path, content] : files)
    repo.files.push_back({path, content, path.ends_with(".safetensors")});
  hub.put_repo(repo);
  Host neighbour;
  Host me;
  neighbour.add_model("tiny", files);
  neighbour.serve();
  std::atomic<int> given = 0;
  const FakeNeighbour dying(
      fetch_text(neighbour.url() + "/v2/models/tiny/manifest"),
      [&](const http::Request& request, http::Responder& responder) -> http::Task<Status> {
        const std::size_t index = std::stoul(request.path_params.at("n"));
        if (index > 1) co_return Error{ErrorCode::Unavailable, "going down"};
        ++given;
        const std::string& content = files[index].second;
        http::Response response(200, "application/octet-stream", content);
        co_return co_await responder.send(std::move(response));
      });
  Downloader downloader = me.downloader();
  downloader.source.hf_endpoint = hub.url();
  DownloadRequest request;
  request.id = "tiny";
  request.ref = "hf:org/tiny";
  request.neighbours = {dying.neighbour()};
  std::string notes;
  const auto taken = downloader.download(request,
                                         [&](const DownloadEvent& event) {
                                           if (event.kind == DownloadEvent::Kind::Note)
                                             notes += event.text + "\n";
                                         },
                                         {});
  ASSERT_TRUE(taken.ok()) << taken.error().message;
  expect_same(files, *taken);
  EXPECT_EQ(taken->revision, repo.commit);
  EXPECT_EQ(taken->repo, "hf:org/tiny");
  EXPECT_GE(given, 1) << "the neighbour was asked first";
  EXPECT_THAT(notes, HasSubstr("going on with hf:org/tiny"));
}

}  // namespace
}  // namespace llorch::catalog
