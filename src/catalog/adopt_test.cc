#include "catalog/adopt.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>

#include "base/digest.h"
#include "catalog/describe.h"
#include "catalog/model_catalog.h"
#include "support/test_paths.h"

namespace llorch::catalog {
namespace {

namespace fs = std::filesystem;
using contract::ModelEntry;
using testing::HasSubstr;

const std::string kCommit(40, 'c');

std::string content_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write(const fs::path& path, const std::string& content) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

// The shapes and names that Ollama 0.x and huggingface_hub leave on a disk.
class AdoptTest : public testing::Test {
 protected:
  AdoptTest() { home_.data = folder_ / "data"; }

  Result<AdoptReport> adopt(const AdoptRequest& request = {}) {
    return adopt_models(
        home_,
        [this](const char* name) -> const char* {
          const auto found = variables_.find(name);
          return found == variables_.end() ? nullptr : found->second.c_str();
        },
        request);
  }
  void put_ollama(const std::string& name, const std::string& content) {
    const std::string hex = base::sha256_hex(content);
    const fs::path root = folder_ / ".ollama/models";
    write(root / "blobs" / ("sha256-" + hex), content);
    write(root / "manifests/registry.ollama.ai" / name,
          fmt::format(R"({{"schemaVersion":2,"layers":[
{{"mediaType":"application/vnd.ollama.image.template","digest":"sha256:{}","size":3}},
{{"mediaType":"application/vnd.ollama.image.model","digest":"sha256:{}","size":{}}}]}})",
                      std::string(64, '0'), hex, content.size()));
  }
  fs::path repository(const std::string& name) const {
    return folder_ / ".cache/huggingface/hub" / name;
  }
  // As the hub's tools do it: the blob, and a link from the snapshot.
  void put_cached(const std::string& name, const std::string& file, const std::string& content) {
    const fs::path root = repository(name);
    const std::string blob = base::sha256_hex(content);
    write(root / "blobs" / blob, content);
    const fs::path link = root / "snapshots" / kCommit / file;
    fs::create_directories(link.parent_path());
    fs::create_symlink(fs::path("../../blobs") / blob, link);
    write(root / "refs/main", kCommit);
  }
  ModelCatalog catalog() const { return ModelCatalog(home_.catalog_file()); }
  // Every path below the caches with its content and time: nothing there may change.
  std::map<std::string, std::string> caches() const {
    std::map<std::string, std::string> all;
    for (const char* place : {".ollama", ".cache"}) {
      if (!fs::exists(folder_ / place)) continue;
      for (const auto& one : fs::recursive_directory_iterator(folder_ / place)) {
        if (one.is_regular_file() && !one.is_symlink())
          all[one.path()] = fmt::format("{} {}", one.last_write_time().time_since_epoch().count(),
                                        content_of(one.path()));
      }
    }
    return all;
  }

  test::TempDir folder_;
  base::Home home_;
  std::map<std::string, std::string> variables_{{"HOME", folder_.path().string()}};
  const std::string gguf_ = content_of(test::source_path("models/builtin/stories.gguf"));
  const fs::path golden_ = test::source_path("tests/golden/gpt2_tiny");
};

TEST_F(AdoptTest, OllamasBlobsAreRegisteredWhereTheyLie) {
  ASSERT_FALSE(gguf_.empty());
  put_ollama("library/story/latest", gguf_);
  put_ollama("me/story/1b", gguf_ + std::string(32, '\0'));
  put_ollama("library/broken/latest", "not a model");
  write(
      folder_ / ".ollama/models/manifests/registry.ollama.ai/library/evil/latest",
      R"({"layers":[{"mediaType":"application/vnd.ollama.image.model","digest":"sha256:../../x"}]})");
  const auto before = caches();
  const Result<AdoptReport> dry = adopt({.dry_run = true});
  ASSERT_TRUE(dry.ok()) << dry.error().message;
  EXPECT_EQ(dry->adopted.size(), 2U);
  EXPECT_TRUE(catalog().read()->models.empty()) << "looks only";
  const Result<AdoptReport> report = adopt();
  ASSERT_TRUE(report.ok()) << report.error().message;
  ASSERT_EQ(report->adopted.size(), 2U);
  EXPECT_EQ(report->adopted[0].id, "story");
  EXPECT_EQ(report->adopted[0].name, "story:latest");
  EXPECT_EQ(report->adopted[1].id, "me-story-1b");
  ASSERT_EQ(report->skipped.size(), 1U);
  EXPECT_EQ(report->skipped[0].id, "broken");
  const Result<ModelEntry> entry = catalog().find("story");
  ASSERT_TRUE(entry.ok()) << entry.error().message;
  EXPECT_TRUE(entry->downloaded);
  EXPECT_EQ(entry->format, "gguf");
  EXPECT_EQ(entry->path, folder_ / ".ollama/models/blobs" / ("sha256-" + base::sha256_hex(gguf_)));
  ASSERT_EQ(entry->files.size(), 1U);
  EXPECT_EQ(entry->files[0].sha256, base::sha256_hex(gguf_));
  EXPECT_EQ(check_files(*entry), FilesState::Ready);
  EXPECT_EQ(caches(), before);
  const Result<AdoptReport> again = adopt();
  ASSERT_TRUE(again.ok());
  EXPECT_TRUE(again->adopted.empty());
  ASSERT_EQ(again->skipped.size(), 3U);
  EXPECT_THAT(again->skipped[1].problem, HasSubstr("is here already, as story"));
}

