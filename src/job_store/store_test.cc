// The promises of Store, for any of them: a store is made by make_store and reopened by reopen.
#include "job_store/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>

#include "base/mutex.h"
#include "job_store/sqlite_store.h"
#include "job_store/test_jobs.h"
#include "support/test_paths.h"

namespace llorch::job_store {
namespace {

using fleet::Bucket;
using fleet::JobState;
using fleet::WriteOutcome;
using ::testing::HasSubstr, ::testing::SizeIs;

class SqliteFixture {
 public:
  Result<std::unique_ptr<Store>> open(OnWritten on_written) {
    return open_sqlite_store({.file = folder_ / "llorch.db"}, std::move(on_written));
  }
  std::filesystem::path backup_file() const { return folder_ / "backup"; }

 private:
  test::TempDir folder_;
};

template <class Fixture>
class StoreTest : public ::testing::Test {
 protected:
  void SetUp() override { reopen(); }

  void reopen() {
    store_.reset();
    Result<std::unique_ptr<Store>> store =
        fixture_.open([this](Written written) { heard_.add(std::move(written)); });
    ASSERT_TRUE(store.ok()) << store.error().message;
    store_ = store.take();
  }

  // Appends eagerly and waits for the outcome.
  WriteOutcome append(const fleet::JobId& job, std::uint32_t seq, fleet::Record record,
                      std::string body = {}) {
    fleet::JobWrite write{job, seq, std::move(record), true, nullptr};
    if (seq == 0) write.body = std::make_shared<const std::string>(std::move(body));
    const std::size_t before = heard_.num_records();
    EXPECT_TRUE(store_->append(std::move(write)));
    return heard_.wait_for_record(before);
  }

  WriteOutcome append_answer(fleet::AnswerGroup group) {
    const std::size_t before = heard_.num_answers();
    EXPECT_TRUE(store_->append_answer(std::move(group)));
    return heard_.wait_for_answer(before);
  }

  std::vector<fleet::JobRecords> open_jobs() {
    std::vector<fleet::JobRecords> jobs;
    const Status loaded =
        store_->load_open([&](fleet::JobRecords job) { jobs.push_back(std::move(job)); });
    EXPECT_TRUE(loaded.ok()) << loaded.error().message;
    return jobs;
  }

