#include "fetch/chunks.h"

#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <string>

#include "base/digest.h"
#include "base/file.h"
#include "support/run_program.h"
#include "support/test_paths.h"

namespace llorch::fetch {
namespace {

std::string random_text(std::size_t bytes, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

void write(const std::filesystem::path& path, std::string_view text) {
  const Status written = base::write_file_atomically(path, text);
  ASSERT_TRUE(written.ok()) << written.error().message;
}

constexpr std::int64_t kSmall = 4096;

TEST(HashFile, EachChunkAndTheWholeHaveTheirHash) {
  const test::TempDir folder;
  for (const std::int64_t size : {std::int64_t{0}, std::int64_t{1}, kSmall - 1, kSmall, kSmall + 1,
                                  3 * kSmall, 3 * kSmall + 7}) {
    const std::string text = random_text(static_cast<std::size_t>(size), 1);
    write(folder / "file", text);
    const Result<FileChunks> hashed = hash_file(folder / "file", "a/file", {}, kSmall);
    ASSERT_TRUE(hashed.ok()) << hashed.error().message;
    EXPECT_EQ(hashed->path, "a/file");
    EXPECT_EQ(hashed->size, size);
    EXPECT_EQ(hashed->sha256, base::sha256_hex(text));
    EXPECT_GT(hashed->modified_ns, 0);
    ASSERT_EQ(static_cast<std::int64_t>(hashed->chunks.size()), (size + kSmall - 1) / kSmall);
    for (std::size_t i = 0; i < hashed->chunks.size(); ++i)
      EXPECT_EQ(hashed->chunks[i], base::sha256_hex(text.substr(i * kSmall, kSmall)));
    const Result<FileChunks> again = parse_file_chunks(contract::write_fields(*hashed));
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(*again, *hashed);
  }
}

TEST(HashFile, TheSystemsOwnProgramAgrees) {
  if (!std::filesystem::exists("/usr/bin/sha256sum")) GTEST_SKIP() << "no /usr/bin/sha256sum";
  const test::TempDir folder;
  write(folder / "file", random_text(kChunkBytes * 2 + 12345, 2));
  const test::ProgramOutcome sum =
      test::run_program("/usr/bin/sha256sum", {(folder / "file").string()});
  const Result<FileChunks> hashed = hash_file(folder / "file", "file", {});
  ASSERT_TRUE(hashed.ok()) << hashed.error().message;
  EXPECT_EQ(hashed->sha256, sum.out.substr(0, 64));
  EXPECT_EQ(hashed->chunks.size(), 3U);
}

TEST(HashFile, TellsItsProgressAndGivesUpWhenAsked) {
  const test::TempDir folder;
  write(folder / "file", random_text(3 * kSmall + 5, 3));
  std::vector<std::int64_t> seen;
  const auto keep = [&](std::int64_t bytes) {
    seen.push_back(bytes);
    return true;
  };
  ASSERT_TRUE(hash_file(folder / "file", "file", keep, kSmall).ok());
  EXPECT_EQ(seen, (std::vector<std::int64_t>{kSmall, 2 * kSmall, 3 * kSmall, 3 * kSmall + 5}));
  const auto stop = [](std::int64_t) { return false; };
  EXPECT_EQ(hash_file(folder / "file", "file", stop, kSmall).error().code, ErrorCode::Cancelled);
}

TEST(HashFile, AFileThatIsWrittenToMeanwhileHasNoHash) {
  const test::TempDir folder;
  const std::filesystem::path path = folder / "file";
  write(path, random_text(3 * kSmall, 4));
  const auto truncate = [&](std::int64_t bytes) {
    if (bytes == kSmall) std::filesystem::resize_file(path, kSmall + 1);
    return true;
  };
  EXPECT_EQ(hash_file(path, "file", truncate, kSmall).error().code, ErrorCode::Conflict);
  const auto append = [&](std::int64_t bytes) {
    if (bytes == kSmall) std::filesystem::resize_file(path, 10 * kSmall);
    return true;
  };
  write(path, random_text(3 * kSmall, 4));
  EXPECT_EQ(hash_file(path, "file", append, kSmall).error().code, ErrorCode::Conflict);
  EXPECT_EQ(hash_file(folder / "none", "none", {}).error().code, ErrorCode::NotFound);
}

TEST(FindRottedChunks, FindsExactlyTheOnesThatChanged) {
  const test::TempDir folder;
  const std::filesystem::path path = folder / "file";
  for (const std::int64_t size :
       {std::int64_t{1}, kSmall - 1, kSmall, kSmall + 1, 5 * kSmall + 7}) {
    const std::string text = random_text(static_cast<std::size_t>(size), 6);
    write(path, text);
    const FileChunks expected = hash_file(path, "file", {}, kSmall).take();
    for (const std::int64_t at : {std::int64_t{0}, size - 1, size / 2, kSmall - 1, kSmall}) {
      if (at >= size) continue;
      std::string other = text;
      other[static_cast<std::size_t>(at)] =
          static_cast<char>(other[static_cast<std::size_t>(at)] ^ 1);
      write(path, other);
      const auto file = base::PositionedFile::open(path).take();
      const auto rotted = find_rotted_chunks(*file, expected, {});
      ASSERT_TRUE(rotted.ok()) << rotted.error().message;
      EXPECT_EQ(*rotted, std::vector<std::size_t>{static_cast<std::size_t>(at / kSmall)})
          << "byte " << at << " of " << size;
    }
    write(path, text);
    const auto file = base::PositionedFile::open(path).take();
    std::int64_t seen = 0;
    const auto keep = [&](std::int64_t bytes) {
      EXPECT_GE(bytes, seen);
      seen = bytes;
      return true;
    };
    EXPECT_EQ(find_rotted_chunks(*file, expected, keep).take(), std::vector<std::size_t>{});
    EXPECT_EQ(seen, size);
  }
}

TEST(FindRottedChunks, StopsAndSeesWriters) {
  const test::TempDir folder;
  const std::filesystem::path path = folder / "file";
  write(path, random_text(20 * kSmall, 7));
  const FileChunks expected = hash_file(path, "file", {}, kSmall).take();
  const auto file = base::PositionedFile::open(path).take();
  const auto stop = [](std::int64_t) { return false; };
  EXPECT_EQ(find_rotted_chunks(*file, expected, stop).error().code, ErrorCode::Cancelled);
  bool once = false;
  const auto grow = [&](std::int64_t) {
    if (!std::exchange(once, true)) std::filesystem::resize_file(path, 30 * kSmall);
    return true;
  };
  EXPECT_EQ(find_rotted_chunks(*file, expected, grow).error().code, ErrorCode::Conflict);
}

TEST(Chunks, AreKeptByModel) {
  const test::TempDir folder;
  const std::filesystem::path chunks = folder / "chunks";
  write(folder / "file", random_text(2 * kSmall + 1, 5));
  const std::vector<FileChunks> files = {
      hash_file(folder / "file", "x/file", {}, kSmall).take(),
      hash_file(folder / "file", "file", {}).take(),
  };
  EXPECT_EQ(load_chunks(chunks, "m").error().code, ErrorCode::NotFound);
  ASSERT_TRUE(save_chunks(chunks, "m", files).ok());
  EXPECT_EQ(load_chunks(chunks, "m").take(), files);
  EXPECT_EQ(load_chunks(chunks, "other").error().code, ErrorCode::NotFound);
  remove_chunks(chunks, "m");
  EXPECT_EQ(load_chunks(chunks, "m").error().code, ErrorCode::NotFound);
  remove_chunks(chunks, "m");  // nothing happens
}

TEST(Chunks, AnIdNeverNamesAnotherFile) {
  const test::TempDir folder;
  write(folder / "secret.json", R"({"files":[]})");
  for (const std::string id : {"../secret", "", ".hidden", "a/b", "-x", "x y"}) {
    EXPECT_EQ(load_chunks(folder / "chunks", id).error().code, ErrorCode::InvalidArgument) << id;
    EXPECT_EQ(save_chunks(folder / "chunks", id, {}).error().code, ErrorCode::InvalidArgument);
    remove_chunks(folder / "chunks", id);
  }
  EXPECT_TRUE(std::filesystem::exists(folder / "secret.json"));
}

TEST(Chunks, DamagedFilesAreSaidToBe) {
  const test::TempDir folder;
  const std::string hash(64, 'a');
  const auto file = [&](std::string_view fields) {
    return R"({"files":[{)" + std::string(fields) + "}]}";
  };
  const std::string good =
      R"("path":"a","size":5,"sha256":")" + hash + R"(","chunks":[")" + hash + R"("])";
  write(folder / "m.json", file(good));
  ASSERT_TRUE(load_chunks(folder.path(), "m").ok())
      << load_chunks(folder.path(), "m").error().message;
  write(folder / "m.json", file(good + R"(,"of_a_newer_program":1)"));
  EXPECT_TRUE(load_chunks(folder.path(), "m").ok());
  const auto with = [&](std::string_view from, std::string_view to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return file(text);
  };
  for (const std::string& text :
       {std::string(), std::string("{}"), std::string("[]"), std::string(R"({"files":{}})"),
        std::string(R"({"files":[1]})"), with(R"("path":"a")", R"("path":"../a")"),
        with(R"("path":"a")", R"("path":"/a")"), with(R"("path":"a")", R"("path":"a//b")"),
        with(R"("path":"a")", R"("path":"a\u0000b")"), with(R"("path":"a")", R"("path":"")"),
        with("5", "-5"), with("5", "0"), with("5", "9000000"), with("5", "1e300"),
        with(hash, "short"), with(hash, std::string(64, 'G')),
        with(R"("size")", R"("chunk_bytes":0,"size")"),
        with(R"("size")", R"("chunk_bytes":99999999999,"size")"),
        R"({"files":[{)" + good + "},{" + good + "}]}"}) {
    write(folder / "m.json", text);
    const auto loaded = load_chunks(folder.path(), "m");
    ASSERT_FALSE(loaded.ok()) << text;
    EXPECT_EQ(loaded.error().code, ErrorCode::Corrupt) << text;
    EXPECT_NE(loaded.error().message.find("models verify m"), std::string::npos);
  }
}

}  // namespace
}  // namespace llorch::fetch
