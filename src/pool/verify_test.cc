#include "pool/verify_fixture.h"

namespace llorch::pool {
namespace {

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
  fetch::remove_chunks(host.home().chunks(), "m");
  EXPECT_FALSE(check(host, "m").hashed_first_time) << "there was a hash to compare with";
  ASSERT_TRUE(fetch::load_chunks(host.home().chunks(), "m").ok()) << "made again";

  fetch::remove_chunks(host.home().chunks(), "m");
  rot_byte(host.folder("m") / "a", 3);
  const VerifyReport found = check(host, "m");
  ASSERT_EQ(found.damages.size(), 1U);
  EXPECT_EQ(found.damages[0].bytes, 9000) << "which bytes is not known";
  EXPECT_FALSE(fetch::load_chunks(host.home().chunks(), "m").ok()) << "rot is never blessed";
  const VerifyReport mended = verify(host, "m", {neighbour.neighbour()});
  EXPECT_TRUE(mended.is_whole()) << json::serialize(to_json(mended));
  EXPECT_TRUE(test::read_file(host.folder("m") / "a") == files[0].second);

  test::write_file(host.home().chunks() / "m.json", "{ damaged");
  EXPECT_TRUE(check(host, "m").is_whole());
  EXPECT_TRUE(fetch::load_chunks(host.home().chunks(), "m").ok());
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
  const fetch::Neighbour gone = dead.neighbour();
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
  fetch::SourceOptions options = Host().downloader().source;
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

}  // namespace
}  // namespace llorch::pool