  Fixture fixture_;
  Heard heard_;
  std::unique_ptr<Store> store_;
};

using Stores = ::testing::Types<SqliteFixture>;
TYPED_TEST_SUITE(StoreTest, Stores);

TYPED_TEST(StoreTest, AJobIsItsRecordsInOrder) {
  const fleet::JobId job = job_id(1);
  EXPECT_EQ(this->append(job, 0, submitted(7), "{\"prompt\":\"x\"}"), WriteOutcome::Durable);
  EXPECT_EQ(this->append(job, 1,
                         fleet::DispatchedRecord{
                             .boot = 3, .attempt = 1, .host = "beta", .worker = {}, .why = {}}),
            WriteOutcome::Durable);
  this->reopen();
  const Result<fleet::JobRecords> read = this->store_->read_job(job);
  ASSERT_TRUE(read.ok()) << read.error().message;
  ASSERT_THAT(read->records, SizeIs(2));
  EXPECT_EQ(std::get<fleet::SubmittedRecord>(read->records[0]).key.value, 7U);
  EXPECT_EQ(std::get<fleet::DispatchedRecord>(read->records[1]).host, "beta");
  EXPECT_EQ(*this->store_->read_body(job), "{\"prompt\":\"x\"}");
  EXPECT_EQ(this->store_->read_job(job_id(2)).error().code, ErrorCode::NotFound);
  EXPECT_EQ(this->store_->read_body(job_id(2)).error().code, ErrorCode::NotFound);
}

TYPED_TEST(StoreTest, AppendsOnlyAtTheExpectedNumber) {
  const fleet::JobId job = job_id(1);
  EXPECT_EQ(this->append(job, 1, fleet::StartedRecord{}), WriteOutcome::Conflict) << "no such job";
  EXPECT_EQ(this->append(job, 0, fleet::StartedRecord{}), WriteOutcome::Conflict)
      << "not a submission";
  EXPECT_EQ(this->append(job, 0, submitted(7)), WriteOutcome::Durable);
  EXPECT_EQ(this->append(job, 0, submitted(7)), WriteOutcome::Conflict) << "twice";
  EXPECT_EQ(this->append(job, 2, fleet::StartedRecord{}), WriteOutcome::Conflict) << "a gap";
  EXPECT_EQ(this->append(job, 1, fleet::StartedRecord{}), WriteOutcome::Durable);
  EXPECT_EQ(this->append(job, 1, fleet::StartedRecord{}), WriteOutcome::Conflict) << "again";
  EXPECT_EQ(this->append(job, 2, submitted(7)), WriteOutcome::Conflict) << "submitted once";
}

TYPED_TEST(StoreTest, AJobEndsOnce) {
  const fleet::JobId job = job_id(1);
  this->append(job, 0, submitted(7));
  EXPECT_THAT(this->open_jobs(), SizeIs(1));
  EXPECT_EQ(this->append(job, 1, ended(JobState::Cancelled)), WriteOutcome::Durable);
  EXPECT_EQ(this->append(job, 2, ended(JobState::Completed)), WriteOutcome::Conflict);
  EXPECT_EQ(this->append(job, 2, fleet::StopRecord{}), WriteOutcome::Conflict);
  EXPECT_THAT(this->open_jobs(), SizeIs(0));
  EXPECT_THAT(this->store_->read_job(job)->records, SizeIs(2));
}

TYPED_TEST(StoreTest, OpenJobsComeBackInTheirOrder) {
  for (std::uint64_t i = 0; i < 20; ++i) this->append(job_id(100 - i), 0, submitted(i));
  for (std::uint64_t i = 0; i < 20; i += 2)
    this->append(job_id(100 - i), 1, ended(JobState::Completed));
  this->reopen();
  const std::vector<fleet::JobRecords> jobs = this->open_jobs();
  ASSERT_THAT(jobs, SizeIs(10));
  for (std::size_t i = 0; i < jobs.size(); ++i) EXPECT_EQ(jobs[i].job, job_id(99 - 2 * i));
}

TYPED_TEST(StoreTest, LazyWritesBecomeDurableByThemselves) {
  EXPECT_TRUE(this->store_->append({job_id(1), 0, submitted(7), false, nullptr}));
  EXPECT_EQ(this->heard_.wait_for_record(0), WriteOutcome::Durable);
}

TYPED_TEST(StoreTest, WhatWaitsIsWrittenAtTheEnd) {
  EXPECT_TRUE(this->store_->append({job_id(1), 0, submitted(7), false, nullptr}));
  EXPECT_TRUE(this->store_->append_answer(group(job_id(1), 0, {1, 2}, "a")));
  this->reopen();
  EXPECT_EQ(this->heard_.num_records(), 1U);
  EXPECT_THAT(this->open_jobs(), SizeIs(1));
  EXPECT_EQ(this->open_jobs()[0].stored.total(), 2U);
}

TYPED_TEST(StoreTest, AnAnswerHasNoHolesAndNothingTwice) {
  const fleet::JobId job = job_id(1);
  this->append(job, 0, submitted(7));
  EXPECT_EQ(this->append_answer(group(job, 0, {11, 12}, "one ")), WriteOutcome::Durable);
  EXPECT_EQ(this->append_answer(group(job, 0, {11, 12}, "one ")), WriteOutcome::Conflict);
  EXPECT_EQ(this->append_answer(group(job, 3, {14}, "three ")), WriteOutcome::Conflict);
  EXPECT_EQ(this->append_answer(group(job, 2, {13}, "two ")), WriteOutcome::Durable);
  EXPECT_EQ(this->append_answer(group(job, 3, {}, "end")), WriteOutcome::Durable);
  EXPECT_EQ(this->append_answer(group(job_id(9), 0, {1}, "x")), WriteOutcome::Conflict);
  this->reopen();
  EXPECT_EQ(fleet::text(this->store_->read_job(job)->stored), "3");
  const auto all = this->store_->read_answer(job, {});
  ASSERT_TRUE(all.ok());
  ASSERT_THAT(*all, SizeIs(3));
  EXPECT_EQ((*all)[0].ids[0].ids, (std::vector<std::int32_t>{11, 12}));
  EXPECT_EQ((*all)[0].events + (*all)[1].events + (*all)[2].events, "one two end");
  EXPECT_EQ((*all)[1].attempt.number, 1U);
  EXPECT_EQ(fleet::text((*all)[1].from), "2");
  EXPECT_THAT(*this->store_->read_answer(job, fleet::Position{{1}}), SizeIs(3))
      << "in the middle of a group";
  EXPECT_THAT(*this->store_->read_answer(job, fleet::Position{{2}}), SizeIs(2));
  EXPECT_THAT(*this->store_->read_answer(job, fleet::Position{{3}}), SizeIs(1))
      << "events without ids";
  this->append(job, 1, ended(JobState::Completed));
  EXPECT_EQ(this->append_answer(group(job, 3, {15}, "late")), WriteOutcome::Conflict);
}

TYPED_TEST(StoreTest, AnAnswerOfSeveralChoicesCountsEach) {
  const fleet::JobId job = job_id(1);
  this->append(job, 0, submitted(7));
  fleet::AnswerGroup first = group(job, 0, {1, 2}, "a");
  first.ids.push_back({2, {9}});
  EXPECT_EQ(this->append_answer(first), WriteOutcome::Durable);
  EXPECT_EQ(fleet::text(this->store_->read_job(job)->stored), "2.0.1");
  fleet::AnswerGroup second = group(job, 0, {}, "b");
  second.from = fleet::Position{{2, 0, 1}};
  second.ids = {{1, {5, 6}}};
  EXPECT_EQ(this->append_answer(second), WriteOutcome::Durable);
  EXPECT_EQ(fleet::text(this->store_->read_job(job)->stored), "2.2.1");
}

TYPED_TEST(StoreTest, AWordStandsForOneJobOfItsKeyForADay) {
  const auto with_word = [](std::uint64_t key, std::int64_t at_ms) {
    fleet::SubmittedRecord record = submitted(key);
    record.idempotency = "again; DROP TABLE job";
    record.submitted_ms = at_ms;
    return record;
  };
  const std::string word = "again; DROP TABLE job";
  EXPECT_EQ(this->append(job_id(1), 0, with_word(7, 1000)), WriteOutcome::Durable);
  EXPECT_EQ(this->append(job_id(2), 0, with_word(7, 2000)), WriteOutcome::Conflict);
  EXPECT_EQ(this->store_->read_job(job_id(2)).error().code, ErrorCode::NotFound);
  EXPECT_EQ(this->append(job_id(3), 0, with_word(8, 2000)), WriteOutcome::Durable) << "another key";
  EXPECT_EQ(*this->store_->find_idempotent({7}, word, 2000), job_id(1));
  EXPECT_EQ(*this->store_->find_idempotent({8}, word, 2000), job_id(3));
  EXPECT_EQ(*this->store_->find_idempotent({7}, "other", 2000), std::nullopt);
  const std::int64_t next_day = 1000 + kIdempotencyMs;
  EXPECT_EQ(*this->store_->find_idempotent({7}, word, next_day - 1), job_id(1));
  EXPECT_EQ(*this->store_->find_idempotent({7}, word, next_day), std::nullopt);
  EXPECT_EQ(this->append(job_id(4), 0, with_word(7, next_day)), WriteOutcome::Durable);
  EXPECT_EQ(*this->store_->find_idempotent({7}, word, next_day), job_id(4));
}

TYPED_TEST(StoreTest, EntriesChangeOnlyFromTheRevisionThatWasSeen) {
  Store& store = *this->store_;
  const Result<fleet::Revision> made = store.put(Bucket::Hosts, "beta", "one", fleet::Revision{0});
  ASSERT_TRUE(made.ok()) << made.error().message;
  const Result<fleet::Revision> refused =
      store.put(Bucket::Hosts, "beta", "two", fleet::Revision{0});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::Conflict);
  EXPECT_THAT(refused.error().message, HasSubstr("look again"));
  const Result<fleet::Revision> changed = store.put(Bucket::Hosts, "beta", "two", *made);
  ASSERT_TRUE(changed.ok());
  EXPECT_GT(*changed, *made);
  EXPECT_TRUE(store.put(Bucket::Keys, "beta", std::string("\0\xff", 2), std::nullopt).ok());
  EXPECT_TRUE(store.put(Bucket::Hosts, "alpha", "", std::nullopt).ok());
  this->reopen();
  const Result<std::vector<fleet::Entry>> hosts = this->store_->list(Bucket::Hosts);
  ASSERT_TRUE(hosts.ok());
  ASSERT_THAT(*hosts, SizeIs(2));
  EXPECT_EQ((*hosts)[0].key, "alpha");
  EXPECT_EQ((*hosts)[1].value, "two");
  EXPECT_EQ((*hosts)[1].revision, *changed);
  EXPECT_EQ((*this->store_->list(Bucket::Keys))[0].value, std::string("\0\xff", 2));
}

TYPED_TEST(StoreTest, ErasedEntriesAreGoneAndTheirRevisionsAreNotGivenAgain) {
  Store& store = *this->store_;
  const Result<fleet::Revision> made = store.put(Bucket::Keys, "a", "1", std::nullopt);
  EXPECT_EQ(store.erase(Bucket::Keys, "a", *made + 1).error().code, ErrorCode::Conflict);
  EXPECT_TRUE(store.erase(Bucket::Keys, "a", *made).ok());
  EXPECT_TRUE(store.erase(Bucket::Keys, "a", std::nullopt).ok());
  EXPECT_THAT(*store.list(Bucket::Keys), SizeIs(0));
  this->reopen();
  EXPECT_GT(*this->store_->put(Bucket::Keys, "a", "2", fleet::Revision{0}), *made);
}

TYPED_TEST(StoreTest, KeptEntriesRideAlong) {
  EXPECT_TRUE(this->store_->keep(Bucket::Speeds, "m", "1"));
  EXPECT_TRUE(this->store_->keep(Bucket::Speeds, "m", "2"));
  this->reopen();
  EXPECT_EQ((*this->store_->list(Bucket::Speeds))[0].value, "2");
}

TYPED_TEST(StoreTest, EveryBootHasAHigherNumber) {
  const Result<fleet::Boot> first = this->store_->begin_boot();
  ASSERT_TRUE(first.ok());
  this->reopen();
  const Result<fleet::Boot> second = this->store_->begin_boot();
  ASSERT_TRUE(second.ok());
  EXPECT_GT(*second, *first);
}

TYPED_TEST(StoreTest, ANewStoreBeginsAboveTheBootsOfOneThatWasLost) {
  const auto wall_ms = [] {
    return static_cast<fleet::Boot>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                        std::chrono::system_clock::now().time_since_epoch())
                                        .count());
  };
  const fleet::Boot before = wall_ms();
  const Result<fleet::Boot> boot = this->store_->begin_boot();
  ASSERT_TRUE(boot.ok());
  EXPECT_GE(*boot, before);
  EXPECT_LE(*boot, wall_ms());
}

