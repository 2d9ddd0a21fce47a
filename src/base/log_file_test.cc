#include "base/log_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/file.h"
#include "support/test_paths.h"

namespace llorch::base {
namespace {

// stderr is given back at the end of the test.
class LogFile : public ::testing::Test {
 protected:
  ~LogFile() override {
    ::dup2(saved_, STDERR_FILENO);
    ::close(saved_);
  }
  static void say(std::string_view text) {
    ASSERT_EQ(::write(STDERR_FILENO, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }

  test::TempDir folder;
  const std::string file = (folder / "daemon.log").string();
  const int saved_ = ::dup(STDERR_FILENO);
};

TEST_F(LogFile, TakesStderrAndMovesAsideWhenItIsFull) {
  ASSERT_TRUE(redirect_log(file).ok());
  say("one\n");
  keep_log_small(file);
  EXPECT_FALSE(std::filesystem::exists(file + ".1")) << "not full yet";
  say(std::string(std::size_t{8} << 20, 'x'));
  keep_log_small(file);
  say("two\n");
  EXPECT_EQ(std::filesystem::file_size(file + ".1"), (std::size_t{8} << 20) + 4);
  EXPECT_EQ(read_text_file(file, 100).take(), "two\n");
  EXPECT_EQ(std::filesystem::status(file).permissions(), std::filesystem::perms(0600));
}

TEST_F(LogFile, SaysWhatCannotBeOpened) {
  const Status status = redirect_log((folder / "absent" / "log").string());
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("absent"), std::string::npos);
}

}  // namespace
}  // namespace llorch::base
