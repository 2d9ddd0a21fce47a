#include "cli/download_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/utf8.h"

namespace llorch::cli {
namespace {

using contract::DownloadEvent;
using testing::HasSubstr;
using testing::Not;

DownloadEvent event_of(std::int64_t done, std::int64_t total) {
  DownloadEvent event;
  event.model = "tinyllama";
  event.file = "model-00003-of-00012.safetensors";
  event.files_done = 2;
  event.files_total = 19;
  event.bytes_done = done;
  event.bytes_total = total;
  event.bytes_per_second = 123'456'789;
  event.seconds_left = 35'999;
  return event;
}

TEST(ProgressLine, FitsATerminal) {
  for (const std::int64_t total :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{1023}, std::int64_t{1} << 30,
        (std::int64_t{1} << 40) - 1, std::int64_t{1} << 42}) {
    for (const std::int64_t done : {std::int64_t{0}, total / 3, total}) {
      const std::string line = progress_line(event_of(done, total));
      EXPECT_LE(base::count_scalars(line), 79U) << line;
      EXPECT_THAT(line, Not(HasSubstr("\n")));
    }
  }
}

TEST(ProgressLine, SaysHowFarHowFastAndHowLong) {
  DownloadEvent event = event_of(std::int64_t{512} << 20, std::int64_t{1} << 30);
  event.seconds_left = 125;
  const std::string line = progress_line(event);
  EXPECT_THAT(line, HasSubstr("3/19 …12.safetensors"));
  EXPECT_THAT(line, HasSubstr("[#####     ]  50 %  512 MiB/1.00 GiB  118 MiB/s  2:05"));
  event.bytes_done = event.bytes_total - 1;
  EXPECT_THAT(progress_line(event), HasSubstr(" 99 %"));
  event.file = "\x1b[31m\n";
  EXPECT_THAT(progress_line(event), Not(HasSubstr("\x1b")));
}

TEST(ProgressLine, SaysForWhomItWaits) {
  for (const std::int64_t total : {std::int64_t{0}, std::int64_t{1} << 40}) {
    DownloadEvent event = event_of(total / 2, total);
    event.waiting_seconds = 12;
    event.waiting_for = "hub.example";
    EXPECT_THAT(progress_line(event), HasSubstr("waiting for hub.example (12 s)"));
    EXPECT_THAT(progress_line(event), Not(HasSubstr("MiB/s")));
    event.waiting_seconds = 359'999;
    event.waiting_for = std::string(300, 'h') + "\n";
    EXPECT_LE(base::count_scalars(progress_line(event)), 79U);
    EXPECT_THAT(progress_line(event), Not(HasSubstr("\n")));
  }
}

TEST(ClockText, ReadsLikeAClock) {
  EXPECT_EQ(clock_text(0), "0 s");
  EXPECT_EQ(clock_text(59.2), "1:00");
  EXPECT_EQ(clock_text(61), "1:01");
  EXPECT_EQ(clock_text(3723), "1:02:03");
}

TEST(PlainProgress, ALineForEachTenthOrEveryFewSeconds) {
  PlainProgress plain;
  PlainProgress::Time now{};
  int lines = 0;
  EXPECT_FALSE(plain.is_due(event_of(0, 1000), now));
  for (int i = 1; i <= 1000; ++i) lines += plain.is_due(event_of(i, 1000), now) ? 1 : 0;
  EXPECT_EQ(lines, 11);
  PlainProgress slow;
  lines = 0;
  for (int i = 0; i < 100; ++i) {
    now += std::chrono::seconds(1);
    lines += slow.is_due(event_of(5, 1000), now) ? 1 : 0;
  }
  EXPECT_EQ(lines, 20);
}

TEST(PlainProgress, AWaitIsALineAtOnceAndThenNowAndThen) {
  PlainProgress plain;
  PlainProgress::Time now{};
  DownloadEvent event = event_of(0, 0);
  event.waiting_seconds = 3;
  EXPECT_TRUE(plain.is_due(event, now));
  int lines = 0;
  for (int i = 0; i < 100; ++i) {
    now += std::chrono::milliseconds(100);
    lines += plain.is_due(event, now) ? 1 : 0;
  }
  EXPECT_EQ(lines, 2);
  EXPECT_TRUE(plain.is_due(event_of(5, 1000), now)) << "what came after the wait";
  event.bytes_done = 5;
  event.bytes_total = 1000;
  EXPECT_TRUE(plain.is_due(event, now)) << "the next wait";
}

}  // namespace
}  // namespace llorch::cli