TYPED_TEST(StoreTest, ListsJobsNewestFirstInPages) {
  for (std::uint64_t i = 1; i <= 10; ++i) {
    fleet::SubmittedRecord record = submitted(i % 2);
    record.submitted_ms = static_cast<std::int64_t>(i) * 100;
    this->append(job_id(i), 0, record);
  }
  this->append(job_id(3), 1, ended(JobState::Failed));
  this->append(job_id(5), 1, ended(JobState::Completed));
  const auto ids = [](const fleet::JobPage& page) {
    std::vector<std::uint64_t> found;
    for (const fleet::JobRecords& job : page.jobs) found.push_back(job.job.low);
    return found;
  };
  fleet::JobFilter filter;
  filter.limit = 4;
  const Result<fleet::JobPage> first = this->store_->list_jobs(filter, {});
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_EQ(ids(*first), (std::vector<std::uint64_t>{10, 9, 8, 7}));
  ASSERT_TRUE(first->next);
  const Result<fleet::JobPage> second = this->store_->list_jobs(filter, *first->next);
  EXPECT_EQ(ids(*second), (std::vector<std::uint64_t>{6, 5, 4, 3}));
  const Result<fleet::JobPage> third = this->store_->list_jobs(filter, *second->next);
  EXPECT_EQ(ids(*third), (std::vector<std::uint64_t>{2, 1}));
  EXPECT_FALSE(third->next);
  EXPECT_EQ(ids(*this->store_->list_jobs({.states = {JobState::Failed, JobState::Completed}}, {})),
            (std::vector<std::uint64_t>{5, 3}));
  EXPECT_EQ(
      ids(*this->store_->list_jobs({.key = fleet::KeyId{1}, .states = {JobState::Running}}, {})),
      (std::vector<std::uint64_t>{9, 7, 1}));
  EXPECT_EQ(ids(*this->store_->list_jobs(
                {.states = {}, .submitted_from_ms = 900, .submitted_until_ms = 1000}, {})),
            (std::vector<std::uint64_t>{10, 9}));
}

