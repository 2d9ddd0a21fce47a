#include "catalog/download_fixture.h"

namespace llorch::catalog {
namespace {

TEST_F(DownloadTest, OneGgufOfAHubRepository) {
  hub_.put_repo(gguf_repo());
  const ModelEntry entry = must(download("tiny", "hf:org/Tiny-GGUF"));
  EXPECT_EQ(entry.path, model_folder("tiny") / kFirst / "tiny.Q4_K_M.gguf");
  EXPECT_EQ(entry.revision, kFirst);
  EXPECT_EQ(entry.license, "apache-2.0");
  EXPECT_EQ(entry.repo, "hf:org/Tiny-GGUF");
  EXPECT_EQ(entry.format, "gguf");
  EXPECT_EQ(entry.architecture, "llama");
  EXPECT_EQ(entry.name, "Tiny");
  EXPECT_THAT(resolved_paths(), ElementsAre("tiny.Q4_K_M.gguf"));
  EXPECT_EQ(events_.front().kind, DownloadEvent::Kind::Resolved);
  EXPECT_EQ(events_.back().kind, DownloadEvent::Kind::Done);
  EXPECT_EQ(events_.back().bytes_done, entry.size_bytes);
  EXPECT_EQ(events_.back().bytes_total, entry.size_bytes);
}

TEST_F(DownloadTest, AReferenceAloneNamesTheModel) {
  hub_.put_repo(gguf_repo());
  EXPECT_EQ(must(download("", "hf:org/Tiny-GGUF::file=Q8_0")).id, "tiny-gguf-q8_0");
  EXPECT_EQ(must(download("", "org/Tiny-GGUF@main")).id, "tiny-gguf");
}

TEST_F(DownloadTest, SafeTensorsWithTheirSideFilesAndNothingElse) {
  hub_.put_repo(safetensors_repo(kFirst, "{}"));
  const ModelEntry entry = must(download("gpt2-tiny", "hf:org/gpt2-tiny"));
  EXPECT_EQ(entry.path, model_folder("gpt2-tiny") / kFirst);
  EXPECT_EQ(entry.architecture, "gpt2");
  EXPECT_THAT(entry.backends, ElementsAre("cpu", "cuda"));
  EXPECT_THAT(resolved_paths(),
              ElementsAre("model.safetensors", "config.json", "generation_config.json"));
}

TEST_F(DownloadTest, WhatIsHereCostsTheQuestionsOnly) {
  hub_.put_repo(gguf_repo());
  const ModelEntry first = must(download("tiny", "hf:org/Tiny-GGUF"));
  hub_.forget_requests();
  EXPECT_EQ(must(download("tiny")), first);
  EXPECT_THAT(notes_, HasSubstr("here already"));
  EXPECT_EQ(hub_.requests("/api/").size(), 2U);
  EXPECT_EQ(hub_.requests().size(), 2U);
  // Another file of the same revision is another matter.
  EXPECT_THAT(must(download("tiny", "hf:org/Tiny-GGUF::file=Q8_0")).path,
              HasSubstr("tiny.Q8_0.gguf"));
}

TEST_F(DownloadTest, TheOldRevisionStaysUntilTheNewOneIsWhole) {
  hub_.put_repo(safetensors_repo(kFirst, "{}"));
  const ModelEntry old = must(download("m", "hf:org/gpt2-tiny"));
  test::SimRepo repo = safetensors_repo(kSecond, "{\"do_sample\":true}");
  hub_.put_repo(repo);
  hub_.add_fault({.path = "generation_config.json", .times = 100, .status = 404});
  hub_.forget_requests();
  EXPECT_EQ(must_fail(download("m")).code, ErrorCode::NotFound);
  // What did not change is not fetched.
  EXPECT_THAT(resolved_paths(), ElementsAre("generation_config.json"));
  EXPECT_THAT(notes_, HasSubstr("model.safetensors did not change"));
  EXPECT_EQ(*catalog().find("m"), old);
  for (const ModelFile& file : old.files)
    EXPECT_EQ(file.sha256, base::sha256_hex(content_of(fs::path(old.path) / file.path)));
  hub_.clear_faults();
  hub_.forget_requests();
  const ModelEntry fresh = must(download("m"));
  EXPECT_EQ(fresh.revision, kSecond);
  EXPECT_FALSE(fs::exists(old.path));
  EXPECT_THAT(resolved_paths(), ElementsAre("generation_config.json"));
}

TEST_F(DownloadTest, FilesThatAKillLeftWithoutAnEntryAreUsed) {
  hub_.put_repo(safetensors_repo(kFirst, "{}"));
  must(download("m", "hf:org/gpt2-tiny"));
  fs::remove(downloader_.home.catalog_file());
  fetch::remove_chunks(downloader_.home.chunks(), "m");
  std::ofstream(model_folder("m") / kFirst / "config.json") << "{}";  // this one is damaged
  hub_.forget_requests();
  must(download("m", "hf:org/gpt2-tiny"));
  EXPECT_THAT(resolved_paths(), ElementsAre("config.json"));
}

TEST_F(DownloadTest, ASmallFileIsCheckedByGitsName) {
  hub_.put_repo(safetensors_repo(kFirst, "{}"));
  hub_.add_fault({.path = "config.json", .times = 1, .corrupt_at = 3});
  must(download("m", "hf:org/gpt2-tiny"));
  EXPECT_THAT(notes_, HasSubstr("git sha1"));
}

TEST_F(DownloadTest, CancelledAndTakenUp) {
  hub_.put_repo(gguf_repo());
  hub_.add_fault({.path = "/lfs/", .times = 100, .bytes_per_second = 200'000});
  std::stop_source source;
  on_event_ = [&](const DownloadEvent& event) {
    if (event.bytes_done > 66'000) source.request_stop();
  };
  EXPECT_EQ(must_fail(download("tiny", "hf:org/Tiny-GGUF", source.get_token())).code,
            ErrorCode::Cancelled);
  on_event_ = {};
  hub_.clear_faults();
  must(download("tiny", "hf:org/Tiny-GGUF"));
}

TEST_F(DownloadTest, OneDownloadOfAModelAtATime) {
  hub_.put_repo(gguf_repo());
  fs::create_directories(model_folder("tiny"));
  {
    const auto lock =
        base::FileLock::acquire(model_folder("tiny") / "download.lock", milliseconds(0));
    ASSERT_TRUE(lock.ok());
    const Error error = must_fail(download("tiny", "hf:org/Tiny-GGUF"));
    EXPECT_EQ(error.code, ErrorCode::Conflict);
    EXPECT_THAT(error.message, HasSubstr("being downloaded already"));
  }
  must(download("tiny", "hf:org/Tiny-GGUF"));
}

TEST_F(DownloadTest, ThreadsOnOneModelEndWithOneWhole) {
  hub_.put_repo(gguf_repo());
  std::vector<std::thread> threads;
  std::atomic<int> wins = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const auto entry = downloader_.download({.id = "tiny", .ref = "hf:org/Tiny-GGUF"}, {}, {});
      if (entry.ok())
        ++wins;
      else
        EXPECT_EQ(entry.error().code, ErrorCode::Conflict) << entry.error().message;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(wins, 1);
  must(download("tiny"));
}

TEST_F(DownloadTest, WhatBroughtNothingLeavesNothing) {
  hub_.put_repo(gguf_repo());
  must_fail(download("", "hf:org/none"));
  hub_.add_fault({.path = "/resolve/", .times = 1000, .status = 404});
  must_fail(download("tiny", "hf:org/Tiny-GGUF"));
  EXPECT_TRUE(fs::is_empty(downloader_.home.models()));
}

TEST_F(DownloadTest, JoinsWhatAnotherIsAt) {
  hub_.put_repo(gguf_repo());
  const fs::path folder = model_folder("tiny");
  fs::create_directories(folder);
  auto held = base::FileLock::acquire(folder / kDownloadLockName, milliseconds(0));
  ASSERT_TRUE(held.ok());
  const UnderWay other{"hf:org/Tiny-GGUF", 4711, 0, 1, 1000, 4000};
  ASSERT_TRUE(save_under_way(folder, other).ok());
  bool has_seen_it = false;
  const auto on_event = [&](const DownloadEvent& event) {
    if (event.kind != DownloadEvent::Kind::Progress || !*held) return;
    has_seen_it = event.bytes_done == 1000 && event.bytes_total == 4000;
    held->reset();  // the other one ends without an end: we go on
  };
  const DownloadRequest request{.id = "tiny", .ref = "hf:org/Tiny-GGUF", .join = true};
  must(downloader_.download(request, on_event, {}));
  EXPECT_TRUE(has_seen_it);
  // One that is at another model of this name is not joined.
  fs::create_directories(model_folder("x"));
  const auto again =
      base::FileLock::acquire(model_folder("x") / kDownloadLockName, milliseconds(0));
  ASSERT_TRUE(again.ok());
  ASSERT_TRUE(save_under_way(model_folder("x"), {"hf:org/else", 4711, 0, 0, 0, 0}).ok());
  const Error error =
      must_fail(downloader_.download({.id = "x", .ref = "hf:org/Tiny-GGUF", .join = true}, {}, {}));
  EXPECT_EQ(error.code, ErrorCode::Conflict);
  EXPECT_THAT(error.message, HasSubstr("process 4711"));
  // Giving up leaves the other one alone.
  ASSERT_TRUE(save_under_way(model_folder("x"), {"hf:org/Tiny-GGUF", 4711, 0, 0, 0, 0}).ok());
  std::stop_source stop;
  const Error left = must_fail(downloader_.download(
      {.id = "x", .ref = "hf:org/Tiny-GGUF", .join = true},
      [&](const DownloadEvent&) { stop.request_stop(); }, stop.get_token()));
  EXPECT_EQ(left.code, ErrorCode::Cancelled);
  EXPECT_TRUE(fs::exists(model_folder("x") / kDownloadLockName));
}

TEST_F(DownloadTest, WhatIsNoModelIsRefused) {
  hub_.put_file("/x.gguf", {.content = "this is text", .etag = "\"a\""});
  must_fail(download("x", hub_.url() + "/x.gguf"));
  EXPECT_FALSE(catalog().find("x").ok());
}

TEST_F(DownloadTest, UnknownNamesAndTheBuiltInOne) {
  EXPECT_EQ(must_fail(download("tinylama")).code, ErrorCode::NotFound);
  EXPECT_EQ(must_fail(download("builtin")).code, ErrorCode::InvalidArgument);
  EXPECT_EQ(must_fail(download("../x", "hf:a/b")).code, ErrorCode::InvalidArgument);
  EXPECT_EQ(must_fail(download("x", "nonsense:///")).code, ErrorCode::InvalidArgument);
  EXPECT_TRUE(hub_.requests().empty());
}

TEST_F(DownloadTest, TheNewestRevisionIsOneQuestion) {
  hub_.put_repo(gguf_repo(kSecond));
  EXPECT_EQ(
      *fetch::newest_revision(*fetch::parse_model_ref("hf:org/Tiny-GGUF"), downloader_.source, {}),
      kSecond);
  EXPECT_EQ(hub_.requests().size(), 1U);
  hub_.put_package("p", "3.1.4", "x");
  EXPECT_EQ(*fetch::newest_revision(*fetch::parse_model_ref("npm:p"), downloader_.source, {}),
            "3.1.4");
}

}  // namespace
}  // namespace llorch::catalog
