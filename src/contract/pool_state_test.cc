#include "contract/pool_state.h"

#include <gtest/gtest.h>

#include <string>

#include "base/digest.h"

namespace llorch::contract {
namespace {

const std::string kShaA(64, 'a');
const std::string kShaB(64, 'b');

PoolState full_state() {
  PoolState state;
  state.pool_id = "pool-1";
  state.features = {"relay", "boot"};
  state.pool_start = 1'700'000'000'000;
  state.revision = 1'700'000'000'007;
  state.labels = {"zone=attic"};
  state.host.hostname = "attic";
  state.devices = {{0, "cpu", "a CPU", 1LL << 34, 1LL << 33, 0}};
  state.models = {{"m", "M", std::string(32, 'a'), true, {"cpu"}, 10, 20, 0, 2048}};
  state.known = {{"k", "K", std::string(32, 'c'), false, {"cpu"}, 10, 0, 10, 0}};
  PoolWorker worker;
  worker.id = "worker-cpu-0";
  worker.start = 4'000'000'000U;
  worker.model_hash = std::string(32, 'a');
  worker.build = "0.1.0+ab";
  worker.ready_in_ms = 12;
  state.workers = {worker};
  state.speeds = {{"m",
                   std::string(32, 'a'),
                   "cpu",
                   0,
                   120.5,
                   {{1, 20}, {2, 15.25}},
                   300,
                   7,
                   "2026-01-02T03:04:05Z"}};
  return state;
}

TEST(PoolStateJson, BothWays) {
  const PoolState state = full_state();
  const Result<PoolState> read = parse_pool_state(json::Value(to_json(state)));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, state);
  EXPECT_TRUE(read->has_feature(kFeatureRelay));
  EXPECT_FALSE(read->has_feature(kFeatureSpeeds));
}

TEST(PoolStateJson, AnOlderPoolHasNoFeatures) {
  const Result<PoolState> read =
      parse_pool_state(json::Value(json::Object{{"pool_id", "old"}, {"workers", json::Array()}}));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->revision, 0U);
  EXPECT_FALSE(read->has_feature(kFeatureRelay));
  EXPECT_FALSE(parse_pool_state(json::Value(json::Object{{"workers", 1}})).ok());
}

TEST(ModelHash, IsThatOfTheContentsWhereverTheyLie) {
  ModelEntry one;
  one.id = "a";
  one.downloaded = true;
  one.path = "/models/a.gguf";
  one.files = {{.path = "a.gguf", .size = 1, .sha256 = kShaA}};
  ModelEntry elsewhere = one;
  elsewhere.id = "other";
  elsewhere.path = "/srv/x/b.gguf";
  elsewhere.files.front().path = "b.gguf";
  elsewhere.files.front().modified_ms = 7;
  EXPECT_EQ(model_hash(one, "here"), kShaA.substr(0, 32));
  EXPECT_EQ(model_hash(one, "here"), model_hash(elsewhere, "there"));
}

TEST(ModelHash, OfAFolderGoesOverNamesAndHashesInOrder) {
  ModelEntry folder;
  folder.id = "f";
  folder.downloaded = true;
  folder.path = "/models/f";
  folder.files = {{.path = "b", .sha256 = kShaB}, {.path = "a", .sha256 = kShaA}};
  const std::string hash = model_hash(folder, "here");
  EXPECT_EQ(hash, base::sha256_hex("a " + kShaA + "\nb " + kShaB + "\n").substr(0, 32));
  std::swap(folder.files[0], folder.files[1]);
  EXPECT_EQ(model_hash(folder, "there"), hash);
  folder.files[0].sha256 = kShaB;
  EXPECT_NE(model_hash(folder, "here"), hash);
}

TEST(ModelHash, WhatNobodyHasSeenIsCalledAfterItsPlaceOrSource) {
  ModelEntry entry;
  entry.id = "x";
  entry.downloaded = true;
  entry.path = "/models/x.gguf";
  entry.files = {{.path = "x.gguf", .size = 5}};
  EXPECT_NE(model_hash(entry, "here"), model_hash(entry, "there"));
  entry.downloaded = false;
  entry.path.clear();
  entry.files.clear();
  entry.repo = "hf:org/repo";
  EXPECT_EQ(model_hash(entry, "here"), model_hash(entry, "there"));
  ModelEntry builtin;
  builtin.path = kBuiltinModel;
  EXPECT_EQ(model_hash(builtin, "here"), model_hash(builtin, "there"));
  EXPECT_EQ(model_hash(builtin, "here").size(), 32U);
}

TEST(Labels, AreShortAndPlain) {
  for (const char* good : {"gpu", "zone=attic", "a/b.c-d_e", "0"}) EXPECT_TRUE(is_label(good));
  for (const std::string& bad : {std::string(), std::string("a b"), std::string("ü"),
                                 std::string("a\n"), std::string(65, 'x')})
    EXPECT_FALSE(is_label(bad)) << bad;
}

TEST(DeviceNumber, CountsGpusFromOne) {
  EXPECT_EQ(device_number("cpu", 3), 0);
  EXPECT_EQ(device_number("cuda", 0), 1);
  EXPECT_EQ(device_number("cuda", 3), 4);
}

}  // namespace
}  // namespace llorch::contract
