#include "catalog/look.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/process_table.h"
#include "catalog/describe.h"
#include "support/test_paths.h"

namespace llorch::catalog {
namespace {

namespace fs = std::filesystem;
using contract::ModelEntry;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

Error refusal_of(const fs::path& path) {
  ModelEntry entry;
  const Status described = describe_files(path, entry);
  EXPECT_FALSE(described.ok()) << path;
  return described.ok() ? Error{ErrorCode::Internal, "it was taken"} : described.error();
}

TEST(Look, OnlyFilesAndFoldersAreOpened) {
  const test::TempDir dir;
  ASSERT_EQ(::mkfifo((dir / "pipe.gguf").c_str(), 0600), 0);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, (dir / "socket").c_str(), sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  fs::create_symlink(dir / "pipe.gguf", dir / "link.gguf");
  for (const auto& [path, kind] :
       std::vector<std::pair<fs::path, std::string>>{{dir / "pipe.gguf", "is a pipe"},
                                                     {dir / "link.gguf", "is a pipe"},
                                                     {dir / "socket", "is a socket"},
                                                     {"/dev/zero", "is a device"}}) {
    const Error error = refusal_of(path);
    EXPECT_EQ(error.code, ErrorCode::InvalidArgument);
    EXPECT_THAT(error.message, HasSubstr(kind));
  }
  EXPECT_EQ(refusal_of(dir / "absent").code, ErrorCode::NotFound);
  ::close(fd);
}

TEST(Look, APipeInsideAFolderIsNoPartOfTheModel) {
  const test::TempDir dir;
  fs::copy_file(test::source_path("tests/golden/gpt2_tiny/model.safetensors"),
                dir / "model.safetensors");
  ASSERT_EQ(::mkfifo((dir / "config.json").c_str(), 0600), 0);
  ModelEntry entry;
  const Status described = describe_files(dir.path(), entry);
  ASSERT_TRUE(described.ok()) << described.error().message;
  ASSERT_EQ(entry.files.size(), 1U);
}

TEST(Look, WhatIsInAFileStaysThere) {
  const test::TempDir dir;
  std::ofstream(dir / "token") << "hf_verysecretverysecret";
  const Error error = refusal_of(dir / "token");
  EXPECT_EQ(error.code, ErrorCode::Unsupported);
  EXPECT_THAT(error.message, HasSubstr("none of the formats"));
  EXPECT_THAT(error.message, Not(AnyOf(HasSubstr("hf_"), HasSubstr("68 66"))));
}

TEST(Look, LinksAndSplitFilesAreRead) {
  const test::TempDir dir;
  fs::create_directories(dir / "blobs");
  fs::create_directories(dir / "snapshot");
  for (const char* name : {"model.safetensors", "config.json"}) {
    fs::copy_file(test::source_path("tests/golden/gpt2_tiny") / name, dir / "blobs" / name);
    fs::create_symlink(dir / "blobs" / name, dir / "snapshot" / name);
  }
  for (const fs::path& path : {dir / "snapshot", dir / "snapshot/model.safetensors"}) {
    ModelEntry entry;
    const Status described = describe_files(path, entry);
    ASSERT_TRUE(described.ok()) << described.error().message;
    EXPECT_EQ(entry.architecture, "gpt2");
    EXPECT_EQ(entry.files.size(), 2U);
    EXPECT_GT(entry.size_bytes, 100'000);
  }
}

// A file that takes a while to read: an array of very many empty texts, all of it a hole.
void write_long_header(const fs::path& path) {
  constexpr std::uint64_t kTexts = std::uint64_t{32} << 20;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  const auto put = [&file](auto value) {
    file.write(reinterpret_cast<const char*>(&value), sizeof value);
  };
  file << "GGUF";
  put(std::uint32_t{3});
  put(std::uint64_t{0});  // tensors
  put(std::uint64_t{1});  // fields
  put(std::uint64_t{1});
  file << "a";
  put(std::uint32_t{9});  // an array
  put(std::uint32_t{8});  // of texts
  put(kTexts);
  file.close();
  fs::resize_file(path, fs::file_size(path) + kTexts * 8);
}

// Truncates the file as soon as a child of ours has it mapped.
void cut_when_mapped(const fs::path& path, const std::atomic<bool>& is_over) {
  while (!is_over) {
    for (const int child : base::children_of(::getpid())) {
      std::ifstream maps("/proc/" + std::to_string(child) + "/maps");
      for (std::string line; std::getline(maps, line);) {
        if (line.find(path.string()) == std::string::npos) continue;
        ::truncate(path.c_str(), 4096);
        return;
      }
    }
    std::this_thread::yield();
  }
}

TEST(Look, AFileThatShrinksWhileItIsReadEndsTheChildAlone) {
  const test::TempDir dir;
  const fs::path path = dir / "shrinks.gguf";
  Error error{ErrorCode::Internal, ""};
  // The child may be quicker than we are.
  for (int attempt = 0; attempt < 50 && error.code != ErrorCode::Conflict; ++attempt) {
    write_long_header(path);
    std::atomic<bool> is_over = false;
    std::thread cutter([&] { cut_when_mapped(path, is_over); });
    ModelEntry entry;
    const Status described = describe_files(path, entry);
    is_over = true;
    cutter.join();
    if (!described.ok()) error = described.error();
  }
  EXPECT_EQ(error.code, ErrorCode::Conflict) << error.message;
  EXPECT_THAT(error.message, HasSubstr("changed while it was read"));
}

// As a user that may not look into everything: root may.
TEST(Look, AFolderThatCannotBeReadIsNoReasonToEnd) {
  const test::TempDir dir;
  fs::create_directories(dir / "model/closed/inner");
  fs::create_symlink(dir / "elsewhere", dir / "model/link");
  fs::permissions(dir.path(), fs::perms::all);
  fs::permissions(dir / "model", fs::perms::all);
  fs::permissions(dir / "model/closed", fs::perms::none);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::getuid() == 0 && ::setuid(65534) != 0) ::_exit(2);
    base::ConfinementRules rules;
    allow_model(dir / "model", rules);
    const bool has_link = std::find(rules.readable.begin(), rules.readable.end(),
                                    dir / "model/link") != rules.readable.end();
    ::_exit(has_link ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "it ended, or missed what can be read";
  fs::permissions(dir / "model/closed", fs::perms::all);
}

TEST(Look, ASingleFileDoesNotOpenItsFolder) {
  const test::TempDir dir;
  std::ofstream(dir / "model.gguf") << "x";
  std::ofstream(dir / "private.txt") << "x";
  base::ConfinementRules rules;
  allow_model(dir / "model.gguf", rules);
  EXPECT_THAT(rules.readable, testing::Contains(dir / "model.gguf"));
  EXPECT_THAT(rules.readable, testing::Contains(dir / "config.json"));
  EXPECT_THAT(rules.readable, Not(testing::Contains(dir.path())));
  EXPECT_THAT(rules.readable, Not(testing::Contains(dir / "private.txt")));
}

}  // namespace
}  // namespace llorch::catalog
