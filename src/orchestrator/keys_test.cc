#include "orchestrator/keys.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "base/thread.h"
#include "job_store/sqlite_store.h"
#include "support/test_paths.h"

namespace llorch::orchestrator {
namespace {

http::Request request_with(const std::string& bearer, bool from_loopback) {
  http::Request request;
  request.from_loopback = from_loopback;
  if (!bearer.empty()) request.headers.add("Authorization", "Bearer " + bearer);
  return request;
}

ErrorCode code_of(const Result<Caller>& caller) {
  EXPECT_FALSE(caller.ok());
  return caller.ok() ? ErrorCode::Internal : caller.error().code;
}

class Keys : public ::testing::Test {
 protected:
  Keys() {
    store = job_store::open_sqlite_store({.file = folder / "db"}, [](const job_store::Written&) {
            }).take();
    open();
  }
  void open() {
    ring = KeyRing::open(*store, [this](fleet::Event event) {
             const base::MutexLock lock(mutex);
             changes.push_back(std::get<fleet::KeyChanged>(event));
           }).take();
  }
  std::string add(std::string name, fleet::Scope scope = fleet::Scope::Infer) {
    fleet::KeyFacts facts;
    facts.name = std::move(name);
    facts.scope = scope;
    facts.models = {"tiny*"};
    facts.tokens_per_day = 5;
    auto made = ring->add(facts, 1000);
    EXPECT_TRUE(made.ok());
    return made.ok() ? made->key : std::string();
  }

  test::TempDir folder;
  std::unique_ptr<job_store::Store> store;
  std::unique_ptr<KeyRing> ring;
  base::Mutex mutex;  // of the changes, which any thread may hear
  std::vector<fleet::KeyChanged> changes;
};

TEST_F(Keys, LoopbackNeedsNoneAndOthersDo) {
  EXPECT_TRUE(ring->is_empty());
  const auto local = ring->authorize(request_with("", true), fleet::Scope::Admin);
  ASSERT_TRUE(local.ok());
  EXPECT_EQ(local->key.value, 0U);
  // Programs that always send something are nobody in particular.
  EXPECT_TRUE(ring->authorize(request_with("sk-anything", true), fleet::Scope::Admin).ok());
  EXPECT_EQ(code_of(ring->authorize(request_with("", false), fleet::Scope::Infer)),
            ErrorCode::Unauthorized);
  EXPECT_EQ(code_of(ring->authorize(request_with("sk-anything", false), fleet::Scope::Infer)),
            ErrorCode::Unauthorized);
}

TEST_F(Keys, AKeyIsKnownByItsSecretAndBoundToItsScope) {
  const std::string key = add("alice");
  EXPECT_TRUE(key.starts_with("llk_"));
  EXPECT_EQ(key.size(), 4U + 16 + 1 + 64);
  const auto caller = ring->authorize(request_with(key, false), fleet::Scope::Infer);
  ASSERT_TRUE(caller.ok());
  EXPECT_EQ(caller->name, "alice");
  EXPECT_EQ(code_of(ring->authorize(request_with(key, false), fleet::Scope::Admin)),
            ErrorCode::Forbidden);
  std::string wrong = key;
  wrong.back() = wrong.back() == '0' ? '1' : '0';
  EXPECT_EQ(code_of(ring->authorize(request_with(wrong, false), fleet::Scope::Infer)),
            ErrorCode::Unauthorized);
  // On loopback, too: a key that somebody meant is not silently nobody's.
  EXPECT_EQ(code_of(ring->authorize(request_with(wrong, true), fleet::Scope::Infer)),
            ErrorCode::Unauthorized);
  ASSERT_EQ(changes.size(), 1U);
  EXPECT_EQ(changes[0].facts.models, std::vector<std::string>{"tiny*"});
}

TEST_F(Keys, StaysAfterAStartWithoutTheKeyItself) {
  const std::string key = add("alice", fleet::Scope::Admin);
  const auto entries = store->list(fleet::Bucket::Keys);
  ASSERT_TRUE(entries.ok());
  ASSERT_EQ(entries->size(), 1U);
  EXPECT_EQ(entries->front().value.find(key.substr(21)), std::string::npos);
  open();
  EXPECT_TRUE(ring->is_good(key));
  const auto caller = ring->authorize(request_with(key, false), fleet::Scope::Admin);
  ASSERT_TRUE(caller.ok());
  ASSERT_EQ(ring->list().size(), 1U);
  EXPECT_EQ(ring->list()[0].facts.tokens_per_day, 5);
  EXPECT_EQ(ring->list()[0].created_ms, 1000);
}

TEST_F(Keys, ARevokedKeyIsGoodForNothingAtOnce) {
  const std::string key = add("alice");
  EXPECT_EQ(ring->add({.name = "alice"}, 0).error().code, ErrorCode::Conflict);
  ASSERT_TRUE(ring->revoke("alice").ok());
  EXPECT_FALSE(ring->is_good(key));
  EXPECT_TRUE(ring->is_empty());
  EXPECT_EQ(code_of(ring->authorize(request_with(key, false), fleet::Scope::Infer)),
            ErrorCode::Unauthorized);
  ASSERT_EQ(changes.size(), 2U);
  EXPECT_TRUE(changes[1].facts.revoked);
  EXPECT_EQ(ring->revoke("bob").error().code, ErrorCode::NotFound);
  EXPECT_TRUE(ring->add({.name = "alice"}, 0).ok());  // the name is free again
}

TEST_F(Keys, OfManyWhoWantANameAtOnceOneGetsIt) {
  std::atomic<int> made = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i) {
      threads.push_back(base::start_thread("test", [this, &made] {
        if (ring->add({.name = "me"}, 0).ok()) ++made;
      }));
    }
  }
  EXPECT_EQ(made, 1);
  EXPECT_EQ(ring->list().size(), 1U);
}

TEST_F(Keys, ANameIsRevokedWhereverItStands) {
  // As two starts of an older program may have left them.
  const std::string first = add("me");
  ASSERT_TRUE(ring->revoke("me").ok());
  const std::string second = add("me");
  auto entries = store->list(fleet::Bucket::Keys);
  ASSERT_TRUE(entries.ok());
  for (const fleet::Entry& entry : *entries) {
    std::string value = entry.value;
    const std::size_t at = value.find("\"revoked\":true");
    if (at != std::string::npos) value.replace(at, 14, "\"revoked\":false");
    ASSERT_TRUE(store->put(fleet::Bucket::Keys, entry.key, value, std::nullopt).ok());
  }
  open();
  ASSERT_TRUE(ring->is_good(first));
  ASSERT_TRUE(ring->is_good(second));
  ASSERT_TRUE(ring->revoke("me").ok());
  EXPECT_FALSE(ring->is_good(first));
  EXPECT_FALSE(ring->is_good(second));
}

}  // namespace
}  // namespace llorch::orchestrator
