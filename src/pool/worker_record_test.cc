#include "pool/worker_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "support/test_paths.h"

namespace llorch::pool {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr;

class WorkerRecordTest : public ::testing::Test {
 protected:
  WorkerRecordTest() {
    home_.state = folder_.path();
    std::filesystem::create_directories(home_.workers());
  }

  static WorkerRecord example() {
    WorkerRecord record;
    record.worker.id = "worker-cpu-3";
    record.worker.backend = "cpu";
    record.worker.model = "tiny";
    record.worker.started_at = "2026-01-02T03:04:05.678Z";
    record.worker.category = contract::ExitCategory::Hang;
    record.worker.reason = "made no token";
    record.worker.last_log_lines = {"one", "two é"};
    record.worker.planned.weights_bytes = 123;
    record.request = {.backend = "cpu", .model = "tiny", .context = 512, .kv_type = "q8_0"};
    record.mark = make_mark();
    record.keeper = {.pid = 4711, .start_ticks = 123456789, .boot_id = "a-boot"};
    record.port = 8003;
    record.port_tries = 2;
    record.model_bytes = std::int64_t{5} << 30;
    record.launch = {.program = "/usr/bin/llorch-cpud",
                     .arguments = {"--port", "8003", "--model", "/m/a b.gguf"},
                     .environment = {"A=1", "B="},
                     .log_file = "/logs/x.log",
                     .log_bytes_max = 1000,
                     .lock_file = "/state/pool.lock",
                     .orphan_patience = std::chrono::seconds(60),
                     .term_patience = std::chrono::seconds(30),
                     .confinement =
                         base::ConfinementRules{
                             {"/etc"}, {"/usr"}, {}, base::NetworkRules{{8000}, {9200}, false}},
                     .oom_counter = "/proc/vmstat"};
    return record;
  }

  std::filesystem::path write(std::string_view name, std::string_view text) const {
    std::ofstream(home_.workers() / name) << text;
    return home_.workers() / name;
  }

  test::TempDir folder_;
  base::Home home_;
};

TEST_F(WorkerRecordTest, ReadsWhatItWrote) {
  const WorkerRecord record = example();
  const std::filesystem::path file = record_file(home_, record.worker.id);
  ASSERT_TRUE(write_record(file, record).ok());
  const Result<WorkerRecord> read = read_record(file);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, record);
  EXPECT_THAT(find_records(home_), ElementsAre(file));
}

TEST_F(WorkerRecordTest, RefusesWhatItCannotTrust) {
  WorkerRecord record = example();
  const std::filesystem::path file = record_file(home_, record.worker.id);
  ASSERT_TRUE(write_record(file, record).ok());
  std::ifstream in(file);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const auto error_of = [&](std::string_view name, std::string_view content) {
    const Result<WorkerRecord> read = read_record(write(name, content));
    EXPECT_FALSE(read.ok()) << content;
    return read.ok() ? "" : read.error().message;
  };
  EXPECT_THAT(error_of("worker-cpu-0.json", text), HasSubstr("worker.id"));
  EXPECT_THAT(error_of("worker-cpu-3.json", "{}"), HasSubstr("version"));
  EXPECT_THAT(error_of("worker-cpu-3.json", R"({"version":2})"), HasSubstr("version 2"));
  EXPECT_THAT(error_of("worker-cpu-3.json", "[1]"), HasSubstr("an object"));
  for (const std::size_t bytes : {std::size_t{0}, text.size() / 2, text.size() - 3})
    error_of("worker-cpu-3.json", text.substr(0, bytes));
}

TEST_F(WorkerRecordTest, ANoteOfAnotherStartIsNoNote) {
  const std::filesystem::path file = record_file(home_, "worker-cpu-0");
  EXPECT_FALSE(read_exit_note(file, "mark-one").has_value());
  ASSERT_TRUE(write_note(file, ExitNote{.mark = "mark-one",
                                        .code = 3,
                                        .oom_kill = true,
                                        .orphaned = true,
                                        .start_error = "x",
                                        .ended_at = "t"})
                  .ok());
  ASSERT_TRUE(write_note(file, RunNote{"mark-one", {17, 18, "boot"}, "confined"}).ok());
  EXPECT_FALSE(read_exit_note(file, "mark-two").has_value());
  EXPECT_FALSE(read_run_note(file, "mark-two").has_value());
  const auto note = read_exit_note(file, "mark-one");
  ASSERT_TRUE(note.has_value());
  EXPECT_EQ(note->code, 3);
  EXPECT_TRUE(note->oom_kill && note->orphaned && !note->told && !note->ordered);
  const auto run = read_run_note(file, "mark-one");
  ASSERT_TRUE(run.has_value());
  EXPECT_EQ(run->process, (base::ProcessIdentity{17, 18, "boot"}));
  remove_notes(file);
  EXPECT_FALSE(read_exit_note(file, "mark-one").has_value());
}

TEST_F(WorkerRecordTest, FilesOfWritesThatWereCutOffGo) {
  write("worker-cpu-0.json", "{}");
  write("worker-cpu-0.run.json", "{}");
  write("worker-cpu-0.run.json.AbCdEf", "half");  // its keeper may be writing it now
  write("worker-cpu-0.json.AbCdEf", "half");
  write("worker-cpu-1.exit.json", "{}");
  write("worker-cpu-1.run.json.AbCdEf", "half");
  write("worker-cpu-2.json.bad", "x");
  remove_stray_notes(home_);
  std::vector<std::string> left;
  for (const auto& entry : std::filesystem::directory_iterator(home_.workers()))
    left.push_back(entry.path().filename().string());
  EXPECT_THAT(left, ::testing::UnorderedElementsAre("worker-cpu-0.json", "worker-cpu-0.run.json",
                                                    "worker-cpu-0.run.json.AbCdEf",
                                                    "worker-cpu-2.json.bad"));
}

}  // namespace
}  // namespace llorch::pool
