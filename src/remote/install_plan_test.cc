#include "remote/install_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace llorch::remote {
namespace {

using ::testing::ElementsAre, ::testing::HasSubstr, ::testing::Not;

std::string hash(char digit) {
  return std::string(64, digit);
}

Manifest manifest_of(std::vector<ProgramFile> files) {
  Result<Manifest> manifest = make_manifest(std::move(files));
  EXPECT_TRUE(manifest.ok()) << manifest.error().message;
  return manifest.take();
}

Manifest two_programs() {
  return manifest_of(
      {{"pool-managerd", hash('b'), 20, "/b"}, {"llorch-pool", hash('a'), 10, "/a"}});
}

// What a host says that has this version, whole, as its current one.
Installed with(const Manifest& manifest) {
  Installed installed;
  installed.current = manifest.version;
  installed.versions = {manifest.version};
  for (const ProgramFile& file : manifest.files)
    installed.files.push_back({manifest.version + "/" + file.name, file.sha256});
  return installed;
}

TEST(InstallPlan, AVersionIsItsFiles) {
  const Manifest one = two_programs();
  EXPECT_EQ(one.version.size(), 16U);
  EXPECT_EQ(one.version, manifest_of({{"llorch-pool", hash('a'), 1, "/x"},
                                      {"pool-managerd", hash('b'), 2, "/y"}})
                             .version);
  EXPECT_NE(one.version, manifest_of({{"llorch-pool", hash('c'), 10, "/a"},
                                      {"pool-managerd", hash('b'), 20, "/b"}})
                             .version);
  EXPECT_NE(one.version,
            manifest_of({{"llorch", hash('a'), 10, "/a"}, {"pool-managerd", hash('b'), 20, "/b"}})
                .version);
}

TEST(InstallPlan, RefusesNamesThatAShellCouldRead) {
  for (const char* name : {"", "a b", "a;b", "../a", "-a", "a/b", "$a", "a'"})
    EXPECT_FALSE(make_manifest({{name, hash('a'), 1, "/a"}}).ok()) << name;
  EXPECT_FALSE(make_manifest({}).ok());
  EXPECT_FALSE(make_manifest({{"a", hash('a'), 1, "/a"}, {"a", hash('b'), 1, "/b"}}).ok());
  EXPECT_FALSE(make_manifest({{"a", "A" + std::string(63, 'a'), 1, "/a"}}).ok());
}

TEST(InstallPlan, AnEmptyHostGetsEverything) {
  const Manifest manifest = two_programs();
  const InstallPlan plan = plan_install(manifest, {});
  EXPECT_EQ(plan.to_send.size(), 2U);
  EXPECT_EQ(plan.bytes_to_send, 30);
  EXPECT_THAT(plan.assemble_script,
              HasSubstr("ln in/" + hash('a') + " " + manifest.version + ".new/llorch-pool"));
  EXPECT_THAT(plan.switch_script, HasSubstr("mv -T current.new current"));
  EXPECT_THAT(plan.switch_script, Not(HasSubstr("previous")));
}

TEST(InstallPlan, WhatIsThereIsNotSentAgain) {
  const Manifest old = two_programs();
  const Manifest manifest =
      manifest_of({{"llorch-pool", hash('a'), 10, "/a"}, {"pool-managerd", hash('c'), 20, "/c"}});
  const InstallPlan plan = plan_install(manifest, with(old));
  ASSERT_EQ(plan.to_send.size(), 1U);
  EXPECT_EQ(plan.to_send[0].name, "pool-managerd");
  EXPECT_EQ(plan.bytes_to_send, 20);
  EXPECT_THAT(plan.assemble_script, HasSubstr("ln " + old.version + "/llorch-pool " +
                                              manifest.version + ".new/llorch-pool"));
  EXPECT_THAT(plan.switch_script, HasSubstr("ln -s " + old.version + " previous.new"));
}

TEST(InstallPlan, OneContentUnderTwoNamesIsSentOnce) {
  const Manifest manifest =
      manifest_of({{"worker-orcd", hash('a'), 10, "/a"}, {"llorch-cudad", hash('a'), 10, "/a"}});
  EXPECT_EQ(plan_install(manifest, {}).to_send.size(), 1U);
}

TEST(InstallPlan, TheCurrentVersionNeedsNothing) {
  const Manifest manifest = two_programs();
  const InstallPlan plan = plan_install(manifest, with(manifest));
  EXPECT_TRUE(plan.to_send.empty());
  EXPECT_EQ(plan.assemble_script, "");
  EXPECT_EQ(plan.switch_script, "");
}

TEST(InstallPlan, SaysWhetherThePoolHasToBeStartedAnew) {
  const Manifest manifest = two_programs();
  EXPECT_TRUE(plan_install(manifest, {}).is_new_version);
  Installed there = with(manifest);
  EXPECT_FALSE(plan_install(manifest, there).is_new_version);
  there.running = {manifest.version + "/pool-managerd", std::string(16, '1') + "/llorch-cpud"};
  EXPECT_FALSE(plan_install(manifest, there).is_new_version) << "workers keep their programs";
  there.running = {std::string(16, '1') + "/pool-managerd"};
  EXPECT_TRUE(plan_install(manifest, there).is_new_version) << "it has not been started since";
}

TEST(InstallPlan, ADamagedVersionIsMadeAgain) {
  const Manifest manifest = two_programs();
  Installed there = with(manifest);
  there.files[1].sha256 = hash('f');
  const InstallPlan plan = plan_install(manifest, there);
  ASSERT_EQ(plan.to_send.size(), 1U);
  EXPECT_EQ(plan.to_send[0].name, "pool-managerd");
  EXPECT_NE(plan.assemble_script, "");
  EXPECT_EQ(plan.switch_script, "");
}

TEST(InstallPlan, KeepsTheNewVersionAndTheOneBeforeIt) {
  const Manifest manifest = two_programs();
  const std::string old(16, '1');
  const std::string older(16, '2');
  Installed there;
  there.current = old;
  there.previous = older;
  there.versions = {older, old};
  EXPECT_THAT(plan_install(manifest, there).clean_script, HasSubstr("rm -rf in " + older));
  EXPECT_THAT(plan_install(manifest, there).clean_script, Not(HasSubstr(old)));
  // Asked again once it is current: the one to go back to stays.
  Installed after = with(manifest);
  after.previous = old;
  after.versions.push_back(old);
  EXPECT_THAT(plan_install(manifest, after).clean_script, Not(HasSubstr(old)));
  EXPECT_THAT(plan_install(manifest, after).clean_script, Not(HasSubstr(manifest.version)));
}

TEST(InstallPlan, KeepsEveryVersionThatSomethingRuns) {
  const std::string old(16, '1');
  const std::string older(16, '2');
  const std::string oldest(16, '3');
  Installed there;
  there.current = old;
  there.versions = {oldest, older, old};
  there.running = {older + "/pool-managerd", older + "/llorch-cpud"};
  const std::string script = plan_install(two_programs(), there).clean_script;
  EXPECT_THAT(script, Not(HasSubstr(older)));
  EXPECT_THAT(script, HasSubstr("rm -rf in " + oldest));
}

TEST(InstallPlan, RollsBackToTheVersionBefore) {
  Installed there;
  there.current = std::string(16, '1');
  EXPECT_EQ(roll_back_script(there).error().code, ErrorCode::NotFound);
  there.previous = std::string(16, '2');
  const Result<std::string> script = roll_back_script(there);
  ASSERT_TRUE(script.ok());
  EXPECT_THAT(*script,
              HasSubstr("ln -s 2222222222222222 current.new && mv -T current.new current"));
  EXPECT_THAT(*script, HasSubstr("ln -s 1111111111111111 previous.new"));
}

TEST(InstallPlan, ReadsOnlyItsOwnLinesOfAListing) {
  const std::string version(16, 'a');
  const std::string output = "Welcome; rm -rf /\nllorch:current " + version +
                             "\r\nllorch:previous \n" + "llorch:version " + version +
                             "\nllorch:version ????????????????\n" +          //
                             hash('b') + "  " + version + "/llorch-pool\n" +  //
                             hash('c') + "  in/" + hash('c') + "\n" +         //
                             hash('d') + "  in/$(reboot)\n" +                 //
                             hash('d') + "  " + version + "/a b\n" +          //
                             hash('d') + "  ../../.ssh/id\n" +                //
                             "\\" + hash('d') + "  " + version + "/x\n" + "llorch:runs " + version +
                             "/pool-managerd (deleted)\n" + "llorch:runs " + version +
                             "/bin/sh\nllorch:runs /sbin/init\n" + "llorch:end\n";
  const Result<Installed> there = parse_listing(output);
  ASSERT_TRUE(there.ok());
  EXPECT_EQ(there->current, version);
  EXPECT_EQ(there->previous, "");
  EXPECT_EQ(there->versions.size(), 1U);
  ASSERT_EQ(there->files.size(), 2U);
  EXPECT_EQ(there->files[0].path, version + "/llorch-pool");
  EXPECT_EQ(there->files[1].sha256, hash('c'));
  EXPECT_THAT(there->running, ElementsAre(version + "/pool-managerd"));
  EXPECT_EQ(parse_listing("llorch:current ").error().code, ErrorCode::Corrupt);
}

TEST(InstallPlan, OnlyAProgramThatSaysSoItselfDoesNotRunThere) {
  EXPECT_TRUE(check_first_run("box2", {}, "llorch-pool 0.1.0\n").ok());
  for (const int code : {1, 126, 127}) {
    const Status lacks = check_first_run("box2", {.code = code}, "libboost.so: cannot open\n");
    ASSERT_FALSE(lacks.ok());
    EXPECT_EQ(lacks.error().code, ErrorCode::Unsupported) << code;
    EXPECT_THAT(lacks.error().message, HasSubstr("libboost.so: cannot open"));
  }
  // A connection that broke, or somebody's kill, is no word about the programs.
  for (const base::ExitStatus& ended :
       {base::ExitStatus{.code = 255}, {.code = 137}, {.code = 0, .signal = 9}})
    EXPECT_EQ(check_first_run("box2", ended, "").error().code, ErrorCode::Unavailable);
}

TEST(InstallPlan, WhatArrivedIsJudgedByTheHashTheHostComputed) {
  const ProgramFile file{"llorch-pool", hash('a'), 10, "/a"};
  EXPECT_TRUE(check_received(file, hash('a') + "  in/" + hash('a') + "\n").ok());
  const Status wrong = check_received(file, hash('b') + "  in/" + hash('a') + "\n");
  ASSERT_FALSE(wrong.ok());
  EXPECT_THAT(wrong.error().message, HasSubstr("did not arrive whole"));
  EXPECT_FALSE(check_received(file, "").ok());
}

}  // namespace
}  // namespace llorch::remote
