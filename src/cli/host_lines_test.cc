#include "cli/host_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace llorch::cli {
namespace {

using ::testing::ElementsAre, ::testing::IsEmpty;

class HostLinesTest : public ::testing::Test {
 protected:
  std::vector<std::string> printed;
  HostLines lines{
      {"anna", "b"}, false, [this](std::string_view text) { printed.emplace_back(text); }};
};

TEST_F(HostLinesTest, WholeLinesComeAtOnceWithTheirHost) {
  lines.take(0, "one\ntwo\nthr");
  lines.take(1, "un\r\n");
  lines.take(0, "ee");
  EXPECT_THAT(printed, ElementsAre("anna  one\nanna  two\n", "b     un\n"));
  lines.take(0, "\n\n");
  EXPECT_THAT(printed.back(), "anna  three\nanna  \n");
}

TEST_F(HostLinesTest, TheLastLineNeedsNoNewline) {
  lines.take(1, "done");
  EXPECT_THAT(printed, IsEmpty());
  lines.finish(1);
  lines.finish(0);
  EXPECT_THAT(printed, ElementsAre("b     done\n"));
}

TEST_F(HostLinesTest, ALineWithoutEndIsShownInPieces) {
  const std::string piece(std::size_t{40} << 10, 'x');
  for (int i = 0; i < 4; ++i) lines.take(0, piece);
  lines.finish(0);
  std::size_t size = 0;
  for (const std::string& text : printed) size += text.size();
  EXPECT_EQ(printed.size(), 3U);
  EXPECT_EQ(size, 4 * piece.size() + printed.size() * std::string("anna  \n").size());
}

TEST_F(HostLinesTest, NothingCommandsTheTerminal) {
  lines.take(0, "\x1b[2Jred\n");
  EXPECT_THAT(printed, ElementsAre("anna  \xEF\xBF\xBD[2Jred\n"));
}

}  // namespace
}  // namespace llorch::cli
