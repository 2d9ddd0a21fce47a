#include "base/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <limits>

namespace llorch::base {
namespace {

TEST(HumanBytes, KeepsThreeDigitsThatMatter) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1000), "1000 B");
  EXPECT_EQ(human_bytes(1024), "1.00 KiB");
  EXPECT_EQ(human_bytes(1536), "1.50 KiB");
  EXPECT_EQ(human_bytes(25'690'112), "24.5 MiB");
  EXPECT_EQ(human_bytes((std::int64_t{1} << 30) - 1), "1.00 GiB");
  EXPECT_EQ(human_bytes(std::int64_t{355} << 30), "355 GiB");
  EXPECT_EQ(human_bytes(std::numeric_limits<std::int64_t>::max()), "8192 PiB");
}

TEST(HumanCount, UsesThousandsMillionsBillions) {
  EXPECT_EQ(human_count(0), "0");
  EXPECT_EQ(human_count(999), "999");
  EXPECT_EQ(human_count(1000), "1.00 K");
  EXPECT_EQ(human_count(260'032), "260 K");
  EXPECT_EQ(human_count(999'999), "1.00 M");
  EXPECT_EQ(human_count(29'230'000), "29.2 M");
  EXPECT_EQ(human_count(124'439'808), "124 M");
  EXPECT_EQ(human_count(6'738'415'616), "6.74 B");
}

TEST(Printable, RemovesWhatCouldCommandATerminal) {
  EXPECT_EQ(printable("caf\xc3\xa9 \xf0\x9f\x98\x80"), "caf\xc3\xa9 \xf0\x9f\x98\x80");
  EXPECT_EQ(printable("\x1b[2Jx"), "\xef\xbf\xbd[2Jx");
  EXPECT_EQ(printable("a\nb\x7f"),
            "a\xef\xbf\xbd"
            "b\xef\xbf\xbd");
  EXPECT_EQ(printable("\xc2\x9b"
                      "1m"),
            "\xef\xbf\xbd"
            "1m")
      << "C1 holds a one-character escape";
  EXPECT_EQ(printable("\xff"), "\xef\xbf\xbd");
  EXPECT_EQ(printable("\xc2\xa0"), "\xc2\xa0");
}

TEST(Wrap, BreaksAtSpacesBeforeTheWidth) {
  EXPECT_EQ(wrap("one two three", 80, 4), "one two three");
  EXPECT_EQ(wrap("one two three", 11, 4), "one two\n    three");
  EXPECT_EQ(wrap("one two three", 10, 4), "one\n    two\n    three");
  EXPECT_EQ(wrap("a reallylongword b", 8, 2), "a\n  reallylongword\n  b");
  EXPECT_EQ(wrap("", 8, 2), "");
}

TEST(TextTable, LinesColumnsUpByCharactersNotBytes) {
  using enum TextTable::Align;
  TextTable table({Left, Right, Left});
  table.add_row({"a", "1", "x"});
  table.add_row({"\xc3\xa9\xc3\xa9\xc3\xa9", "100", ""});
  EXPECT_EQ(table.render(2, false), "  a      1  x\n  \xc3\xa9\xc3\xa9\xc3\xa9  100\n");
}

TEST(TextTable, ColoursRowsOnlyWhenAsked) {
  TextTable table({TextTable::Align::Left});
  table.add_row({"no"}, Color::Red);
  EXPECT_EQ(table.render(1, false), " no\n");
  EXPECT_EQ(table.render(1, true), " \x1b[31mno\x1b[0m\n");
}

TEST(WantsColor, NeedsATerminalAndNoRefusal) {
  std::FILE* plain = std::tmpfile();
  ASSERT_NE(plain, nullptr);
  EXPECT_FALSE(wants_color(plain, nullptr));
  std::fclose(plain);
  const int primary = posix_openpt(O_RDWR | O_NOCTTY);
  if (primary < 0 || grantpt(primary) != 0 || unlockpt(primary) != 0)
    GTEST_SKIP() << "no pseudo-terminals on this machine (is /dev/pts mounted?)";
  std::FILE* terminal = std::fopen(ptsname(primary), "w");
  ASSERT_NE(terminal, nullptr);
  ::setenv("TERM", "dumb", 1);
  EXPECT_FALSE(wants_color(terminal, nullptr));
  ::setenv("TERM", "xterm", 1);
  EXPECT_TRUE(wants_color(terminal, nullptr));
  EXPECT_TRUE(wants_color(terminal, ""));
  EXPECT_FALSE(wants_color(terminal, "1"));
  std::fclose(terminal);
  close(primary);
}

TEST(ProgressBar, FillsUpAndStaysWithinItsBrackets) {
  EXPECT_EQ(progress_bar(0, 4), "[    ]");
  EXPECT_EQ(progress_bar(0.5, 4), "[##  ]");
  EXPECT_EQ(progress_bar(1, 4), "[####]");
  EXPECT_EQ(progress_bar(7, 4), "[####]");
  EXPECT_EQ(progress_bar(-1, 4), "[    ]");
  EXPECT_EQ(progress_bar(std::nan(""), 4), "[    ]");
}

TEST(StatusLine, IsSilentWhereThereIsNoTerminal) {
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  {
    StatusLine line(file);
    line.show("half way");
  }
  EXPECT_EQ(std::ftell(file), 0);
  std::fclose(file);
}

TEST(TextTable, WhatIsTooWideIsFolded) {
  TextTable table({TextTable::Align::Left, TextTable::Align::Right, TextTable::Align::Left});
  table.add_row({"NAME", "SIZE", "WHAT"});
  table.add_row({"a", "12", "some words that need room"});
  table.add_row({"b", "", "more"});
  EXPECT_EQ(table.render(0, false, 37), table.render(0, false));
  EXPECT_EQ(table.render(1, false, 20),
            " NAME  a\n"
            " SIZE  12\n"
            " WHAT  some words\n"
            "       that need\n"
            "       room\n"
            "\n"
            " NAME  b\n"
            " WHAT  more\n");
}

}  // namespace
}  // namespace llorch::base
