#include "remote/service_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "remote/ssh.h"

namespace llorch::remote {
namespace {

using ::testing::HasSubstr;

TEST(ServicePlan, EveryShellPassesItsScriptsOn) {
  const Result<SshHost> host = SshHost::make("box2", "/run");
  ASSERT_TRUE(host.ok());
  for (const std::string_view script : {start_service_script(), end_service_script()})
    EXPECT_FALSE(script_words(*host, script).empty());  // checks what they may hold
}

TEST(ServicePlan, SaysWhatThePoolRunsAs) {
  EXPECT_TRUE(parse_service("hello from .profile\nllorch:service started\n").is_service);
  EXPECT_TRUE(parse_service("llorch:service runs\r\n").is_service);
  for (const auto& [word, reason] :
       {std::pair("none", "no systemd"), std::pair("no-linger", "enable-linger was refused"),
        std::pair("other-home", "other folders"), std::pair("refused", "took no new unit"),
        std::pair("failed", "journalctl"), std::pair("started-not", "did not say more")}) {
    const ServiceAnswer answer = parse_service(std::string("llorch:service ") + word);
    EXPECT_FALSE(answer.is_service) << word;
    EXPECT_THAT(answer.sentence, HasSubstr(reason));
  }
  EXPECT_FALSE(parse_service("").is_service);
}

}  // namespace
}  // namespace llorch::remote
