#include "cli/loading_bar.h"

#include <gtest/gtest.h>

namespace llorch::cli {
namespace {

using std::chrono::milliseconds;

TEST(LoadingLine, TheBlockWandersToTheEndAndBack) {
  EXPECT_EQ(loading_line("m", milliseconds(0), {}, 8), "loading m [======  ] 0.0 s");
  EXPECT_EQ(loading_line("m", milliseconds(100), {}, 8), "loading m [ ====== ] 0.1 s");
  EXPECT_EQ(loading_line("m", milliseconds(200), {}, 8), "loading m [  ======] 0.2 s");
  EXPECT_EQ(loading_line("m", milliseconds(300), {}, 8), "loading m [ ====== ] 0.3 s");
  EXPECT_EQ(loading_line("m", milliseconds(400), {}, 8), "loading m [======  ] 0.4 s");
}

TEST(LoadingLine, SurvivesNarrowBarsAndStrangeNames) {
  EXPECT_EQ(loading_line("m", milliseconds(100), {}, 3), "loading m [   ] 0.1 s");
  EXPECT_EQ(loading_line("\x1b[2J", milliseconds(0), {}, 0).find('\x1b'), std::string::npos);
}

TEST(LoadingLine, FillsWithWhatTheWorkerSays) {
  EXPECT_EQ(loading_line("m", milliseconds(100), 0.5, 8), "loading m [====    ] 50 %");
  EXPECT_EQ(loading_line("m", milliseconds(100), 1.5, 8), "loading m [========] 100 %");
  EXPECT_EQ(loading_line("m", milliseconds(0), 0.0, 8), "loading m [======  ] 0.0 s")
      << "nothing is known yet";
}

}  // namespace
}  // namespace llorch::cli
