#include "catalog/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/file_lock.h"
#include "catalog/test_models.h"

namespace llorch::catalog {
namespace {

namespace fs = std::filesystem;
using contract::ModelEntry;
using testing::HasSubstr;

class RegistryTest : public CatalogHomeTest {
 protected:
  Result<ModelEntry> add(std::string id, std::string path, std::string architecture = "") {
    return register_model(
        catalog,
        {.id = std::move(id), .architecture = std::move(architecture), .path = std::move(path)});
  }
};

TEST_F(RegistryTest, AModelWithFilesIsReadAndUsedInPlace) {
  const Result<ModelEntry> entry = register_model(catalog, {.id = "mine",
                                                            .name = "Mine",
                                                            .repo = "org/repo",
                                                            .architecture = "gpt2",
                                                            .path = dir / "files"});
  ASSERT_TRUE(entry.ok()) << entry.error().message;
  EXPECT_EQ(entry->path, (dir / "files").string());
  EXPECT_EQ(entry->name, "Mine");
  EXPECT_EQ(entry->repo, "hf:org/repo") << "written in full";
  EXPECT_EQ(entry->vocab_size, 211);
  EXPECT_TRUE(entry->downloaded);
  EXPECT_FALSE(entry->updated_at.empty());
  EXPECT_EQ(*catalog.find("mine"), *entry);
}

TEST_F(RegistryTest, TheUsersArchitectureMustNotContradictTheFiles) {
  const Result<ModelEntry> entry = add("mine", dir / "files", "llama");
  ASSERT_FALSE(entry.ok());
  EXPECT_EQ(entry.error().code, ErrorCode::InvalidArgument);
  EXPECT_THAT(entry.error().message, HasSubstr("\"llama\""));
  EXPECT_THAT(entry.error().message, HasSubstr("\"gpt2\""));
  EXPECT_FALSE(fs::exists(catalog.file()));
}

TEST_F(RegistryTest, WithoutFilesTheUsersWordIsAllThereIs) {
  const Result<ModelEntry> entry = register_model(
      catalog, {.id = "later", .name = "Later", .repo = "npm:pkg@1.0.0", .architecture = "llama"});
  ASSERT_TRUE(entry.ok()) << entry.error().message;
  EXPECT_FALSE(entry->downloaded);
  EXPECT_EQ(entry->architecture, "llama");
  EXPECT_EQ(entry->path, "");
  EXPECT_TRUE(entry->backends.empty());
  EXPECT_EQ(entry->size_bytes, 0);
}

TEST_F(RegistryTest, AKnownNameBringsWhatIsKnownUnlessTheFilesAreOthers) {
  const Result<ModelEntry> known = add("tinyllama", "");
  ASSERT_TRUE(known.ok()) << known.error().message;
  EXPECT_THAT(known->repo, HasSubstr("hf:TheBloke/"));
  const Result<ModelEntry> own = add("gpt2", dir / "files");
  ASSERT_TRUE(own.ok()) << own.error().message;
  EXPECT_EQ(own->repo, "");
  EXPECT_EQ(own->license, "");
}

TEST_F(RegistryTest, RefusesWhatCannotBeAndSaysWhy) {
  ASSERT_TRUE(add("taken", dir / "files").ok());
  struct Case {
    RegisterRequest request;
    ErrorCode code;
    std::string_view expected;
  };
  for (const Case& c : {
           Case{{.id = "taken", .repo = "hf:a/b"}, ErrorCode::Conflict, "registered already"},
           Case{{.id = "builtin", .repo = "hf:a/b"}, ErrorCode::Conflict, "part of the program"},
           Case{{.id = "a;rm -rf", .repo = "hf:a/b"}, ErrorCode::InvalidArgument, "no model id"},
           Case{{.id = "x", .repo = {}}, ErrorCode::InvalidArgument, "neither a path nor a repo"},
           Case{{.id = "x", .repo = "tinyllama"}, ErrorCode::InvalidArgument, "no place"},
           Case{{.id = "x", .repo = "ftp://x/y"}, ErrorCode::InvalidArgument, "no model reference"},
           Case{{.id = "x", .name = "\xff", .repo = "hf:a/b"}, ErrorCode::InvalidArgument, "UTF-8"},
           Case{{.id = "x", .path = "/no/such"}, ErrorCode::NotFound, "/no/such"},
       }) {
    const Result<ModelEntry> entry = register_model(catalog, c.request);
    ASSERT_FALSE(entry.ok()) << c.expected;
    EXPECT_EQ(entry.error().code, c.code);
    EXPECT_THAT(entry.error().message, HasSubstr(std::string(c.expected)));
  }
  EXPECT_EQ(catalog.read()->models.size(), 1U);
}

TEST_F(RegistryTest, DownloadedTrueReadsTheFilesAgain) {
  ASSERT_TRUE(add("mine", dir / "files").ok());
  std::ofstream(dir / "files/tokenizer.json") << "{}";
  const Result<ModelEntry> again = update_model(catalog, "mine", {.downloaded = true});
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->files.size(), 3U);

  const Result<ModelEntry> off = update_model(catalog, "mine", {.downloaded = false});
  ASSERT_TRUE(off.ok());
  EXPECT_FALSE(off->downloaded);
  EXPECT_TRUE(update_model(catalog, "mine", {.downloaded = true})->downloaded);

