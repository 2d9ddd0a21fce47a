#include "catalog/download_fixture.h"

namespace llorch::catalog {
namespace {

TEST_F(DownloadTest, RefusalsSayWhatToDo) {
  test::SimRepo repo = gguf_repo();
  repo.gated = true;
  repo.token = "hf_secret";
  hub_.put_repo(repo);
  Error error = must_fail(download("tiny", "hf:org/Tiny-GGUF"));
  EXPECT_EQ(error.code, ErrorCode::Unauthorized);
  EXPECT_THAT(error.message, HasSubstr("org/Tiny-GGUF is gated: accept its licence"));
  EXPECT_THAT(error.message, HasSubstr("no token was sent: set HF_TOKEN"));
  downloader_.source.hf_token = "hf_other";
  error = must_fail(download("tiny", "hf:org/Tiny-GGUF"));
  EXPECT_EQ(error.code, ErrorCode::Forbidden);
  EXPECT_THAT(error.message, HasSubstr("the token that was sent (HF_TOKEN) may not read it"));
  EXPECT_THAT(error.message, Not(HasSubstr("hf_other")));
  downloader_.source.hf_token = "hf_secret";
  must(download("tiny", "hf:org/Tiny-GGUF"));

  repo.name = "org/private";
  repo.is_private = true;
  hub_.put_repo(repo);
  must(download("private", "hf:org/private"));
  downloader_.source.hf_token.clear();
  error = must_fail(download("other", "hf:org/private"));
  EXPECT_EQ(error.code, ErrorCode::Unauthorized);
  EXPECT_THAT(error.message, HasSubstr("does not exist, or it is private"));
  EXPECT_THAT(error.message, HasSubstr("HF_TOKEN"));
  EXPECT_EQ(must_fail(download("x", "hf:org/none")).code, ErrorCode::Unauthorized);
  error = must_fail(download("x", "hf:org/Tiny-GGUF@v9"));
  EXPECT_EQ(error.code, ErrorCode::NotFound);
  EXPECT_THAT(error.message, HasSubstr("no revision \"v9\""));
}

TEST_F(DownloadTest, ARefusalBehindTheHubIsNotBlamedOnTheToken) {
  hub_.put_repo(gguf_repo());
  hub_.add_fault({.path = "/lfs/", .times = 1000, .status = 403});
  Error error = must_fail(download("tiny", "hf:org/Tiny-GGUF"));
  EXPECT_EQ(error.code, ErrorCode::Forbidden);
  EXPECT_THAT(error.message, Not(HasSubstr("HF_TOKEN")));
  EXPECT_THAT(error.message, HasSubstr(hub_.cdn_url()));
  EXPECT_EQ(hub_.requests("/lfs/").size(), 2U);
  hub_.clear_faults();
  // A file by its address, redirected at the first question.
  hub_.put_file("/far.gguf", {.redirect_to = hub_.cdn_url() + "/away/far.gguf"});
  hub_.add_fault({.path = "/away/", .times = 1000, .status = 403});
  error = must_fail(download("far", hub_.url() + "/far.gguf"));
  EXPECT_EQ(error.code, ErrorCode::Forbidden);
  EXPECT_THAT(error.message, HasSubstr("had let us in and sent us there"));
}

TEST_F(DownloadTest, SignedAddressesThatExpireMidwayAreAskedForAgain) {
  hub_.put_repo(gguf_repo());
  std::size_t expired = 0;
  on_event_ = [&](const DownloadEvent& event) {
    // The second time only after the first was noticed: two at once look like one.
    const bool was_noticed = hub_.requests("/resolve/").size() > expired;
    if (event.bytes_done > 40'000 && was_noticed && expired < 2) {
      ++expired;
      hub_.expire_links();
    }
  };
  // 200 KB in pieces of 30: each piece is a request of its own, which the old address fails.
  hub_.add_fault(
      {.path = "/lfs/", .times = 1000, .cut_after = 30'000, .bytes_per_second = 150'000});
  must(download("tiny", "hf:org/Tiny-GGUF"));
  EXPECT_EQ(expired, 2U);
  EXPECT_GE(hub_.requests("/resolve/").size(), 3U);
}

TEST_F(DownloadTest, TheTokenGoesToTheHubOnly) {
  test::SimRepo repo = gguf_repo();
  repo.gated = true;
  repo.token = "hf_secret";
  hub_.put_repo(repo);
  downloader_.source.hf_token = "hf_secret";
  must(download("tiny", "hf:org/Tiny-GGUF"));
  EXPECT_FALSE(hub_.requests("/lfs/").empty());
  for (const test::SimRequest& request : hub_.requests())
    EXPECT_EQ(request.headers.contains("authorization"), request.origin == hub_.url());
}

TEST_F(DownloadTest, APassingRefusalOfTheHubIsTriedAgain) {
  hub_.put_repo(gguf_repo());
  hub_.add_fault({.path = "/api/", .times = 2, .status = 503});
  hub_.add_fault({.path = "/api/", .skip = 2, .times = 1, .cut_after = 10});
  must(download("tiny", "hf:org/Tiny-GGUF"));
  hub_.add_fault({.path = "/api/", .times = 100, .status = 500});
  const Error error = must_fail(download("tiny"));
  EXPECT_EQ(error.code, ErrorCode::Unavailable);
  EXPECT_THAT(error.message, HasSubstr("500"));
}

TEST_F(DownloadTest, AHubThatDoesNotAnswerIsWaitedForAloud) {
  hub_.put_repo(gguf_repo());
  downloader_.source.wait_shown = milliseconds(50);
  for (const std::string path : {"/api/", "/resolve/"}) {
    SCOPED_TRACE(path);
    hub_.clear_faults();
    hub_.add_fault({.path = path, .times = 100, .stall_head = true});
    downloader_.transfer.stall_timeout = std::chrono::hours(1);
    downloader_.transfer.wait_shown = milliseconds(50);
    std::stop_source source;
    DownloadEvent seen;
    on_event_ = [&](const DownloadEvent& event) {
      if (!event.waiting_seconds) return;
      seen = event;
      source.request_stop();
    };
    EXPECT_EQ(must_fail(download("tiny", "hf:org/Tiny-GGUF", source.get_token())).code,
              ErrorCode::Cancelled);
    EXPECT_EQ(seen.kind, DownloadEvent::Kind::Progress);
    EXPECT_EQ("http://" + seen.waiting_for, hub_.url());
    EXPECT_EQ(json::view(to_json(seen).at("waiting_for").as_string()), seen.waiting_for);
    EXPECT_EQ(contract::read_download_event(to_json(seen)).waiting_seconds, seen.waiting_seconds);
    on_event_ = {};
  }
  hub_.clear_faults();
  must(download("tiny", "hf:org/Tiny-GGUF"));
  EXPECT_FALSE(events_.back().waiting_seconds);
}

TEST_F(DownloadTest, NonsenseFromTheHubIsCorrupt) {
  test::SimRepo repo = gguf_repo("main");
  hub_.put_repo(repo);
  EXPECT_EQ(must_fail(download("tiny", "hf:org/Tiny-GGUF")).code, ErrorCode::Corrupt);
}

TEST_F(DownloadTest, AnotherSourceGetsAnotherId) {
  hub_.put_repo(gguf_repo());
  test::SimRepo other = gguf_repo(kSecond, 5);
  other.name = "org2/Tiny-GGUF";
  hub_.put_repo(other);
  const ModelEntry first = must(download("", "hf:org/Tiny-GGUF"));
  EXPECT_EQ(first.id, "tiny-gguf");
  const std::string content = content_of(first.path);
  const ModelEntry second = must(download("", "hf:org2/Tiny-GGUF"));
  EXPECT_EQ(second.id, "org2-tiny-gguf");
  EXPECT_EQ(second.revision, kSecond);
  must(catalog().find("tiny-gguf"));
  EXPECT_EQ(*catalog().find("tiny-gguf"), first);
  EXPECT_EQ(content_of(first.path), content);
  EXPECT_EQ(must(download("", "hf:org2/Tiny-GGUF")).id, "org2-tiny-gguf") << "found again";
  EXPECT_EQ(must(download("", "hf:org/Tiny-GGUF@" + kFirst)).id, "tiny-gguf") << "its revisions";
  // An id that was named is never given to something else without a word.
  const Error error = must_fail(download("tiny-gguf", "hf:org2/Tiny-GGUF"));
  EXPECT_EQ(error.code, ErrorCode::Conflict);
  EXPECT_THAT(error.message, HasSubstr("hf:org/Tiny-GGUF"));
  EXPECT_THAT(error.message, HasSubstr("--id NAME"));
  EXPECT_EQ(content_of(first.path), content);
}

TEST_F(DownloadTest, ADownloadThatWasCutOffKeepsItsId) {
  hub_.put_repo(gguf_repo());
  test::SimRepo other = gguf_repo(kSecond, 5);
  other.name = "org2/Tiny-GGUF";
  hub_.put_repo(other);
  hub_.add_fault({.path = "/lfs/", .skip = 1, .times = 1000, .status = 500});
  must_fail(download("", "hf:org/Tiny-GGUF"));
  hub_.clear_faults();
  EXPECT_EQ(must(download("", "hf:org2/Tiny-GGUF")).id, "org2-tiny-gguf");
  EXPECT_EQ(must(download("", "hf:org/Tiny-GGUF")).id, "tiny-gguf");
}

TEST_F(DownloadTest, NoModelIsCalledLikeACommit) {
  hub_.put_repo(safetensors_repo(kFirst, "{}"));
  EXPECT_EQ(must(download("", "hf:org/gpt2-tiny")).name, "gpt2-tiny");
  EXPECT_EQ(must(download("pinned", "hf:org/gpt2-tiny@" + kFirst)).name, "gpt2-tiny");
  const std::string address =
      fmt::format("{}/org/gpt2-tiny/resolve/{}/model.safetensors", hub_.url(), kFirst);
  const ModelEntry by_address = must(download("", address));
  EXPECT_EQ(by_address.id, "org-gpt2-tiny") << "another source than hf:";
  EXPECT_EQ(by_address.name, "gpt2-tiny");
  // As it lies in the cache of Hugging Face's own tools.
  const fs::path snapshot = folder_ / "hub" / "models--org--gpt2-tiny" / "snapshots" / kFirst;
  fs::create_directories(snapshot.parent_path());
  fs::copy(test::source_path("tests/golden/gpt2_tiny"), snapshot, fs::copy_options::recursive);
  downloader_.home.data = folder_ / "other";
  const Result<ModelEntry> entry = download("", "file:" + snapshot.string());
  ASSERT_TRUE(entry.ok()) << entry.error().message;
  EXPECT_EQ(entry->id, "gpt2-tiny");
  EXPECT_EQ(entry->name, "gpt2-tiny");
}

}  // namespace
}  // namespace llorch::catalog