TYPED_TEST(StoreTest, TextsLeaveAnHourAfterTheEndAndJobsAfterAMonth) {
  constexpr std::int64_t kHour = 3'600'000;
  for (std::uint64_t i = 1; i <= 3; ++i) this->append(job_id(i), 0, submitted(7), "body");
  for (std::uint64_t i = 1; i <= 3; ++i) this->append_answer(group(job_id(i), 0, {1}, "text"));
  this->append(job_id(1), 1, ended(JobState::Completed, 1000));
  this->append(job_id(2), 1, ended(JobState::Completed, 2000));
  const auto forget_all = [&](Retention retention) {
    for (;;) {
      const Result<bool> more = this->store_->forget(retention);
      ASSERT_TRUE(more.ok()) << more.error().message;
      if (!*more) return;
    }
  };
  forget_all({.now_ms = 1000 + kHour});
  EXPECT_THAT(*this->store_->read_answer(job_id(1), {}), SizeIs(0));
  EXPECT_EQ(this->store_->read_body(job_id(1)).error().code, ErrorCode::NotFound);
  EXPECT_THAT(*this->store_->read_answer(job_id(2), {}), SizeIs(1));
  EXPECT_EQ(*this->store_->read_body(job_id(2)), "body");
  EXPECT_TRUE(this->store_->read_job(job_id(1)).ok());
  forget_all({.now_ms = 1000 + 30 * 24 * kHour});
  EXPECT_EQ(this->store_->read_job(job_id(1)).error().code, ErrorCode::NotFound);
  EXPECT_TRUE(this->store_->read_job(job_id(2)).ok());
  EXPECT_EQ(*this->store_->read_body(job_id(3)), "body") << "a live job is kept whole, however old";
  EXPECT_THAT(*this->store_->read_answer(job_id(3), {}), SizeIs(1));
}

