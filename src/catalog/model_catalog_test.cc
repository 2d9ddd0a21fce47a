#include "catalog/model_catalog.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <random>
#include <thread>

#include "base/file.h"
#include "base/file_lock.h"
#include "base/similar_names.h"
#include "support/child_process.h"
#include "support/run_program.h"
#include "support/test_paths.h"

namespace llorch::catalog {
namespace {

namespace fs = std::filesystem;
using contract::ModelEntry;
using testing::HasSubstr;

ModelEntry entry_called(std::string id) {
  ModelEntry entry;
  entry.id = std::move(id);
  return entry;
}

Status put(const ModelCatalog& catalog, ModelEntry entry) {
  return catalog.update([&](CatalogContent& content) -> Status {
    content.put(entry);
    return ok_status();
  });
}

void write_text(const fs::path& file, std::string_view text) {
  std::ofstream(file, std::ios::binary) << text;
}

std::string read_text(const fs::path& file) {
  return base::read_text_file(file, kCatalogBytesMax).take();
}

std::size_t count_files(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), {}));
}

TEST(ModelCatalog, WithoutAFileIsEmpty) {
  const test::TempDir dir;
  const ModelCatalog catalog(dir / "none/catalog.json");
  const Result<CatalogContent> content = catalog.read();
  ASSERT_TRUE(content.ok()) << content.error().message;
  EXPECT_TRUE(content->models.empty());
  EXPECT_FALSE(fs::exists(dir / "none")) << "reading makes nothing";
}

TEST(ModelCatalog, KeepsWhatIsPutAndForgetsWhatIsRemoved) {
  const test::TempDir dir;
  const ModelCatalog catalog(dir / "deep/er/catalog.json");
  for (const char* id : {"b", "c", "a"}) ASSERT_TRUE(put(catalog, entry_called(id)).ok());
  const CatalogContent content = catalog.read().take();
  ASSERT_EQ(content.models.size(), 3U);
  EXPECT_EQ(content.models[0].id, "a");
  EXPECT_EQ(content.models[2].id, "c");
  EXPECT_FALSE(content.pool_id.empty());
  EXPECT_EQ(content.models[0].updated_at.size(), std::string("2026-01-02T03:04:05Z").size());

  ASSERT_TRUE(catalog
                  .update([](CatalogContent& changed) -> Status {
                    EXPECT_TRUE(changed.remove("b"));
                    EXPECT_FALSE(changed.remove("b"));
                    return ok_status();
                  })
                  .ok());
  EXPECT_EQ(catalog.read()->find("b"), nullptr);
  EXPECT_NE(catalog.read()->find("c"), nullptr);
  EXPECT_EQ(catalog.read()->pool_id, content.pool_id) << "the pool's id is made once";
}

TEST(ModelCatalog, StampsOnlyWhatChangedAndWritesNothingForNothing) {
  const test::TempDir dir;
  const ModelCatalog catalog(dir / "catalog.json");
  ModelEntry old = entry_called("old");
  ASSERT_TRUE(put(catalog, old).ok());
  // Pretend that it was written long ago.
  std::string text = read_text(catalog.file());
  const std::size_t at = text.find("\"updated_at\":\"") + 14;
  text.replace(at, 20, "2001-02-03T04:05:06Z");
  write_text(catalog.file(), text);
  const auto time = fs::last_write_time(catalog.file());

  ASSERT_TRUE(catalog.update([](CatalogContent&) { return ok_status(); }).ok());
  EXPECT_EQ(fs::last_write_time(catalog.file()), time) << "no change, no write";
  ASSERT_TRUE(put(catalog, entry_called("new")).ok());
  EXPECT_EQ(catalog.read()->find("old")->updated_at, "2001-02-03T04:05:06Z");
  EXPECT_GT(catalog.read()->find("new")->updated_at, "2025");
}

TEST(ModelCatalog, AnErrorOfTheChangeWritesNothing) {
  const test::TempDir dir;
  const ModelCatalog catalog(dir / "catalog.json");
  ASSERT_TRUE(put(catalog, entry_called("a")).ok());
  const std::string before = read_text(catalog.file());
  const Status refused = catalog.update([](CatalogContent& content) -> Status {
    content.remove("a");
    return Error{ErrorCode::Conflict, "no"};
  });
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::Conflict);
  EXPECT_EQ(read_text(catalog.file()), before);
}

