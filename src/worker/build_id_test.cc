#include "worker/build_id.h"

#include <gmock/gmock.h>

#include <string>

#include "base/version.h"

namespace llorch::worker {
namespace {

TEST(BuildId, IsTheVersionAndAHashOfTheSources) {
  const std::string id = build_id();
  EXPECT_EQ(id, build_id());
  const std::string version(base::version());
  ASSERT_THAT(id, testing::StartsWith(version + "+"));
  const std::string hash = id.substr(version.size() + 1, 12);
  EXPECT_EQ(hash.find_first_not_of("0123456789abcdef"), std::string::npos) << id;
}

}  // namespace
}  // namespace llorch::worker
