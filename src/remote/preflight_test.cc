#include "remote/preflight.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace llorch::remote {
namespace {

using ::testing::HasSubstr;

constexpr const char* kOutput =
    "Welcome to beta!\nLast login: today\n"
    "llorch:system Linux\r\nllorch:machine x86_64\nllorch:libc glibc 2.36\n"
    "llorch:home /home/me and you\nllorch:free_kib 2097152\nllorch:write yes\nllorch:tools yes\n"
    "llorch:systemd no\nllorch:end\n";

const Finding& find(const std::vector<Finding>& findings, std::string_view subject) {
  const auto found = std::find_if(findings.begin(), findings.end(),
                                  [&](const Finding& each) { return each.subject == subject; });
  EXPECT_NE(found, findings.end()) << subject;
  return *found;
}

HostFacts good_facts() {
  return parse_preflight(kOutput).take();
}

TEST(Preflight, ReadsAnswersBetweenWhatLoginScriptsPrint) {
  const HostFacts facts = good_facts();
  EXPECT_EQ(facts.system, "Linux");
  EXPECT_EQ(facts.machine, "x86_64");
  EXPECT_EQ(facts.libc, "glibc 2.36");
  EXPECT_EQ(facts.home, "/home/me and you");
  EXPECT_EQ(facts.free_bytes, std::int64_t{2} << 30);
  EXPECT_TRUE(facts.can_write);
  EXPECT_TRUE(facts.has_tools);
  EXPECT_FALSE(facts.has_user_systemd);
}

TEST(Preflight, AHostThatDoesNotAnswerToTheEndIsAnError) {
  for (const std::string& output : {std::string(), std::string("This account is not available.\n"),
                                    std::string("llorch:system Linux\nllorch:mach")}) {
    const Result<HostFacts> facts = parse_preflight(output);
    ASSERT_FALSE(facts.ok());
    EXPECT_THAT(facts.error().message, HasSubstr("login shell"));
  }
  EXPECT_THAT(parse_preflight("This account is not available.\n").error().message,
              HasSubstr("not available"));
}

TEST(Preflight, AGoodHostPassesInPlainSentences) {
  const std::vector<Finding> findings = judge_host("beta", good_facts(), {.needed_bytes = 1 << 20});
  EXPECT_TRUE(all_passed(findings));
  EXPECT_EQ(findings.size(), 5U);
  EXPECT_EQ(find(findings, "system").sentence, "beta runs Linux");
  EXPECT_EQ(find(findings, "libc").sentence, "beta has glibc 2.36");
}

TEST(Preflight, EachThingFailsForItself) {
  struct Case {
    const char* subject;
    void (*spoil)(HostFacts&);
    const char* told;
  };
  const Case cases[] = {
      {"system", [](HostFacts& f) { f.system = "Darwin"; }, "beta runs Darwin"},
      {"processor", [](HostFacts& f) { f.machine = "riscv64"; },
       "programs here for x86_64, aarch64"},
      {"libc", [](HostFacts& f) { f.libc = "glibc 2.28"; }, "glibc 2.31 or newer"},
      {"libc", [](HostFacts& f) { f.libc = "musl libc (x86_64)"; }, "has no glibc (musl libc"},
      {"libc", [](HostFacts& f) { f.libc = ""; }, "does not say"},
      {"disk", [](HostFacts& f) { f.free_bytes = 5 << 20; },
       "5.00 MiB free, our programs need 100 MiB: make room"},
      {"disk", [](HostFacts& f) { f.can_write = false; }, "cannot be written to"},
      {"tools", [](HostFacts& f) { f.has_tools = false; }, "install coreutils"},
  };
  for (const Case& each : cases) {
    HostFacts facts = good_facts();
    each.spoil(facts);
    const std::vector<Finding> findings =
        judge_host("beta", facts,
                   {.machines = {"x86_64", "aarch64"}, .needed_bytes = std::int64_t{100} << 20});
    EXPECT_FALSE(all_passed(findings));
    EXPECT_EQ(
        std::count_if(findings.begin(), findings.end(), [](const Finding& f) { return !f.passed; }),
        1);
    EXPECT_FALSE(find(findings, each.subject).passed);
    EXPECT_THAT(find(findings, each.subject).sentence, HasSubstr(each.told));
  }
}

}  // namespace
}  // namespace llorch::remote