TEST(ModelCatalog, FindNamesSimilarIdsAndWhatToRun) {
  const test::TempDir dir;
  const ModelCatalog catalog(dir / "catalog.json");
  ASSERT_TRUE(put(catalog, entry_called("my-stories")).ok());
  EXPECT_EQ(catalog.find("my-stories")->id, "my-stories");
  const Result<ModelEntry> mistyped = catalog.find("my-storys");
  ASSERT_FALSE(mistyped.ok());
  EXPECT_EQ(mistyped.error().code, ErrorCode::NotFound);
  EXPECT_THAT(mistyped.error().message, HasSubstr("did you mean my-stories?"));
  EXPECT_THAT(catalog.find("tinyllama").error().message,
              HasSubstr("llorch-pool models download tinyllama"));
  EXPECT_THAT(catalog.find("tinylama").error().message, HasSubstr("did you mean tinyllama?"));
  EXPECT_THAT(catalog.find("zzzzzzzzzzzz").error().message, HasSubstr("models list"));
  const Result<ModelEntry> builtin = catalog.find("builtin");
  ASSERT_TRUE(builtin.ok());
  EXPECT_EQ(builtin->path, "builtin");
}

TEST(ModelCatalog, ADamagedFileIsNamedWithThePlaceAndLeftAlone) {
  struct Case {
    std::string_view text;
    std::string_view expected;
    ErrorCode code = ErrorCode::Corrupt;
  };
  const test::TempDir dir;
  const ModelCatalog catalog(dir / "catalog.json");
  for (const Case& c : {
           Case{"", "line 1, column 1"},
           Case{"{\"version\":\"1.0\",\n\"models\":[{\"id\":\"a\"},\n  {\"id\" \"b\"}]}",
                "line 3, column 9"},
           Case{R"({"version":"1.0","pool_id":"p","models":[{"id":"a"},{"id":"b"},{"id":"a"}]})",
                "the model \"a\" is listed twice"},
           Case{R"({"version":"1.0","models":[{"id":"a"},{"id":"a/b"}]})", "models[1]: id"},
           Case{R"({"version":"1.0","models":[{"id":"a","size_gb":"x"}]})", "models[0]: size_gb"},
           Case{R"({"version":"1.0"})", "models"},
           Case{R"({"models":[]})", "version"},
           Case{R"([1])", "found an array"},
           Case{R"({"version":"2.0","models":[]})", "its version is \"2.0\"",
                ErrorCode::Unsupported},
           Case{R"({"version":"10.0","models":[]})", "its version is", ErrorCode::Unsupported},
       }) {
    write_text(catalog.file(), c.text);
    const Result<CatalogContent> content = catalog.read();
    ASSERT_FALSE(content.ok()) << c.text;
    EXPECT_EQ(content.error().code, c.code) << content.error().message;
    EXPECT_THAT(content.error().message, HasSubstr(std::string(c.expected)));
    EXPECT_THAT(content.error().message, HasSubstr(catalog.file().string()));
    EXPECT_FALSE(put(catalog, entry_called("x")).ok());
    EXPECT_EQ(read_text(catalog.file()), c.text) << "a damaged file is left alone";
  }
}

TEST(ModelCatalog, AStrangersAndANewerProgramsFilesSurviveARewrite) {
  const test::TempDir dir;
  const ModelCatalog catalog(dir / "catalog.json");
  write_text(catalog.file(), R"({
    "version": "1.7", "pool_id": "attic", "updated_at": "2025-01-01", "shards": {"x": [1, 2.5]},
    "models": [{"id": "z", "size_gb": 2.2, "metadata": {"repo": "org/z", "stars": 5}, "pin": true},
               {"id": "m"}]})");
  ASSERT_TRUE(put(catalog, entry_called("a")).ok());
  const CatalogContent content = catalog.read().take();
  EXPECT_EQ(content.version, "1.7");
  EXPECT_EQ(content.pool_id, "attic");
  EXPECT_EQ(content.models.size(), 3U);
  EXPECT_EQ(content.find("z")->size_bytes, 2'200'000'000);
  const std::string text = read_text(catalog.file());
  for (const char* kept : {R"("updated_at":"2025-01-01")", R"("shards":{"x":[1,2.5]})",
                           R"("stars":5)", R"("pin":true)"}) {
    EXPECT_THAT(text, HasSubstr(kept));
  }
}