TYPED_TEST(StoreTest, TheOldestLeaveWhereThereIsTooMuch) {
  for (std::uint64_t i = 1; i <= 30; ++i) {
    this->append(job_id(i), 0, submitted(7), std::string(1000, 'x'));
    this->append(job_id(i), 1, ended(JobState::Completed, static_cast<std::int64_t>(i)));
  }
  const Retention retention{.now_ms = 100, .texts_bytes = 10'000, .jobs_max = 20, .slice_rows = 4};
  int num_slices = 0;
  for (Result<bool> more = true; more.ok() && *more; ++num_slices)
    more = this->store_->forget(retention);
  EXPECT_GT(num_slices, 3) << "in slices";
  EXPECT_EQ(this->store_->list_jobs({}, {})->jobs.size(), 20U);
  EXPECT_FALSE(this->store_->read_body(job_id(20)).ok());
  EXPECT_TRUE(this->store_->read_body(job_id(21)).ok());
}

TYPED_TEST(StoreTest, ABackupIsWholeWhileWritesGoOn) {
  for (std::uint64_t i = 1; i <= 50; ++i) this->append(job_id(i), 0, submitted(7), "body");
  for (std::uint64_t i = 51; i <= 500; ++i)
    EXPECT_TRUE(this->store_->append({job_id(i), 0, submitted(7), true, nullptr}));
  const Status made = this->store_->backup(this->fixture_.backup_file());
  ASSERT_TRUE(made.ok()) << made.error().message;
  const Status again = this->store_->backup(this->fixture_.backup_file());
  ASSERT_FALSE(again.ok());
  EXPECT_THAT(again.error().message, HasSubstr("is there already"));
  const Status nowhere = this->store_->backup(this->fixture_.backup_file() / "x" / "copy.db");
  ASSERT_FALSE(nowhere.ok());
  EXPECT_EQ(nowhere.error().code, ErrorCode::NotFound);
  EXPECT_THAT(nowhere.error().message, HasSubstr("there is no folder"));
}

}  // namespace
}  // namespace llorch::job_store
