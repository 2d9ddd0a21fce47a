#include "catalog/trust.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "catalog/describe.h"
#include "catalog/model_catalog.h"
#include "catalog/registry.h"
#include "catalog/test_models.h"
#include "catalog/verify.h"
#include "fetch/chunks.h"

namespace llorch::catalog {
namespace {

namespace fs = std::filesystem;
using contract::ModelEntry;
using testing::HasSubstr;

class TrustTest : public CatalogHomeTest {
 protected:
  TrustTest() { EXPECT_TRUE(register_model(catalog, {.id = "mine", .path = dir / "files"}).ok()); }

  Result<std::string> trust() { return trust_model(home, *catalog.find("mine")); }
  VerifyReport verify() {
    Downloader downloader;
    downloader.home = home;
    VerifyRequest request;
    request.id = "mine";
    return *verify_model(downloader, request, {}, {});
  }
  std::string state() { return std::string(state_of(*catalog.find("mine"))); }

  // Another byte in the middle, size and time of change as before.
  void flip(std::int64_t offset) {
    const fs::path file = dir / "files/model.safetensors";
    const auto time = fs::last_write_time(file);
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(offset);
    const char before = static_cast<char>(stream.get());
    stream.seekp(offset);
    stream.put(static_cast<char>(before ^ 1));
    stream.close();
    fs::last_write_time(file, time);
  }
  // What the catalog notes is made to say that nothing changed: as when a disk rots by itself.
  void forget_the_change() {
    ASSERT_TRUE(catalog
                    .update([&](CatalogContent& content) {
                      for (contract::ModelFile& file : content.find("mine")->files)
                        note_stamp(*base::stamp_of(dir / "files" / file.path), file);
                      return ok_status();
                    })
                    .ok());
  }
};

TEST_F(TrustTest, SaysWhatItRestsOn) {
  EXPECT_THAT(*trust(), HasSubstr("never hashed here"));
  EXPECT_TRUE(verify().is_whole());
  EXPECT_THAT(*trust(), HasSubstr("1 others of 2 were hashed again now"));
  ModelEntry builtin;
  builtin.path = "builtin";
  EXPECT_EQ(*trust_model(home, builtin), "it is part of the program");
}

TEST_F(TrustTest, AFlippedByteIsFoundThoughSizeAndTimeAreKept) {
  EXPECT_TRUE(verify().is_whole());
  flip(200'000);
  EXPECT_EQ(state(), "changed");
  const Result<std::string> refused = trust();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::Conflict);
  EXPECT_THAT(refused.error().message, HasSubstr("is damaged (model.safetensors at byte 0)"));
  EXPECT_THAT(refused.error().message, HasSubstr("models verify mine --repair"));
  EXPECT_EQ(state(), "damaged") << "it is known from now on";
  EXPECT_THAT(trust().error().message, HasSubstr("as the last check found"));
  flip(200'000);
  EXPECT_THAT(*trust(), HasSubstr("were hashed now")) << "changed again: looked at again";
  EXPECT_EQ(state(), "ready");
}

TEST_F(TrustTest, RotThatNoTimeTellsIsFoundInTheSample) {
  EXPECT_TRUE(verify().is_whole());
  flip(300'000);
  forget_the_change();
  EXPECT_EQ(state(), "ready");
  EXPECT_THAT(trust().error().message, HasSubstr("is damaged"));
  EXPECT_EQ(state(), "damaged");
}

TEST_F(TrustTest, ATouchedFileIsHashedOnceMore) {
  EXPECT_TRUE(verify().is_whole());
  fs::permissions(dir / "files/model.safetensors", fs::perms::owner_read);
  EXPECT_EQ(state(), "changed");
  EXPECT_THAT(*trust(), HasSubstr("were hashed now, because files had changed"));
  EXPECT_EQ(state(), "ready");
  EXPECT_THAT(*trust(), HasSubstr("unchanged since"));
}

TEST_F(TrustTest, WhatChangedAndWasNeverHashedIsReadAgainFirst) {
  flip(200'000);
  EXPECT_EQ(trust().error().code, ErrorCode::Conflict);
  EXPECT_THAT(trust().error().message, HasSubstr("models update mine --downloaded true"));
  ASSERT_TRUE(update_model(catalog, "mine", {.downloaded = true}).ok());
  EXPECT_TRUE(trust().ok());
}

TEST_F(TrustTest, AnotherSizeAndMissingFilesAreRefused) {
  fs::resize_file(dir / "files/model.safetensors", 5000);
  EXPECT_THAT(trust().error().message, HasSubstr("has 5000 bytes, expected"));
  fs::remove(dir / "files/model.safetensors");
  EXPECT_EQ(trust().error().code, ErrorCode::NotFound);
}

TEST_F(TrustTest, ALargeChangedModelWaitsForVerify) {
  EXPECT_TRUE(verify().is_whole());
  ModelEntry entry = *catalog.find("mine");
  // As large as it says; nothing of it is read.
  fs::resize_file(dir / "files/model.safetensors", std::uintmax_t{300} << 20);
  entry.files[0].size = std::int64_t{300} << 20;
  const Result<std::string> refused = trust_model(home, entry);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("run `llorch-pool models verify mine` first"));
}

TEST_F(TrustTest, AModelInUseKeepsItsFilesAndItsName) {
  const FindUse used = [](std::string_view id) { return std::string(id) + " is run by worker-0"; };
  EXPECT_EQ(remove_model(catalog, home, "mine", false, used).error().code, ErrorCode::Conflict);
  EXPECT_EQ(update_model(catalog, "mine", {.path = "/elsewhere"}, used).error().message,
            "mine is run by worker-0");
  EXPECT_TRUE(update_model(catalog, "mine", {.name = "Mine"}, used).ok()) << "a name hurts nobody";
  EXPECT_TRUE(remove_model(catalog, home, "mine", false).ok());
}

}  // namespace
}  // namespace llorch::catalog