TEST(ModelCatalog, ALinkedCatalogStaysALink) {
  const test::TempDir dir;
  fs::create_directory(dir / "real");
  fs::create_directory(dir / "home");
  write_text(dir / "real/catalog.json", R"({"version":"1.0","pool_id":"p","models":[]})");
  fs::create_symlink(dir / "real/catalog.json", dir / "home/catalog.json");
  ASSERT_TRUE(put(ModelCatalog(dir / "home/catalog.json"), entry_called("a")).ok());
  EXPECT_TRUE(fs::is_symlink(dir / "home/catalog.json"));
  EXPECT_NE(ModelCatalog(dir / "real/catalog.json").read()->find("a"), nullptr);
}

TEST(ModelCatalog, TooManyModelsAreRefusedBothWays) {
  CatalogContent content;
  for (std::size_t i = 0; i <= kCatalogModelsMax; ++i)
    content.models.push_back(entry_called(fmt::format("m{:06}", i)));
  const Result<CatalogContent> read = parse_catalog(write_catalog(content));
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, ErrorCode::TooLarge);
  const test::TempDir dir;
  const ModelCatalog catalog(dir / "catalog.json");
  const Status written = catalog.update([&](CatalogContent& target) {
    target.models = content.models;
    return ok_status();
  });
  ASSERT_FALSE(written.ok());
  EXPECT_EQ(written.error().code, ErrorCode::TooLarge);
  EXPECT_FALSE(fs::exists(catalog.file()));
}

TEST(ModelCatalog, EightProcessesWritingAtOnceLoseNothing) {
  constexpr int kWriters = 8;
  constexpr int kUpdates = 25;
  const test::TempDir dir;
  const ModelCatalog catalog(dir / "catalog.json");
  std::vector<std::unique_ptr<test::ChildProcess>> writers;
  for (int i = 0; i < kWriters; ++i) {
    writers.push_back(std::make_unique<test::ChildProcess>(
        LLORCH_CATALOG_WRITER,
        std::vector<std::string>{catalog.file().string(), "add", fmt::format("w{}", i),
                                 std::to_string(kUpdates)}));
  }
  for (const auto& writer : writers)
    EXPECT_EQ(writer->wait(std::chrono::minutes(2)), 0) << writer->err();
  const CatalogContent content = catalog.read().take();
  EXPECT_EQ(content.models.size(), std::size_t{kWriters * kUpdates});
  for (int i = 0; i < kWriters; ++i) {
    for (int j = 0; j < kUpdates; ++j)
      EXPECT_NE(content.find(fmt::format("w{}-{}", i, j)), nullptr) << i << " " << j;
  }
  EXPECT_EQ(count_files(dir.path()), 2U) << "the catalog and its lock, nothing else";
}

TEST(ModelCatalog, ThreadsOfOneProcessLoseNothingEither) {
  const test::TempDir dir;
  const ModelCatalog catalog(dir / "catalog.json");
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&catalog, i] {
        for (int j = 0; j < 10; ++j)
          EXPECT_TRUE(put(catalog, entry_called(fmt::format("t{}-{}", i, j))).ok());
      });
    }
  }
  EXPECT_EQ(catalog.read()->models.size(), 40U);
}

constexpr int kTurningEntries = 40;

// All entries of a content that `turn` wrote have one revision; -1 when they do not.
int common_revision(const CatalogContent& content) {
  if (content.models.empty()) return 0;
  if (content.models.size() != kTurningEntries) return -1;
  for (const ModelEntry& entry : content.models) {
    if (entry.revision != content.models.front().revision) return -1;
  }
  return std::stoi(content.models.front().revision);
}

