#include "catalog/leftovers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/file_lock.h"
#include "catalog/model_catalog.h"
#include "catalog/under_way.h"
#include "support/test_paths.h"

namespace llorch::catalog {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

const std::string kOld(40, '1');
const std::string kNew(40, '2');

class LeftoversTest : public testing::Test {
 protected:
  LeftoversTest() { home_.data = folder_ / "data"; }

  void put(const std::string& path, std::size_t bytes = 5000) {
    const fs::path file = home_.models() / path;
    fs::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << std::string(bytes, 'x');
  }
  void put_entry(const std::string& id, const fs::path& path) {
    contract::ModelEntry entry;
    entry.id = id;
    entry.repo = "hf:org/" + id;
    entry.path = path;
    entry.downloaded = true;
    ASSERT_TRUE(ModelCatalog(home_.catalog_file())
                    .update([&](CatalogContent& content) {
                      content.put(entry);
                      return ok_status();
                    })
                    .ok());
  }
  std::vector<std::string> paths(const Result<std::vector<Leftover>>& leftovers) const {
    EXPECT_TRUE(leftovers.ok());
    std::vector<std::string> all;
    for (const Leftover& one : *leftovers) {
      all.push_back(std::string(kLeftoverKinds[one.kind]) + " " +
                    one.path.lexically_relative(home_.data).string());
    }
    return all;
  }
  std::vector<std::string> find(const std::vector<std::string>& in_use = {}) const {
    return paths(find_leftovers(home_, in_use));
  }
  std::vector<std::string> remove(const std::vector<std::string>& in_use = {}) const {
    return paths(remove_leftovers(home_, in_use));
  }

  test::TempDir folder_;
  base::Home home_;
};

TEST_F(LeftoversTest, EverythingThatNothingUses) {
  EXPECT_THAT(find(), IsEmpty()) << "no folder at all";
  put("whole/" + kNew + "/model.gguf");
  put("whole/" + kNew + "/model.gguf.part");
  put("whole/" + kNew + "/model.gguf.part.json");
  put("whole/" + kOld + "/model.gguf");
  put_entry("whole", home_.models() / "whole" / kNew / "model.gguf");
  put("cut/" + kOld + "/model.gguf.part", 50'000);
  ASSERT_TRUE(save_under_way(home_.models() / "cut", {"hf:org/cut", 1, 0, 1, 0, 9}).ok());
  put("packed/1.0.0.tgz.part");
  put("packed/1.0.0.new/model.safetensors");
  put("gone/" + kOld + "/model.gguf");
  fs::create_directories(home_.chunks());
  std::ofstream(home_.chunks() / "gone.json") << "{}";
  std::ofstream(home_.chunks() / "whole.json") << "{}";
  put("mine/model.gguf");  // a user's own folder
  put("note.txt");
  const std::vector<std::string> all = {
      "unfinished_download models/cut",
      "old_revision models/gone/" + kOld,
      "package models/packed/1.0.0.new",
      "package models/packed/1.0.0.tgz.part",
      "old_revision models/whole/" + kOld,
      "part_of_file models/whole/" + kNew + "/model.gguf.part",
      "part_of_file models/whole/" + kNew + "/model.gguf.part.json",
      "hashes chunks/gone.json"};
  EXPECT_THAT(find(), testing::UnorderedElementsAreArray(all));
  EXPECT_GE(total_bytes(*find_leftovers(home_, {})), 65'000);
  EXPECT_EQ(find_leftovers(home_, {})->at(0).ref, "hf:org/cut");
  EXPECT_THAT(remove(), testing::UnorderedElementsAreArray(all));
  EXPECT_THAT(find(), IsEmpty());
  EXPECT_TRUE(fs::exists(home_.models() / "whole" / kNew / "model.gguf"));
  EXPECT_TRUE(fs::exists(home_.models() / "mine" / "model.gguf"));
  EXPECT_TRUE(fs::exists(home_.models() / "note.txt"));
  EXPECT_TRUE(fs::exists(home_.chunks() / "whole.json"));
  EXPECT_FALSE(fs::exists(home_.models() / "cut"));
  EXPECT_FALSE(fs::exists(home_.models() / "gone"));
  EXPECT_FALSE(fs::exists(home_.models() / "whole" / "download.lock"));
}

TEST_F(LeftoversTest, WhatIsUsedIsNoneOfIt) {
  put("busy/" + kOld + "/model.gguf.part");
  const auto lock = base::FileLock::acquire(home_.models() / "busy" / kDownloadLockName, {});
  ASSERT_TRUE(lock.ok());
  put("runs/" + kOld + "/model.gguf");  // a worker began before the catalog moved on
  put("runs/" + kNew + "/model.gguf");
  put_entry("runs", home_.models() / "runs" / kNew / "model.gguf");
  // Another entry's files, in this one's folder.
  put("shared/" + kOld + "/model.gguf");
  put_entry("other", home_.models() / "shared" / kOld / "model.gguf");
  put("mended/" + kNew + "/a.safetensors.part");
  put_entry("mended", home_.models() / "mended" / kNew);
  const auto repair =
      base::FileLock::acquire(home_.models() / "mended" / kNew / "a.safetensors.lock", {});
  ASSERT_TRUE(repair.ok());
  EXPECT_THAT(find({"runs"}), IsEmpty());
  EXPECT_THAT(remove({"runs"}), IsEmpty());
  EXPECT_THAT(find(), ElementsAre("old_revision models/runs/" + kOld)) << "once it has ended";
}

TEST_F(LeftoversTest, LinksAreNotFollowed) {
  const fs::path precious = folder_ / "precious";
  fs::create_directories(precious / kOld);
  std::ofstream(precious / kOld / "x.part") << "keep";
  fs::create_directories(home_.models() / "linked");
  fs::create_directory_symlink(precious / kOld, home_.models() / "linked" / kOld);
  fs::create_directory_symlink(precious, home_.models() / "whole-link");
  (void)remove();
  EXPECT_TRUE(fs::exists(precious / kOld / "x.part"));
}

}  // namespace
}  // namespace llorch::catalog
