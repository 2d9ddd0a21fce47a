#include "remote/host_session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/utsname.h>

#include <fstream>
#include <map>

#include "remote/run_folder.h"
#include "support/test_paths.h"

namespace llorch::remote {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string own_machine() {
  utsname name{};
  ::uname(&name);
  return name.machine;
}

TEST(HostSession, ProgramsOfAMachineAreFoundByItsKind) {
  const test::TempDir folder;
  EXPECT_EQ(*find_program_folder(folder.path(), own_machine()), folder.path());
  const Result<fs::path> none = find_program_folder(folder.path(), "riscv64");
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.error().message, HasSubstr("no programs for riscv64"));
  fs::create_directories(folder / "arm64/bin");
  fs::create_directories(folder / "x86-64/bin");
  EXPECT_EQ(*find_program_folder(folder.path(), "aarch64"), folder / "arm64/bin");
  EXPECT_EQ(*find_program_folder(folder.path(), "x86_64"), folder / "x86-64/bin");
}

TEST(HostSession, EveryNeededProgramMustBeThere) {
  const test::TempDir folder;
  for (const char* name : {"llorch-pool", "pool-managerd"}) std::ofstream(folder / name) << name;
  const Result<std::vector<ProgramFile>> less = find_programs(folder.path());
  ASSERT_FALSE(less.ok());
  EXPECT_THAT(less.error().message, HasSubstr("llorch-cpud is not there"));
  std::ofstream(folder / "llorch-cpud") << "abc";
  const Result<std::vector<ProgramFile>> all = find_programs(folder.path());
  ASSERT_TRUE(all.ok()) << all.error().message;
  ASSERT_EQ(all->size(), 3U);
  EXPECT_EQ(all->at(2).bytes, 3);
  EXPECT_EQ(all->at(2).sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  std::ofstream(folder / "worker-orcd") << "gpu";
  EXPECT_EQ(find_programs(folder.path())->size(), 4U);
}

TEST(RunFolder, IsShortAndForThisUserAlone) {
  const test::TempDir folder;
  std::map<std::string, std::string> variables;
  const base::Environment environment = [&variables](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  base::Home home;
  home.state = folder / "s";
  const Result<fs::path> below = make_run_folder(home, environment);
  ASSERT_TRUE(below.ok()) << below.error().message;
  EXPECT_EQ(*below, home.state / "run");
  EXPECT_EQ(fs::status(*below).permissions(), fs::perms(0700));
  EXPECT_TRUE(SshHost::make("user@host", *below).ok());
  home.state = folder / std::string(100, 'x');
  variables["XDG_RUNTIME_DIR"] = folder.path().string();
  const Result<fs::path> runtime = make_run_folder(home, environment);
  ASSERT_TRUE(runtime.ok()) << runtime.error().message;
  EXPECT_EQ(runtime->parent_path(), folder.path());
  EXPECT_EQ(*make_run_folder(home, environment), *runtime) << "the same for everybody";
  fs::permissions(*runtime, fs::perms(0755));
  EXPECT_FALSE(make_run_folder(home, environment).ok()) << "others can enter it";
}

}  // namespace
}  // namespace llorch::remote