TEST(ModelCatalog, AKilledWriterLeavesTheOldOrTheNewFile) {
  constexpr int kKills = 60;
  const test::TempDir dir;
  const ModelCatalog catalog(dir / "catalog.json");
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937 random(seed);
  int last = 0;
  int advanced = 0;
  unsigned longest_us = 60'000;
  for (int i = 0; i < kKills; ++i) {
    test::ChildProcess writer(LLORCH_CATALOG_WRITER,
                              {catalog.file().string(), "turn", std::to_string(kTurningEntries)});
    // From before it has opened anything to in the middle of its tenth update or so.
    std::this_thread::sleep_for(std::chrono::microseconds(random() % longest_us));
    writer.signal(SIGKILL);
    ASSERT_EQ(writer.wait(), -1) << "it ended by itself: " << writer.err();
    const Result<CatalogContent> content = catalog.read();
    ASSERT_TRUE(content.ok()) << content.error().message;
    const int revision = common_revision(*content);
    ASSERT_GE(revision, last) << "an update came apart or was lost";
    if (revision > last) ++advanced;
    last = revision;
    // A build or a machine that is slow to start a program gets more time.
    if (advanced == 0) longest_us += longest_us / 8;
  }
  EXPECT_GT(advanced, 0) << "no writer ever got to write: the kills came too early";
  // The lock ended with its holders, and the next writer tidies up.
  ASSERT_TRUE(put(catalog, entry_called("after")).ok());
  EXPECT_EQ(count_files(dir.path()), 2U) << "the catalog and its lock, nothing else";
}

TEST(ModelCatalog, ReadersNeverSeeHalfAFile) {
  const test::TempDir dir;
  const ModelCatalog catalog(dir / "catalog.json");
  test::ChildProcess writer(LLORCH_CATALOG_WRITER,
                            {catalog.file().string(), "turn", std::to_string(kTurningEntries)});
  std::atomic<int> reads{0};
  std::atomic<int> newest{0};
  {
    std::vector<std::jthread> readers;
    for (int i = 0; i < 3; ++i) {
      readers.emplace_back([&](const std::stop_token& stop) {
        int last = 0;
        while (!stop.stop_requested()) {
          const Result<CatalogContent> content = catalog.read();
          ASSERT_TRUE(content.ok()) << content.error().message;
          const int revision = common_revision(*content);
          ASSERT_GE(revision, last);
          last = revision;
          newest = std::max(newest.load(), revision);
          ++reads;
        }
      });
    }
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while ((newest < 50 || reads < 500) && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_TRUE(writer.is_running()) << writer.err();
  EXPECT_GE(newest, 50);
  EXPECT_GE(reads, 500);
}

// A disk that takes no more: a limit on the size of files in the writer's process, whose signal is
// ignored so that the write fails instead.
TEST(ModelCatalog, AFullDiskLeavesTheOldFile) {
  const test::TempDir dir;
  const ModelCatalog catalog(dir / "catalog.json");
  ModelEntry large = entry_called("large");
  large.name = std::string(8000, 'n');
  ASSERT_TRUE(put(catalog, large).ok());
  const std::string before = read_text(catalog.file());
  const test::ProgramOutcome full = test::run_program(
      "/bin/sh", {"-c", "trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\"", LLORCH_CATALOG_WRITER,
                  catalog.file().string(), "add", "x", "1"});
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_THAT(full.err, HasSubstr("the catalog is unchanged"));
  EXPECT_EQ(read_text(catalog.file()), before);
  EXPECT_EQ(count_files(dir.path()), 2U) << "the catalog and its lock, nothing else";
}

TEST(ModelCatalog, AFolderThatCannotBeMadeIsAnErrorWithItsName) {
  const test::TempDir dir;
  write_text(dir / "file", "x");
  const Status made = put(ModelCatalog(dir / "file/data/catalog.json"), entry_called("a"));
  ASSERT_FALSE(made.ok());
  EXPECT_THAT(made.error().message, HasSubstr((dir / "file/data").string()));
}

TEST(SimilarNames, FindsWhatWasMeant) {
  const std::vector<std::string_view> names = {"tinyllama", "qwen-0.5b", "gpt2", "gpt2-medium",
                                               "smollm2"};
  EXPECT_THAT(base::similar_names("tinylama", names, 3), testing::ElementsAre("tinyllama"));
  EXPECT_THAT(base::similar_names("TinyLlama", names, 3), testing::ElementsAre("tinyllama"));
  EXPECT_THAT(base::similar_names("gtp2", names, 3), testing::ElementsAre("gpt2"));
  EXPECT_THAT(base::similar_names("qwen", names, 3), testing::ElementsAre("qwen-0.5b"));
  EXPECT_THAT(base::similar_names("gpt2-large", names, 3), testing::ElementsAre("gpt2"));
  EXPECT_THAT(base::similar_names("completely-else", names, 3), testing::IsEmpty());
  EXPECT_EQ(base::similar_names("gpt2", {"gpt2a", "gpt2b", "gpt2c", "gpt2d"}, 3).size(), 3U);
}

}  // namespace
}  // namespace llorch::catalog
