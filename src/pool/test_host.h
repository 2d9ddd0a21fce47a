// For tests only: one host's pool in a temporary folder, with models of random bytes, its files
// served over HTTP by the real routes where asked for.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/home.h"
#include "catalog/download.h"
#include "catalog/model_catalog.h"
#include "fetch/chunks.h"
#include "http/router.h"
#include "http/server.h"
#include "support/test_paths.h"

namespace llorch::pool::test {

std::string random_bytes(std::size_t bytes, std::uint64_t seed);
void write_file(const std::filesystem::path& path, std::string_view content);
std::string read_file(const std::filesystem::path& path);
// Changes one byte and nothing else, as a bad disk would: the file's times stay.
void rot_byte(const std::filesystem::path& path, std::int64_t offset);

using Files = std::vector<std::pair<std::string, std::string>>;  // relative path, content

class Host {
 public:
  Host();
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  const base::Home& home() const { return home_; }
  catalog::ModelCatalog catalog() const { return catalog::ModelCatalog(home_.catalog_file()); }
  std::filesystem::path folder(std::string_view id) const { return home_.models() / id; }
  std::filesystem::path root() const { return home_.data; }

  // A downloaded model: files in our own folder, in the catalog with their hashes, and verified.
  void add_model(const std::string& id, const Files& files,
                 std::int64_t chunk_bytes = fetch::kChunkBytes);
  // Files that lie elsewhere, never hashed.
  void register_in_place(const std::string& id, const std::filesystem::path& folder,
                         const Files& files);

  // Serves the files on a free port of 127.0.0.1.
  void serve(std::string token = {});
  void stop_serving();
  std::string url() const;
  fetch::Neighbour neighbour(std::string token = {}) const { return {url(), std::move(token)}; }

  // Patient enough for a test.
  catalog::Downloader downloader() const;

 private:
  llorch::test::TempDir folder_;
  base::Home home_;
  std::unique_ptr<http::Server> server_;
};

// A pool of another kind: says what a manifest text says and sends what `answer` makes of a request
// for a file.
class FakeNeighbour {
 public:
  using Answer =
      std::function<http::Task<Status>(const http::Request& request, http::Responder& responder)>;
  FakeNeighbour(std::string manifest, Answer answer);
  ~FakeNeighbour();

  std::string url() const;
  fetch::Neighbour neighbour() const { return {url(), {}}; }
  int num_file_requests() const { return num_file_requests_; }

 private:
  std::atomic<int> num_file_requests_ = 0;
  std::unique_ptr<http::Server> server_;
};

// The text of a GET, or what went wrong; for manifests.
std::string fetch_text(const std::string& url);

}  // namespace llorch::pool::test