TEST_F(AdoptTest, TheHubsCacheIsReadThroughItsLinks) {
  for (const char* file : {"config.json", "model.safetensors", "generation_config.json"})
    put_cached("models--org--GPT2-Tiny", file, content_of(golden_ / file));
  put_cached("models--org--Story-GGUF", "story.Q8_0.gguf", gguf_);
  put_cached("models--org--Story-GGUF", "README.md", "hello");
  put_cached("datasets--org--data", "x.gguf", gguf_);
  const auto before = caches();
  const Result<AdoptReport> report = adopt({.from = "huggingface"});
  ASSERT_TRUE(report.ok()) << report.error().message;
  ASSERT_EQ(report->adopted.size(), 2U)
      << (report->skipped.empty() ? "" : report->skipped[0].problem);
  EXPECT_EQ(report->adopted[0].id, "gpt2-tiny");
  EXPECT_EQ(report->adopted[0].ref, "hf:org/GPT2-Tiny");
  EXPECT_EQ(report->adopted[1].id, "story.q8_0");
  EXPECT_EQ(report->adopted[1].ref, "hf:org/Story-GGUF::file=story.Q8_0.gguf");
  const Result<ModelEntry> folder = catalog().find("gpt2-tiny");
  ASSERT_TRUE(folder.ok());
  EXPECT_EQ(folder->path, repository("models--org--GPT2-Tiny") / "snapshots" / kCommit);
  for (const contract::ModelFile& file : folder->files)
    EXPECT_EQ(file.sha256, base::sha256_hex(content_of(golden_ / file.path))) << file.path;
  EXPECT_EQ(catalog().find("story.q8_0")->files.at(0).sha256, base::sha256_hex(gguf_));
  EXPECT_EQ(caches(), before);
}

TEST_F(AdoptTest, PlacesComeFromTheEnvironmentOrAreNamed) {
  put_ollama("library/story/latest", gguf_);
  put_cached("models--org--Story-GGUF", "story.Q8_0.gguf", gguf_);
  const fs::path elsewhere = folder_ / "elsewhere";
  variables_ = {{"OLLAMA_MODELS", (folder_ / ".ollama/models").string()},
                {"HF_HOME", (folder_ / ".cache/huggingface").string()}};
  EXPECT_EQ(adopt({.dry_run = true})->adopted.size(), 2U);
  variables_ = {{"HF_HUB_CACHE", (folder_ / ".cache/huggingface/hub").string()}};
  EXPECT_EQ(adopt({.dry_run = true})->adopted.size(), 1U);
  variables_ = {};
  EXPECT_TRUE(adopt()->adopted.empty());
  EXPECT_EQ(adopt({.from = "ollama"}).error().code, ErrorCode::NotFound);
  EXPECT_EQ(adopt({.from = elsewhere}).error().code, ErrorCode::NotFound);
  EXPECT_EQ(adopt({.from = "lmstudio"}).error().code, ErrorCode::InvalidArgument);
  // A folder is known by what is in it.
  EXPECT_EQ(adopt({.from = folder_ / ".ollama", .dry_run = true})->adopted[0].from, "ollama");
  EXPECT_EQ(adopt({.from = folder_ / ".cache/huggingface", .dry_run = true})->adopted[0].from,
            "huggingface");
  write(elsewhere / "org/repo/story-Q8_0.gguf", gguf_);
  fs::copy(golden_, elsewhere / "gpt2_tiny", fs::copy_options::recursive);
  fs::create_directory_symlink("/", elsewhere / "everything");
  const Result<AdoptReport> report = adopt({.from = elsewhere});
  ASSERT_TRUE(report.ok()) << report.error().message;
  std::vector<std::string> ids;
  for (const Adoptable& model : report->adopted) ids.push_back(model.id);
  EXPECT_THAT(ids, testing::UnorderedElementsAre("gpt2_tiny", "pytorch", "sharded_pytorch",
                                                 "sharded_safetensors", "story-q8_0"));
}

TEST_F(AdoptTest, AnIdThatIsTakenIsLeftAlone) {
  put_ollama("library/story/latest", gguf_);
  ModelEntry own;
  own.id = "story";
  own.repo = "hf:org/story";
  ASSERT_TRUE(catalog()
                  .update([&](CatalogContent& content) {
                    content.put(own);
                    return ok_status();
                  })
                  .ok());
  EXPECT_EQ(adopt()->adopted.at(0).id, "story-2");
  EXPECT_EQ(catalog().find("story")->repo, "hf:org/story");
}

}  // namespace
}  // namespace llorch::catalog
