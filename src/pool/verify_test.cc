// Rot found to the chunk and mended from neighbours that serve their files by the real routes.
#include "catalog/verify.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "base/mutex.h"
#include "catalog/outdated.h"
#include "http/file_body.h"
#include "hub_simulator/hub_simulator.h"
#include "pool/test_host.h"
#include "support/child_process.h"
#include "support/run_program.h"

namespace llorch::pool {
namespace {

using catalog::Damage;
using catalog::kChunkBytes;
using catalog::VerifyReport;
using test::FakeNeighbour;
using test::Files;
using test::Host;
using test::random_bytes;
using test::rot_byte;
using ::testing::HasSubstr;

constexpr std::int64_t kSmall = 4096;  // chunks for tests that need many

VerifyReport verify(const Host& host, const std::string& id,
                    std::vector<catalog::Neighbour> neighbours = {}, bool repair = true) {
  catalog::VerifyRequest request;
  request.id = id;
  request.repair = repair;
  request.neighbours = std::move(neighbours);
  Result<VerifyReport> report = catalog::verify_model(host.downloader(), request, {}, {});
  EXPECT_TRUE(report.ok()) << report.error().message;
  return report.ok() ? report.take() : VerifyReport{};
}
VerifyReport check(const Host& host, const std::string& id) {
  return verify(host, id, {}, false);
}

TEST(Verify, AWholeModelIsWhole) {
  Host host;
  const Files files = {{"a", random_bytes(10'000, 1)}, {"empty", ""}, {"sub/b", "x"}};
  host.add_model("m", files, kSmall);
  std::vector<contract::DownloadEvent> events;
  const auto report = catalog::verify_model(
      host.downloader(), {.id = "m", .repair = false, .neighbours = {}},
      [&](const contract::DownloadEvent& event) { events.push_back(event); }, {});
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_TRUE(report->is_whole());
  EXPECT_TRUE(report->damages.empty());
  EXPECT_FALSE(report->hashed_first_time);
  EXPECT_EQ(report->files_checked, 3);
  EXPECT_EQ(report->bytes_checked, 10'001);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().bytes_done, 10'001);
  EXPECT_EQ(events.back().bytes_total, 10'001);
  EXPECT_EQ(events.back().model, "m");
}

TEST(Verify, OneByteAnywhereIsFoundInItsChunkAndMended) {
  const std::int64_t size = 2 * kChunkBytes + 1000;
  const Files files = {{"model.gguf", random_bytes(static_cast<std::size_t>(size), 2)}};
  Host host;
  Host neighbour;
  host.add_model("m", files);
  neighbour.add_model("m", files);
  neighbour.serve();
  const std::filesystem::path path = host.folder("m") / "model.gguf";
  for (const std::int64_t at : {std::int64_t{0}, kChunkBytes - 1, kChunkBytes, size - 1}) {
    rot_byte(path, at);
    const VerifyReport found = check(host, "m");
    ASSERT_EQ(found.damages.size(), 1U) << at;
    const std::int64_t chunk = at / kChunkBytes * kChunkBytes;
    EXPECT_EQ(found.damages[0].kind, Damage::Kind::Rotted);
    EXPECT_EQ(found.damages[0].file, "model.gguf");
    EXPECT_EQ(found.damages[0].offset, chunk);
    EXPECT_EQ(found.damages[0].bytes, std::min(kChunkBytes, size - chunk));
    EXPECT_FALSE(found.is_whole());
    EXPECT_FALSE(test::read_file(path) == files[0].second) << "nothing is mended without --repair";

    const VerifyReport mended = verify(host, "m", {neighbour.neighbour()});
    ASSERT_EQ(mended.damages.size(), 1U) << at;
    EXPECT_TRUE(mended.damages[0].repaired) << mended.damages[0].reason;
    EXPECT_EQ(mended.damages[0].from, neighbour.url());
    EXPECT_TRUE(mended.is_whole());
    EXPECT_TRUE(test::read_file(path) == files[0].second) << at;
    EXPECT_TRUE(check(host, "m").damages.empty()) << at;
  }
  // What was mended is verified: others may have it from here.
  host.serve();
  EXPECT_THAT(test::fetch_text(host.url() + "/v2/models/m/manifest"), HasSubstr("chunks"));
}

TEST(Verify, FilesOfAnotherSizeOrGoneAreFetchedWhole) {
  const Files files = {{"a", random_bytes(300'000, 3)}, {"sub/b", random_bytes(50'000, 4)}};
  Host host;
  Host neighbour;
  host.add_model("m", files, kSmall);
  neighbour.add_model("m", files);
  neighbour.serve();
  const std::filesystem::path a = host.folder("m") / "a";
  const std::filesystem::path b = host.folder("m") / "sub/b";
  struct Case {
    std::function<void()> damage;
    Damage::Kind kind;
  };
  const std::vector<Case> cases = {
      {[&] { std::filesystem::resize_file(b, 49'999); }, Damage::Kind::WrongSize},
      {[&] { std::filesystem::resize_file(b, 50'001); }, Damage::Kind::WrongSize},
      {[&] { std::filesystem::resize_file(b, 0); }, Damage::Kind::WrongSize},
      {[&] { std::filesystem::remove_all(host.folder("m") / "sub"); }, Damage::Kind::Missing},
      {[&] {
         std::filesystem::remove(b);
         std::filesystem::create_directory(b);
       },
       Damage::Kind::Missing},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    cases[i].damage();
    const VerifyReport found = check(host, "m");
    ASSERT_EQ(found.damages.size(), 1U) << i;
    EXPECT_EQ(found.damages[0].kind, cases[i].kind) << i;
    EXPECT_EQ(found.damages[0].file, "sub/b") << i;
    EXPECT_FALSE(found.damages[0].reason.empty()) << i;
    if (std::filesystem::is_directory(b)) std::filesystem::remove(b);
    const VerifyReport mended = verify(host, "m", {neighbour.neighbour()});
    EXPECT_TRUE(mended.is_whole()) << i << ": " << json::serialize(to_json(mended));
    EXPECT_TRUE(test::read_file(b) == files[1].second) << i;
    EXPECT_TRUE(test::read_file(a) == files[0].second) << i;
    EXPECT_TRUE(check(host, "m").damages.empty()) << i;
  }
  std::filesystem::remove_all(host.folder("m"));
  EXPECT_EQ(check(host, "m").damages.size(), 2U);
  EXPECT_TRUE(verify(host, "m", {neighbour.neighbour()}).is_whole());
  EXPECT_TRUE(test::read_file(a) == files[0].second);
}

// Answers ranges of `content`, each passed through `change` first.
FakeNeighbour::Answer ranges_of(std::string content, std::function<void(std::string&)> change) {
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

TEST(Verify, ANeighbourThatLiesIsRefusedAndTheNextIsAsked) {
  const Files files = {{"a", random_bytes(20'000, 5)}};
  Host host;
  Host honest;
  host.add_model("m", files, kSmall);
  honest.add_model("m", files);
  honest.serve();
  const std::string manifest = test::fetch_text(honest.url() + "/v2/models/m/manifest");
  const FakeNeighbour liar(manifest, ranges_of(files[0].second, [](std::string& bytes) {
                             bytes[bytes.size() / 2] =
                                 static_cast<char>(bytes[bytes.size() / 2] ^ 1);
                           }));
  rot_byte(host.folder("m") / "a", 5000);
  const VerifyReport alone = verify(host, "m", {liar.neighbour()});
  ASSERT_EQ(alone.damages.size(), 1U);
  EXPECT_FALSE(alone.damages[0].repaired);
  EXPECT_THAT(alone.damages[0].reason, HasSubstr("hash"));
  EXPECT_GE(liar.num_file_requests(), 1);

  const VerifyReport both = verify(host, "m", {liar.neighbour(), honest.neighbour()});
  ASSERT_EQ(both.damages.size(), 1U);
  EXPECT_TRUE(both.damages[0].repaired);
  EXPECT_EQ(both.damages[0].from, honest.url());
  EXPECT_TRUE(test::read_file(host.folder("m") / "a") == files[0].second);

  // The same with a file that is gone altogether.
  std::filesystem::remove(host.folder("m") / "a");
  const VerifyReport whole = verify(host, "m", {liar.neighbour(), honest.neighbour()});
  EXPECT_TRUE(whole.is_whole()) << json::serialize(to_json(whole));
  EXPECT_TRUE(test::read_file(host.folder("m") / "a") == files[0].second);
}

TEST(Verify, NeighboursThatHaveSomethingElseOrNothingArePassedOver) {
  const Files files = {{"a", random_bytes(20'000, 6)}};
  Host host;
  Host other;
  Host empty;
  Host locked;
  Host honest;
  host.add_model("m", files, kSmall);
  other.add_model("m", {{"a", random_bytes(20'000, 7)}});
  locked.add_model("m", files);
  honest.add_model("m", files);
  other.serve();
  empty.serve();
  locked.serve("a-token-of-some-length");
  honest.serve();
  rot_byte(host.folder("m") / "a", 0);
  const VerifyReport report = verify(
      host, "m", {other.neighbour(), empty.neighbour(), locked.neighbour(), honest.neighbour()});
  EXPECT_TRUE(report.is_whole()) << json::serialize(to_json(report));
  EXPECT_EQ(report.damages[0].from, honest.url());

  rot_byte(host.folder("m") / "a", 0);
  EXPECT_FALSE(verify(host, "m", {locked.neighbour("another-token-of-length")}).is_whole());
  EXPECT_TRUE(verify(host, "m", {locked.neighbour("a-token-of-some-length")}).is_whole());
}

TEST(Verify, FilesElsewhereAreHashedFirstAndNeverWritten) {
  Host host;
  Host neighbour;
  const llorch::test::TempDir elsewhere;
  const Files files = {{"a", random_bytes(9000, 8)}};
  host.register_in_place("m", elsewhere.path(), files);
  neighbour.add_model("m", files);
  neighbour.serve();
  const VerifyReport first = check(host, "m");
  EXPECT_TRUE(first.hashed_first_time);
  EXPECT_TRUE(first.is_whole());
  EXPECT_EQ(host.catalog().find("m").take().files[0].sha256.size(), 64U) << "the hash is kept";
  EXPECT_FALSE(check(host, "m").hashed_first_time);
  host.serve();
  EXPECT_TRUE(test::fetch_text(host.url() + "/v2/models/m/files/0") == files[0].second);

  rot_byte(elsewhere / "a", 17);
  const std::string rotted = test::read_file(elsewhere / "a");
  const VerifyReport report = verify(host, "m", {neighbour.neighbour()});
  ASSERT_EQ(report.damages.size(), 1U);
  EXPECT_FALSE(report.damages[0].repaired);
  EXPECT_THAT(report.damages[0].reason, HasSubstr("never written"));
  EXPECT_TRUE(test::read_file(elsewhere / "a") == rotted);
  std::filesystem::remove(elsewhere / "a");
  EXPECT_FALSE(verify(host, "m", {neighbour.neighbour()}).is_whole());
  EXPECT_FALSE(std::filesystem::exists(elsewhere / "a"));
}

// A folder of ours that leads elsewhere is elsewhere.
TEST(Verify, ALinkOutOfTheFolderIsNotFollowedForWriting) {
  Host host;
  Host neighbour;
  const llorch::test::TempDir elsewhere;
  const Files files = {{"a", random_bytes(9000, 9)}};
  host.add_model("m", files);
  neighbour.add_model("m", files);
  neighbour.serve();
  test::write_file(elsewhere / "target", files[0].second);
  std::filesystem::remove(host.folder("m") / "a");
  std::filesystem::create_symlink(elsewhere / "target", host.folder("m") / "a");
  rot_byte(elsewhere / "target", 1);
  const std::string rotted = test::read_file(elsewhere / "target");
  EXPECT_FALSE(verify(host, "m", {neighbour.neighbour()}).is_whole());
  EXPECT_TRUE(test::read_file(elsewhere / "target") == rotted);
}

TEST(Verify, WithoutKeptHashesThePublishedOneDecides) {
  Host host;
  Host neighbour;
  const Files files = {{"a", random_bytes(9000, 10)}};
  host.add_model("m", files);
  neighbour.add_model("m", files);
  neighbour.serve();
  catalog::remove_chunks(host.home().chunks(), "m");
  EXPECT_FALSE(check(host, "m").hashed_first_time) << "there was a hash to compare with";
  ASSERT_TRUE(catalog::load_chunks(host.home().chunks(), "m").ok()) << "made again";

  catalog::remove_chunks(host.home().chunks(), "m");
  rot_byte(host.folder("m") / "a", 3);
  const VerifyReport found = check(host, "m");
  ASSERT_EQ(found.damages.size(), 1U);
  EXPECT_EQ(found.damages[0].bytes, 9000) << "which bytes is not known";
  EXPECT_FALSE(catalog::load_chunks(host.home().chunks(), "m").ok()) << "rot is never blessed";
  const VerifyReport mended = verify(host, "m", {neighbour.neighbour()});
  EXPECT_TRUE(mended.is_whole()) << json::serialize(to_json(mended));
  EXPECT_TRUE(test::read_file(host.folder("m") / "a") == files[0].second);

  test::write_file(host.home().chunks() / "m.json", "{ damaged");
  EXPECT_TRUE(check(host, "m").is_whole());
  EXPECT_TRUE(catalog::load_chunks(host.home().chunks(), "m").ok());
}

TEST(Verify, ATouchedFileIsServedAgainOnceVerified) {
  Host host;
  host.add_model("m", {{"a", "bytes"}});
  host.serve();
  const std::filesystem::path file = host.folder("m") / "a";
  std::filesystem::last_write_time(file,
                                   std::filesystem::last_write_time(file) + std::chrono::hours(1));
  EXPECT_THAT(test::fetch_text(host.url() + "/v2/models/m/files/0"), HasSubstr("models verify"));
  EXPECT_TRUE(check(host, "m").is_whole());
  EXPECT_EQ(test::fetch_text(host.url() + "/v2/models/m/files/0"), "bytes");
}

TEST(Verify, SaysWhatCannotBeVerified) {
  Host host;
  host.add_model("m", {{"a", "bytes"}});
  const auto nobody = catalog::verify_model(
      host.downloader(), {.id = "nobody", .repair = false, .neighbours = {}}, {}, {});
  EXPECT_EQ(nobody.error().code, ErrorCode::NotFound);
  ASSERT_TRUE(host.catalog()
                  .update([](catalog::CatalogContent& content) {
                    content.find("m")->downloaded = false;
                    return ok_status();
                  })
                  .ok());
  const auto absent = catalog::verify_model(host.downloader(),
                                            {.id = "m", .repair = false, .neighbours = {}}, {}, {});
  EXPECT_EQ(absent.error().code, ErrorCode::NotFound);
  EXPECT_THAT(absent.error().message, HasSubstr("models download m"));
}

TEST(Verify, StopsWhenAsked) {
  Host host;
  host.add_model("m", {{"a", random_bytes(100'000, 11)}}, kSmall);
  std::stop_source stop;
  stop.request_stop();
  const auto report = catalog::verify_model(
      host.downloader(), {.id = "m", .repair = false, .neighbours = {}}, {}, stop.get_token());
  EXPECT_EQ(report.error().code, ErrorCode::Cancelled);
}

// The hub as the last resort, at the revision that was fetched.
TEST(Verify, IsMendedFromTheHubWhenNoNeighbourCan) {
  llorch::test::HubSimulator hub;
  const std::string weights = random_bytes(static_cast<std::size_t>(kChunkBytes) + 5000, 14);
  const std::string config = "{}";
  const std::string commit(40, 'a');
  hub.put_repo({.name = "org/repo",
                .commit = commit,
                .files = {{.path = "model.safetensors", .content = weights, .lfs = true},
                          {.path = "config.json", .content = config}}});
  Host host;
  Host dead;
  host.add_model("m", {{"model.safetensors", weights}, {"config.json", config}});
  ASSERT_TRUE(host.catalog()
                  .update([&](catalog::CatalogContent& content) {
                    content.find("m")->repo = "hf:org/repo";
                    content.find("m")->revision = commit;
                    return ok_status();
                  })
                  .ok());
  dead.serve();
  const catalog::Neighbour gone = dead.neighbour();
  dead.stop_serving();
  catalog::Downloader downloader = host.downloader();
  downloader.source.hf_endpoint = hub.url();
  const catalog::VerifyRequest request{.id = "m", .repair = true, .neighbours = {gone}};
  std::vector<std::string> notes;
  const contract::OnDownloadEvent keep_notes = [&](const contract::DownloadEvent& event) {
    if (event.kind == contract::DownloadEvent::Kind::Note) notes.push_back(event.text);
  };

  rot_byte(host.folder("m") / "model.safetensors", kChunkBytes + 1);
  const auto chunk = catalog::verify_model(downloader, request, keep_notes, {});
  ASSERT_TRUE(chunk.ok()) << chunk.error().message;
  EXPECT_TRUE(chunk->is_whole()) << json::serialize(to_json(*chunk));
  EXPECT_EQ(chunk->damages[0].from, "hf:org/repo");
  EXPECT_TRUE(test::read_file(host.folder("m") / "model.safetensors") == weights);
  ASSERT_EQ(notes.size(), 2U);
  EXPECT_THAT(notes[0], HasSubstr(gone.url)) << "that the neighbour was passed over is said";
  EXPECT_EQ(hub.bytes_sent("/lfs/"), 5000) << "only the last chunk was asked for";

  std::filesystem::remove(host.folder("m") / "config.json");
  rot_byte(host.folder("m") / "model.safetensors", 0);
  const auto both = catalog::verify_model(downloader, request, {}, {});
  ASSERT_TRUE(both.ok()) << both.error().message;
  EXPECT_TRUE(both->is_whole()) << json::serialize(to_json(*both));
  EXPECT_EQ(test::read_file(host.folder("m") / "config.json"), config);

  // A hub that sends a wrong byte mends nothing.
  hub.add_fault({.path = "/lfs/", .times = 100, .corrupt_at = 7});
  rot_byte(host.folder("m") / "model.safetensors", 0);
  const auto wrong = catalog::verify_model(downloader, request, {}, {});
  ASSERT_TRUE(wrong.ok()) << wrong.error().message;
  EXPECT_FALSE(wrong->is_whole());
  EXPECT_THAT(wrong->damages[0].reason, HasSubstr("hash"));
}

TEST(Outdated, ComparesWithTheSourcesOneByOne) {
  llorch::test::HubSimulator hub;
  const std::string old_commit(40, 'a');
  const std::string new_commit(40, 'b');
  hub.put_repo({.name = "org/current", .commit = old_commit, .files = {{"model.gguf", "x"}}});
  hub.put_repo({.name = "org/moved", .commit = new_commit, .files = {{"model.gguf", "x"}}});
  const auto entry = [&](std::string id, std::string repo, std::string revision) {
    contract::ModelEntry model;
    model.id = std::move(id);
    model.path = "/x";
    model.downloaded = true;
    model.repo = std::move(repo);
    model.revision = std::move(revision);
    return model;
  };
  std::vector<contract::ModelEntry> models = {entry("current", "hf:org/current", old_commit),
                                              entry("gone", "hf:org/gone", old_commit),
                                              entry("moved", "hf:org/moved", old_commit),
                                              entry("in-place", "", ""),
                                              entry("local", "file:/x", ""),
                                              entry("not-here", "hf:org/moved", "")};
  models.back().downloaded = false;
  catalog::SourceOptions options = Host().downloader().source;
  options.hf_endpoint = hub.url();
  const std::vector<catalog::RevisionCheck> checks = catalog::check_revisions(models, options, {});
  using State = catalog::RevisionCheck::State;
  ASSERT_EQ(checks.size(), 5U);
  EXPECT_EQ(checks[0].state, State::Current) << checks[0].note;
  EXPECT_EQ(checks[1].state, State::Failed);
  EXPECT_THAT(checks[1].note, HasSubstr("org/gone"));
  EXPECT_EQ(checks[2].state, State::Outdated) << checks[2].note;
  EXPECT_EQ(checks[2].newest, new_commit);
  EXPECT_EQ(checks[3].state, State::Untracked);
  EXPECT_THAT(checks[3].note, HasSubstr("in place"));
  EXPECT_EQ(checks[4].state, State::Untracked);
}

// Random damage to random files is always found, exactly, and mended.
TEST(Verify, RandomDamageIsFoundAndMended) {
  const std::uint64_t seed = std::random_device{}();
  std::cerr << "seed " << seed << "\n";
  std::mt19937_64 random(seed);
  const auto below = [&](std::int64_t limit) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(limit));
  };
  const std::vector<std::int64_t> sizes = {0,          1,          kSmall - 1,      kSmall,
                                           kSmall + 1, 2 * kSmall, 3 * kSmall + 17, 10 * kSmall};
  for (int round = 0; round < 25; ++round) {
    SCOPED_TRACE(fmt::format("seed {} round {}", seed, round));
    Files files;
    const std::int64_t num_files = 1 + below(3);
    for (std::int64_t i = 0; i < num_files; ++i) {
      const std::int64_t size =
          sizes[static_cast<std::size_t>(below(static_cast<std::int64_t>(sizes.size())))];
      files.emplace_back(fmt::format("f{}", i),
                         random_bytes(static_cast<std::size_t>(size), random()));
    }
    Host host;
    Host neighbour;
    host.add_model("m", files, kSmall);
    neighbour.add_model("m", files);
    neighbour.serve();
    std::set<std::tuple<std::string, Damage::Kind, std::int64_t>> expected;
    for (const auto& [name, content] : files) {
      const auto size = static_cast<std::int64_t>(content.size());
      const std::filesystem::path path = host.folder("m") / name;
      const std::int64_t kind = below(6);
      if (kind == 0) {
        std::filesystem::remove(path);
        expected.emplace(name, Damage::Kind::Missing, 0);
      } else if (kind == 1 && size > 0) {
        std::filesystem::resize_file(path, static_cast<std::uintmax_t>(below(size)));
        expected.emplace(name, Damage::Kind::WrongSize, 0);
      } else if (kind == 2) {
        std::filesystem::resize_file(path, static_cast<std::uintmax_t>(size + 1 + below(10'000)));
        expected.emplace(name, Damage::Kind::WrongSize, 0);
      } else if (kind <= 4 && size > 0) {
        std::set<std::int64_t> places;
        for (std::int64_t i = 0; i < 1 + below(4); ++i) places.insert(below(size));
        for (const std::int64_t place : places) {
          rot_byte(path, place);
          expected.emplace(name, Damage::Kind::Rotted, place / kSmall * kSmall);
        }
      }
    }
    const auto found_by = [](const VerifyReport& report) {
      std::set<std::tuple<std::string, Damage::Kind, std::int64_t>> found;
      for (const Damage& damage : report.damages)
        found.emplace(damage.file, damage.kind, damage.offset);
      return found;
    };
    EXPECT_EQ(found_by(check(host, "m")), expected);
    const VerifyReport mended = verify(host, "m", {neighbour.neighbour()});
    EXPECT_EQ(found_by(mended), expected);
    EXPECT_TRUE(mended.is_whole()) << json::serialize(to_json(mended));
    for (const auto& [name, content] : files)
      EXPECT_TRUE(test::read_file(host.folder("m") / name) == content) << name;
    EXPECT_TRUE(check(host, "m").damages.empty());
    if (::testing::Test::HasFailure()) return;
  }
}

// The program as a user runs it.

std::vector<std::string> environment_of(const Host& host) {
  return {"LLORCH_HOME=" + host.root().string(), "NO_COLOR=1"};
}

TEST(VerifyCommand, FindsRepairsAndSaysSo) {
  const Files files = {{"a", random_bytes(30'000, 12)}};
  Host host;
  Host neighbour;
  host.add_model("m", files);
  host.add_model("good", {{"x", "y"}});
  neighbour.add_model("m", files);
  neighbour.serve("a-token-of-some-length");
  const auto run = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "LLORCH_TOKEN=a-token-of-some-length");
    arguments.insert(arguments.begin(), "LLORCH_HOME=" + host.root().string());
    arguments.insert(arguments.begin() + 2, LLORCH_POOL);
    return llorch::test::run_program("/usr/bin/env", arguments);
  };
  const auto whole = run({"models", "verify"});
  EXPECT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_THAT(whole.out, HasSubstr("good"));
  EXPECT_THAT(whole.out, HasSubstr("whole"));

  rot_byte(host.folder("m") / "a", 100);
  const auto found = run({"models", "verify"});
  EXPECT_EQ(found.exit_code, 1);
  EXPECT_THAT(found.out, HasSubstr("1 damaged"));
  EXPECT_THAT(found.err, HasSubstr("--repair"));
  const auto as_json = run({"models", "verify", "m", "--json"});
  EXPECT_EQ(as_json.exit_code, 1);
  const std::string last = as_json.out.substr(as_json.out.rfind('\n', as_json.out.size() - 2) + 1);
  const Result<json::Value> parsed = json::parse(last);
  ASSERT_TRUE(parsed.ok()) << as_json.out;
  EXPECT_FALSE(parsed->at("models").at(0).at("whole").as_bool());
  EXPECT_EQ(json::view(parsed->at("models").at(0).at("damages").at(0).at("kind").as_string()),
            "rotted");

  const auto repaired = run({"models", "verify", "m", "--repair", "--from", neighbour.url()});
  EXPECT_EQ(repaired.exit_code, 0) << repaired.err;
  EXPECT_THAT(repaired.out, HasSubstr("1 repaired"));
  EXPECT_TRUE(test::read_file(host.folder("m") / "a") == files[0].second);
  EXPECT_EQ(run({"models", "verify", "--from", "a b"}).exit_code, 2);
  EXPECT_EQ(run({"models", "verify", "nobody"}).exit_code, 1);
}

// Blocks the answer to every request for a file behind the first ones, until it is opened.
class Gate {
 public:
  void pass_or_wait(int number, int free) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    const base::MutexLock lock(mutex_);
    if (number > free) reached_ = true;
    changed_.notify_all();
    while (number > free && !open_ && changed_.wait_until(mutex_, deadline)) {
    }
  }
  bool wait_reached() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    const base::MutexLock lock(mutex_);
    while (!reached_ && changed_.wait_until(mutex_, deadline)) {
    }
    return reached_;
  }
  void open() {
    const base::MutexLock lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  base::Mutex mutex_;
  base::CondVar changed_;
  bool reached_ LLORCH_GUARDED_BY(mutex_) = false;
  bool open_ LLORCH_GUARDED_BY(mutex_) = false;
};

TEST(VerifyCommand, AKillDuringRepairLeavesAFileThatCanBeRepaired) {
  const std::int64_t size = 10 * kSmall;
  const Files files = {{"a", random_bytes(static_cast<std::size_t>(size), 13)}};
  Host host;
  Host neighbour;
  host.add_model("m", files, kSmall);
  neighbour.add_model("m", files);
  neighbour.serve();
  for (std::int64_t at = 0; at < size; at += kSmall) rot_byte(host.folder("m") / "a", at + 7);
  Gate gate;
  std::atomic<int> number = 0;
  const auto serve = ranges_of(files[0].second, [](std::string&) {});
  const std::string manifest = test::fetch_text(neighbour.url() + "/v2/models/m/manifest");
  const FakeNeighbour slow(
      manifest,
      [&](const http::Request& request, http::Responder& responder) -> http::Task<Status> {
        gate.pass_or_wait(++number, 4);  // a test's server may block
        co_return co_await serve(request, responder);
      });
  {
    llorch::test::ChildProcess child(LLORCH_POOL,
                                     {"models", "verify", "m", "--repair", "--from", slow.url()},
                                     environment_of(host));
    ASSERT_TRUE(gate.wait_reached());
    child.signal(SIGKILL);
    EXPECT_EQ(child.wait(), -1);
  }
  gate.open();
  const VerifyReport after = check(host, "m");
  EXPECT_EQ(after.damages.size(), 6U) << "four were mended and stay so";
  EXPECT_TRUE(verify(host, "m", {neighbour.neighbour()}).is_whole());
  EXPECT_TRUE(test::read_file(host.folder("m") / "a") == files[0].second);
}

}  // namespace
}  // namespace llorch::pool
