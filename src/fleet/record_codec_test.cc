// Ids, positions and records: every text and every byte string back to the same value, and no bytes
// that break the reader.
#include "fleet/record_codec.h"

#include <gtest/gtest.h>

#include "fleet/dice.h"

namespace llorch::fleet {
namespace {

std::vector<Record> samples() {
  SubmittedRecord submitted{.key = {7},
                            .kind = JobKind::Chat,
                            .cls = JobClass::Batch,
                            .holder = Holder::Followed,
                            .model = {1, 2},
                            .model_name = "tiny",
                            .mode = Mode::Pin,
                            .pin_host = "gpu1",
                            .labels = {"fast-disk", "eu"},
                            .seed = ~std::uint64_t{0},
                            .submitted_ms = 1'700'000'000'000,
                            .deadline_ms = 1'700'000'060'000,
                            .prompt_tokens = 12,
                            .max_tokens = 99,
                            .choices = 3,
                            .body_bytes = 4096,
                            .body_hash = {1, 2, 3, 4},
                            .idempotency = "once",
                            .correlation_id = "c-1"};
  return {submitted,
          DispatchedRecord{3, 1, "gpu1", "worker-cuda-0", "why", 17},
          StartedRecord{3, 1, 12, 8, 18},
          LostRecord{3, 1, LossCause::Hang, 1, 2, 19},
          StopRecord{StopCause::Deadline, 20},
          EndedRecord{JobState::Failed, ErrorCode::DeadlineExceeded, "too late", "", 12, 5, 2, -1,
                      21, "a refused"}};
}

TEST(RecordCodec, EveryRecordComesBackTheSame) {
  for (const Record& record : samples()) {
    const std::string bytes = encode_record(record);
    const Result<Record> back = decode_record(record_kind(record), bytes);
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(back->index(), record.index());
    EXPECT_EQ(encode_record(*back), bytes);
  }
}

TEST(RecordCodec, FieldsArriveInTheirPlaces) {
  const Result<Record> back = decode_record(0, encode_record(samples()[0]));
  ASSERT_TRUE(back.ok());
  const auto& record = std::get<SubmittedRecord>(*back);
  EXPECT_EQ(record.key.value, 7U);
  EXPECT_EQ(record.pin_host, "gpu1");
  EXPECT_EQ(record.labels, (std::vector<std::string>{"fast-disk", "eu"}));
  EXPECT_EQ(record.seed, ~std::uint64_t{0});
  EXPECT_EQ(record.body_hash[3], 4U);
  EXPECT_EQ(record.correlation_id, "c-1");
  const Result<Record> ended = decode_record(5, encode_record(samples()[5]));
  ASSERT_TRUE(ended.ok());
  EXPECT_EQ(std::get<EndedRecord>(*ended).device_ms, -1);
  EXPECT_EQ(std::get<EndedRecord>(*ended).why, "a refused");
}

TEST(RecordCodec, AShorterRecordOfAnOlderProgramKeepsDefaults) {
  const std::string bytes = encode_record(samples()[4]);
  const Result<Record> back = decode_record(4, std::string_view(bytes).substr(0, 1));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(std::get<StopRecord>(*back).cause, StopCause::Deadline);
  EXPECT_EQ(std::get<StopRecord>(*back).at_ms, 0);
}

TEST(RecordCodec, ALongerRecordOfANewerProgramIsReadAsFarAsKnown) {
  for (const Record& record : samples()) {
    const Result<Record> back = decode_record(record_kind(record), encode_record(record) + "more");
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(encode_record(*back), encode_record(record));
  }
}

TEST(RecordCodec, RefusesWhatBreaksTheForm) {
  EXPECT_FALSE(decode_record(6, "").ok());
  EXPECT_FALSE(decode_record(4, "\x09").ok()) << "no such cause";
  EXPECT_FALSE(decode_record(4, std::string_view("\0\x01\x02", 3)).ok()) << "half a number";
  EXPECT_FALSE(decode_ids(std::string_view("\xff\xff\xff\xff", 4)).ok());
  EXPECT_FALSE(decode_position(std::string_view("\x02\0\0\0\x01\0\0\0", 8)).ok());
}

TEST(RecordCodec, SurvivesEveryCutAndManyFlippedBytes) {
  Dice random;
  SCOPED_TRACE(random.trace());
  for (const Record& record : samples()) {
    const std::string bytes = encode_record(record);
    for (std::size_t cut = 0; cut <= bytes.size(); ++cut)
      (void)decode_record(record_kind(record), std::string_view(bytes).substr(0, cut));
    for (int i = 0; i < 2000; ++i) {
      std::string broken = bytes;
      broken[random() % broken.size()] = static_cast<char>(random());
      const Result<Record> back = decode_record(record_kind(record), broken);
      if (back.ok()) {
        EXPECT_EQ(back->index(), record.index());
      }
    }
  }
}

TEST(RecordCodec, IdsComeBack) {
  const std::vector<ChoiceIds> ids = {{0, {1, -2, 3}}, {2, {}}};
  const auto back = decode_ids(encode_ids(ids));
  ASSERT_TRUE(back.ok());
  ASSERT_EQ(back->size(), 2U);
  EXPECT_EQ((*back)[0].ids, ids[0].ids);
  EXPECT_EQ((*back)[1].choice, 2U);
  const auto position = decode_position(encode_position({{12, 9, 30}}));
  ASSERT_TRUE(position.ok());
  EXPECT_EQ(text(*position), "12.9.30");
}

TEST(FleetIds, TextsHaveOneSpelling) {
  const JobId job{0x0123456789abcdefU, 0xfedcba9876543210U};
  EXPECT_EQ(text(job), "0123456789abcdeffedcba9876543210");
  EXPECT_EQ(job_id_from_text(text(job)), job);
  EXPECT_FALSE(job_id_from_text("0123456789ABCDEFfedcba9876543210"));
  EXPECT_FALSE(job_id_from_text("0123"));
  const AttemptId attempt{job, 41, 2};
  EXPECT_EQ(text(attempt), text(job) + ".41.2");
  EXPECT_EQ(key_id_from_text(text(KeyId{255})), KeyId{255});
}

TEST(FleetIds, PositionsAreComparedChoiceByChoice) {
  EXPECT_EQ(text(Position{}), "0");
  EXPECT_EQ(position_from_text("0"), Position{});
  EXPECT_EQ(text(*position_from_text("12.9.30")), "12.9.30");
  EXPECT_TRUE((Position{{3, 4}}).covers(Position{{3}}));
  EXPECT_FALSE((Position{{3}}).covers(Position{{3, 1}}));
  EXPECT_EQ((Position{{3, 4}}).total(), 7U);
  for (const char* wrong : {"", ".", "1.", "-1", "01", "1..2", "4294967296", "1 "})
    EXPECT_FALSE(position_from_text(wrong)) << wrong;
  std::string many = "1";
  for (std::size_t i = 1; i < kChoicesMax; ++i) many += ".1";
  EXPECT_TRUE(position_from_text(many));
  EXPECT_FALSE(position_from_text(many + ".1"));
}

TEST(Records, NamesGoBothWays) {
  for (const char* word : {"queued", "dispatched", "running", "completed", "failed", "cancelled"}) {
    ASSERT_TRUE(job_state_from_name(word)) << word;
    EXPECT_EQ(name(*job_state_from_name(word)), word);
  }
  EXPECT_EQ(name(*job_class_from_name("batch")), "batch");
  EXPECT_EQ(name(*mode_from_name("spread")), "spread");
  EXPECT_FALSE(mode_from_name("Spread"));
}

}  // namespace
}  // namespace llorch::fleet