  fs::remove_all(dir / "files");
  const Result<ModelEntry> gone = update_model(catalog, "mine", {.downloaded = true});
  ASSERT_FALSE(gone.ok());
  EXPECT_THAT(gone.error().message, HasSubstr((dir / "files").string()));
}

TEST_F(RegistryTest, UpdateChangesOnlyWhatIsNamed) {
  ASSERT_TRUE(add("mine", dir / "files").ok());
  const ModelEntry before = catalog.find("mine").take();
  const Result<ModelEntry> after =
      update_model(catalog, "mine", {.name = "New", .repo = "org/repo"});
  ASSERT_TRUE(after.ok()) << after.error().message;
  EXPECT_EQ(after->name, "New");
  EXPECT_EQ(after->repo, "hf:org/repo");
  EXPECT_EQ(after->files, before.files);
  const Result<ModelEntry> wrong = update_model(catalog, "mine", {.architecture = "llama"});
  ASSERT_FALSE(wrong.ok());
  EXPECT_THAT(wrong.error().message, HasSubstr("\"gpt2\""));
  EXPECT_THAT(update_model(catalog, "mien", {.downloaded = true}).error().message,
              HasSubstr("did you mean mine?"));
  EXPECT_FALSE(update_model(catalog, "builtin", {.name = "x"}).ok());
}

TEST_F(RegistryTest, UnregisteringLeavesEveryFile) {
  copy_model(home.models() / "inside");
  ASSERT_TRUE(add("inside", home.models() / "inside").ok());
  ASSERT_TRUE(add("outside", dir / "files").ok());
  for (const char* id : {"inside", "outside"}) {
    ASSERT_TRUE(remove_model(catalog, home, id, false).ok());
    EXPECT_FALSE(catalog.find(id).ok());
  }
  EXPECT_TRUE(fs::exists(home.models() / "inside/model.safetensors"));
  EXPECT_TRUE(fs::exists(dir / "files/model.safetensors"));
  EXPECT_EQ(remove_model(catalog, home, "inside", false).error().code, ErrorCode::NotFound);
}

TEST_F(RegistryTest, RemovingDeletesOnlyTheModelsOwnFolder) {
  copy_model(home.models() / "inside");
  copy_model(home.models() / "other");
  fs::create_directories(home.chunks());
  std::ofstream(home.chunks() / "inside.json") << "[]";
  ASSERT_TRUE(add("inside", home.models() / "inside").ok());
  ASSERT_TRUE(add("outside", dir / "files").ok());
  ASSERT_TRUE(add("alias", home.models() / "other/model.safetensors").ok());

  const Result<ModelEntry> removed = remove_model(catalog, home, "inside", true);
  ASSERT_TRUE(removed.ok()) << removed.error().message;
  EXPECT_EQ(removed->path, (home.models() / "inside").string());
  EXPECT_FALSE(fs::exists(home.models() / "inside"));
  EXPECT_FALSE(fs::exists(home.chunks() / "inside.json"));

  ASSERT_TRUE(remove_model(catalog, home, "outside", true).ok());
  EXPECT_TRUE(fs::exists(dir / "files/model.safetensors"));

  // Its folder is called otherwise: not its own.
  ASSERT_TRUE(remove_model(catalog, home, "alias", true).ok());
  EXPECT_TRUE(fs::exists(home.models() / "other/model.safetensors"));
  // What a download left without an entry.
  ASSERT_TRUE(remove_model(catalog, home, "other", true).ok());
  EXPECT_FALSE(fs::exists(home.models() / "other"));
  EXPECT_TRUE(fs::exists(home.models()));
}

TEST_F(RegistryTest, RemovingRefusesWhatOthersUse) {
  copy_model(home.models() / "inside");
  ASSERT_TRUE(add("inside", home.models() / "inside").ok());
  ASSERT_TRUE(add("alias", home.models() / "inside/model.safetensors").ok());
  const Result<ModelEntry> aliased = remove_model(catalog, home, "inside", true);
  ASSERT_FALSE(aliased.ok());
  EXPECT_THAT(aliased.error().message, HasSubstr("alias"));
  ASSERT_TRUE(remove_model(catalog, home, "alias", false).ok());
  {
    const auto lock =
        base::FileLock::acquire(home.models() / "inside/x.part.lock", std::chrono::milliseconds(0));
    ASSERT_TRUE(lock.ok());
    const Result<ModelEntry> busy = remove_model(catalog, home, "inside", true);
    ASSERT_FALSE(busy.ok());
    EXPECT_THAT(busy.error().message, HasSubstr("being downloaded"));
  }
  EXPECT_TRUE(catalog.find("inside").ok());
  EXPECT_TRUE(fs::exists(home.models() / "inside/model.safetensors"));
  EXPECT_FALSE(remove_model(catalog, home, "builtin", true).ok());
  EXPECT_FALSE(remove_model(catalog, home, "../files", true).ok());
  EXPECT_TRUE(remove_model(catalog, home, "inside", true).ok());
}

TEST_F(RegistryTest, AFolderThatIsALinkLosesTheLinkOnly) {
  fs::create_directories(home.models());
  fs::create_directory_symlink(dir / "files", home.models() / "linked");
  ASSERT_TRUE(add("linked", home.models() / "linked").ok());
  ASSERT_TRUE(remove_model(catalog, home, "linked", true).ok());
  EXPECT_FALSE(fs::is_symlink(home.models() / "linked"));
  EXPECT_TRUE(fs::exists(dir / "files/model.safetensors"));
}

}  // namespace
}  // namespace llorch::catalog
